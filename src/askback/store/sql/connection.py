"""The interfaces of a database connection and of its queue, and the statements in the dialect of the database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Protocol

from askback.core.runs import Run

Values = Mapping[str, Any] | Sequence[Any]
"""The parameters of a statement: `:name` are taken from a mapping, `?` from a sequence."""


class Connection(Protocol):
    """Runs statements. Those of a write are in a transaction that the caller opens and ends."""

    @property
    def sql(self) -> Mapping[str, str]:
        """All statements by name, in the dialect of the database."""

    @property
    def queue(self) -> QueueWriter: ...

    def execute(self, sql: str, values: Any = None, /) -> object: ...

    def executemany(self, sql: str, values: Any, /) -> object: ...

    def fetch(self, sql: str, values: Values | None = None) -> list[Any]:
        """All rows."""

    def fetch_page(self, sql: str, values: Values, *, size: int, max_bytes: int) -> tuple[list[Any], bool]:
        """The first rows, at most `size` and with at most `max_bytes` in their last column, and whether more follow.

        The first row is always included, however large. The statement must select one row more than `size`.
        """

    def value(self, sql: str, values: Values | None = None) -> Any:
        """The first column of the first row; None if there is no row."""

    def exclude_others(self, what: str) -> None:
        """Wait for all other transactions that called this with the same text. They wait for this one until it ends."""


class QueueWriter(Protocol):
    """Changes the queue within a transaction. A run is named by its number in the database, and by itself."""

    def add(self, number: int, run: Run) -> None:
        """The run is queued from now on."""

    def remove(self, number: int, before: Run, *, claimed: bool) -> None:
        """The run, which was queued before, was claimed, or is over."""

    def hand_over(self, number: int, run: Run) -> None:
        """A queued run has another owner. Its position does not change."""

    def forget(self, run_id: str) -> None:
        """The run is deleted."""


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
_FRAGMENTS = "fragments.sql"


class Dialect:
    """The statements of `statements/*.sql`, some of them replaced by those of the same name in the files of a database.

    Within one folder a name is used once. `{name}` in a statement stands for the fragment of that name in `fragments.sql`.
    """

    def __init__(self, own: Traversable) -> None:
        """`own` is the folder with the files of the database."""
        self._folders = (files("askback.store.sql").joinpath("statements"), own)

    @cached_property
    def sql(self) -> dict[str, str]:
        fragments: dict[str, str] = {}
        statements: dict[str, str] = {}
        for folder in self._folders:
            own_fragments, own_statements = _named(folder)
            fragments |= own_fragments
            statements |= own_statements
        for fragment, text in fragments.items():
            statements = {name: sql.replace(f"{{{fragment}}}", text) for name, sql in statements.items()}
        return statements


def _named(folder: Traversable) -> tuple[dict[str, str], dict[str, str]]:
    """The fragments and the statements of a folder, by the names in the comments before them."""
    fragments: dict[str, str] = {}
    statements: dict[str, str] = {}
    for file in folder.iterdir():
        if not file.name.endswith(".sql"):
            continue
        found = fragments if file.name == _FRAGMENTS else statements
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"{file.name}: the name {name!r} is used twice in this folder")
            found[name] = _COMMENT.sub("", body).strip()
    return fragments, statements


def migrations(folder: Traversable) -> tuple[str, ...]:
    """The scripts that create a schema, in order. Script n leads to version n."""
    scripts = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(entry.read_text(encoding="utf-8") for _, entry in scripts)
