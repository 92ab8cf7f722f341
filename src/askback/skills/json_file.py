"""JSON files of a package, read strictly: every mistake has a line, and nothing in them can hurt the reader."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from askback.core.interactions import Json
from askback.skills.mistakes import short
from askback.skills.problems import Problem, error, warning

MAX_JSON_BYTES = 1_000_000


def read_json(content: bytes, where: str) -> tuple[Json, tuple[Problem, ...]]:
    """The document, or None with the reason."""
    if len(content) > MAX_JSON_BYTES:
        return None, (error(where, "is larger than 1 MB", "make it smaller"),)
    twice: list[str] = []
    try:
        document = json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=lambda pairs: _object(pairs, twice),
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as fault:
        return None, (error(where, f"byte {fault.start} is not UTF-8", "save the file as UTF-8"),)
    except json.JSONDecodeError as fault:
        spot = f"line {fault.lineno}, column {fault.colno}"
        return None, (error(where, f"is not JSON: {fault.msg} at {spot}", "mend it there"),)
    except (ValueError, RecursionError) as fault:
        reason = "it is nested too deep" if isinstance(fault, RecursionError) else str(fault)
        return None, (error(where, f"is not JSON that can be read: {reason}", "mend it"),)
    return document, tuple(warning(where, f"{short(name)} stands twice", "keep one of the two") for name in twice)


def _object(pairs: list[tuple[str, Any]], twice: list[str]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice.extend(name for name, count in counts.items() if count > 1)
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
