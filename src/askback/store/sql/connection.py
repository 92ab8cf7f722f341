"""The interface of a database connection, and the statements in the dialect of the database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Protocol

from askback.store.sql.places import Places

Values = Mapping[str, Any] | Sequence[Any]
"""The parameters of a statement: `:name` are taken from a mapping, `?` from a sequence."""


class StatementSource(Protocol):
    def statements(self, file: str) -> Mapping[str, str]:
        """The named statements of a file, in the dialect of the database."""
        ...


class Connection(StatementSource, Protocol):
    """Runs statements. Those of a write are in a transaction that the caller opens and ends."""

    @property
    def places(self) -> Places:
        """The places of runs in the queue."""
        ...

    def execute(self, sql: str, values: Any = None, /) -> object: ...

    def executemany(self, sql: str, values: Any, /) -> object: ...

    def fetch(self, sql: str, values: Values | None = None) -> list[Any]:
        """All rows."""
        ...

    def fetch_page(self, sql: str, values: Values, *, size: int, max_bytes: int) -> tuple[list[Any], bool]:
        """The first rows, at most `size` and with at most `max_bytes` in their last column, and whether more follow.

        The first row is always included, however large. The statement must select one row more than `size`.
        """
        ...

    def value(self, sql: str, values: Values | None = None) -> Any:
        """The first column of the first row; None if there is no row."""
        ...

    def exclude_others(self, what: str) -> None:
        """Wait for all other transactions that called this with the same text. They wait for this one until it ends."""
        ...


def first_rows(rows: Iterator[Any], *, size: int, max_bytes: int) -> tuple[list[Any], bool]:
    """A page of rows that are read one by one, as `Connection.fetch_page` returns it."""
    found: list[Any] = []
    for row in rows:
        max_bytes -= len(row[-1])
        if len(found) == size or (found and max_bytes < 0):
            return found, True
        found.append(row)
    return found, False


_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_SHARED = files("askback.store.sql").joinpath("statements")


class Dialect:
    """The statements of `statements/*.sql`, some of them replaced by those of the same name in the files of a database.

    `{name}` in a statement stands for the fragment of that name in `fragments.sql`.
    """

    def __init__(self, own: Traversable) -> None:
        """`own` is the folder with the files of the database."""
        self._own = own
        self._files: dict[str, Mapping[str, str]] = {}

    def statements(self, file: str) -> Mapping[str, str]:
        found = self._files.get(file)
        if found is None:
            found = self._files[file] = self._load(file)
        return found

    def _load(self, file: str) -> Mapping[str, str]:
        name = f"{file}.sql"
        parts = _parts(_SHARED.joinpath(name)) | _parts(self._own.joinpath(name))
        if file == "fragments":
            return parts
        fragments = self.statements("fragments")
        return {name: _filled(sql, fragments) for name, sql in parts.items()}


def _parts(file: Traversable) -> dict[str, str]:
    if not file.is_file():
        return {}
    _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
    return {name: _COMMENT.sub("", body).strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _filled(sql: str, fragments: Mapping[str, str]) -> str:
    for name, fragment in fragments.items():
        sql = sql.replace(f"{{{name}}}", fragment)
    return sql


def migrations(folder: Traversable) -> tuple[str, ...]:
    """The scripts that create a schema, in order. Script n leads to version n."""
    scripts = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(entry.read_text(encoding="utf-8") for _, entry in scripts)
