"""Turns errors of PostgreSQL into `Unavailable`, with instructions. No message contains a password."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg import errors as kinds

from askback.core.errors import RefusalCode, Unavailable
from askback.text.formatting import nearest

MINIMUM = 15
"""The oldest PostgreSQL that is supported."""

_PASSWORDS = "set PGPASSWORD for this program, or add a line to ~/.pgpass of its user"
_REASONS = (
    (r"no password supplied", f"the server asks for a password, and none was given; {_PASSWORDS}"),
    (
        r"password authentication failed",
        "the user or the password is wrong; correct the user in `database`, and the password in PGPASSWORD, in"
        " ~/.pgpass or in `database`, wherever it is",
    ),
    (r"no pg_hba\.conf entry", "the server does not accept this user from here; allow it in pg_hba.conf"),
    (r'database ".*" does not exist', "this database does not exist; create it with createdb, or correct `database`"),
    (r'role ".*" does not exist', "this user does not exist; create it with createuser, or correct `database`"),
    (r"too many clients|remaining connection slots", "the server has no free connection; raise its max_connections"),
)
"""By the text of the message: libpq does not give the code of an error during the connection."""
_BAD_VALUE = re.compile(r"invalid .*value|must be .* if|root certificate file .* does not exist")
_PERMANENT = re.compile("|".join([*(pattern for pattern, _ in _REASONS[:5]), _BAD_VALUE.pattern]))
_SHAPE = "it must look like postgresql://user:password@host:5432/name, with special characters percent-encoded, such as %40 for @"


def place(address: str) -> str:
    """The server and the database of an address, for messages."""
    try:
        known = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        return "the PostgreSQL database"
    host = known.get("host") or known.get("hostaddr") or "the local socket"
    port = f":{known['port']}" if known.get("port") else ""
    return f"the PostgreSQL database {known.get('dbname') or known.get('user') or ''!r} on {host}{port}"


def is_permanent(error: psycopg.Error) -> bool:
    """Whether another attempt to connect is pointless until somebody corrects something."""
    return _is_bad_address(error) or (
        isinstance(error, psycopg.OperationalError) and bool(_PERMANENT.search(str(error)))
    )


def _is_bad_address(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None


def unavailable(error: psycopg.Error, address: str) -> Unavailable:
    where = place(address)
    match error:
        case kinds.DiskFull():
            message = f"the disk of {where} is full; stored data is safe; free some space and try again"
            return Unavailable(RefusalCode.DISK_FULL, message)
        case kinds.ReadOnlySqlTransaction():
            message = f"{where} is read-only; connect to the primary server, or correct `database`"
            return Unavailable(RefusalCode.STORE_READ_ONLY, message)
        case kinds.InsufficientPrivilege():
            message = f"this user may not use {where}: {_first_line(error)}; make the user its owner"
            return Unavailable(RefusalCode.STORE_READ_ONLY, message)
        case kinds.QueryCanceled():
            message = (
                f"{where} takes too long: {_first_line(error)}; it is overloaded, or another program holds a lock; try"
                " again"
            )
            return Unavailable(RefusalCode.STORE_UNUSABLE, message)
        case kinds.UndefinedTable() | kinds.UndefinedColumn() | kinds.InvalidSchemaName() | kinds.UndefinedFunction():
            return unfit(address, None, None)
        case _:
            return Unavailable(RefusalCode.STORE_UNUSABLE, f"{where} cannot be used: {_advice(error, address)}")


def _advice(error: psycopg.Error, address: str) -> str:
    if _is_bad_address(error):
        # The message may quote the address with its password.
        return f"its address is not valid; {_unknown_options(address) or _SHAPE}"
    text = _first_line(error)
    for pattern, advice in _REASONS:
        if re.search(pattern, text):
            return advice
    if _BAD_VALUE.search(text):
        return f"{text}; correct `database`"
    return f"{text}; check that the server runs and can be reached"


def _unknown_options(address: str) -> str | None:
    """The options after `?` that libpq does not have, by name."""
    known = {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()} | {"ssl"}
    given = [name for name, _ in parse_qsl(urlsplit(address).query, keep_blank_values=True)]
    unknown = sorted(set(given) - known)
    if not unknown:
        return None
    near = nearest(unknown[0], known)
    hint = f"; did you mean {near}?" if near and len(unknown) == 1 else ""
    return f"libpq has no option {' and no option '.join(unknown)}{hint}"


def waiting(error: psycopg.Error, address: str, seconds: float) -> str:
    """For the log of a program that has not reached the database yet."""
    return f"waiting for {place(address)}, for {seconds:.0f} seconds at most: {_first_line(error)}"


def _first_line(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def unfit(address: str, found: int | None, known: int | None) -> Unavailable:
    """The tables, or those of the queue, are missing or of an older version."""
    if found == 0:
        message = f"{place(address)} has no tables yet; create them with: askback database upgrade"
        return Unavailable(RefusalCode.STORE_UNUSABLE, message)
    version = "" if found is None or found == known else f" (format {found}, this Askback needs {known})"
    message = (
        f"the tables in {place(address)} do not fit{version}; create or upgrade them with: askback database upgrade"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def newer(address: str, oldest: int, known: int) -> Unavailable:
    message = (
        f"{place(address)} was upgraded by a newer Askback for programs that know format {oldest}, and this one knows"
        f" {known}; upgrade Askback, or use another database"
    )
    return Unavailable(RefusalCode.STORE_NEWER, message)


def newer_queue(address: str, found: str) -> Unavailable:
    message = (
        f"the queue in {place(address)} has the tables of a newer Procrastinate ({found}) and was left unchanged;"
        " upgrade the package procrastinate, or use another database"
    )
    return Unavailable(RefusalCode.STORE_NEWER, message)


def older_programs(address: str, names: list[str]) -> Unavailable:
    message = (
        f"{place(address)} was left unchanged: programs of an older version use it, and could not use it afterwards:"
        f" {', '.join(names)}; upgrade or stop them first, or use --force, which stops their work"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def other_folder(address: str) -> Unavailable:
    message = (
        f"{place(address)} belongs to another data folder, which has the files of its runs; use that folder with"
        " --data-dir, or another database, or share the files with the setting `files`"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def files_not_set(address: str) -> Unavailable:
    message = (
        f"the files of the runs in {place(address)} are in a store that several machines share, and the setting `files`"
        " is not set; set it to the same address as on the other machines (docs/guides/files.md)"
    )
    return Unavailable(RefusalCode.FILES_UNAVAILABLE, message)


def other_runs_dir(address: str, theirs: str, own: str) -> Unavailable:
    message = (
        f"the runs of {place(address)} are in {theirs}, and this program would put them into {own}; engines resume their"
        f" sessions only at one path: set `runs_dir` to {theirs}"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def files_elsewhere(address: str) -> Unavailable:
    message = (
        f"{place(address)} has unfinished runs whose files are only in the data folder that was used with it first. A"
        " server that runs there with the setting `files` stores them by itself, each run at the end of its turn: wait for"
        " it, or start one. `askback files status` there says what is left (docs/guides/several-machines.md)"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def too_old(address: str, version: int) -> Unavailable:
    """`version` is as libpq tells it: 150004 is 15.4."""
    message = (
        f"{place(address)} runs PostgreSQL {version // 10_000}, which is too old; Askback needs {MINIMUM} or newer"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def wrong_encoding(address: str, encoding: str) -> Unavailable:
    message = (
        f"{place(address)} has the encoding {encoding}; create it with: createdb --encoding UTF8 --template template0"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def closed(address: str) -> Unavailable:
    return Unavailable(RefusalCode.STORE_UNUSABLE, f"the store in {place(address)} is closed; open it again")
