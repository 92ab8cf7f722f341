"""The SQL of the store, as it stands in `sql/`. Owns how the files are found and read; knows no table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


@cache
def statements(file: str) -> Mapping[str, str]:
    """The named statements of `sql/<file>.sql`."""
    text = files("askback.store").joinpath("sql", f"{file}.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: _COMMENT.sub("", body).strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def migrations() -> tuple[str, ...]:
    """The scripts that make the schema, in order; script n leads to version n."""
    folder = files("askback.store").joinpath("sql", "migrations")
    scripts = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(entry.read_text(encoding="utf-8") for _, entry in scripts)
