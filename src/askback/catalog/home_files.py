"""The files that an engine gets in the home of a run before it starts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from askback.engines.base import Launch

# A text is matched as a whole, so that nothing in it is taken for a comment.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def home_files(launch: Launch, configured: Path | None) -> dict[str, bytes]:
    """`files`, and `settings` merged over the same files of the configured home. Reads nothing that an engine can write."""
    return {**launch.files, **dict(_merged(launch.settings, configured))}


def _merged(settings: Mapping[str, Mapping[str, Any]], configured: Path | None) -> Iterator[tuple[str, bytes]]:
    for name, values in settings.items():
        try:
            text = "{}" if configured is None else (configured / name).read_text("utf-8")
            given = json.loads(_COMMENT.sub(lambda found: found[1] or "", text))
        except FileNotFoundError:
            given = {}
        except (OSError, ValueError, RecursionError):
            given = None
        # A file that cannot be read stays as it is in the copy: the engine itself says what is wrong with it.
        if isinstance(given, dict):
            yield name, json.dumps(_over(given, values)).encode()


def _over(given: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` have priority, at every depth."""
    merged = dict(given)
    for key, value in values.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return merged
