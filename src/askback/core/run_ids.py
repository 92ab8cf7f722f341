"""What a run id may be. Ids become names of folders and files and parts of keys, so nothing else is ever joined to a path."""

from __future__ import annotations

import re

from askback.core.errors import NotFound, RefusalCode

_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}", re.ASCII)


def is_run_id(text: str) -> bool:
    return _RUN_ID.fullmatch(text) is not None


def parse_run_id(text: str) -> str:
    """The id. Raises `NotFound` for any other text: no run can have it."""
    if not is_run_id(text):
        raise NotFound(RefusalCode.RUN_NOT_FOUND, f"there is no run {text[:80]!r}; `askback runs` lists all runs")
    return text


def require_run_id(text: str) -> None:
    """Raises `ValueError` for a text that no run can have as its id, as decoders of documents expect it."""
    if not is_run_id(text):
        raise ValueError(f"{text[:80]!r} is not the id of a run")
