"""The path of a request from its segments. What a caller names stays one segment, below the collection it is in."""

from __future__ import annotations

from urllib.parse import quote

from askback.client.errors import NotFound
from askback.core.errors import RefusalCode

_COLLECTIONS = {
    "runs": (RefusalCode.RUN_NOT_FOUND, "run"),
    "links": (RefusalCode.LINK_NOT_FOUND, "link"),
    "artifacts": (RefusalCode.ARTIFACT_NOT_FOUND, "artifact"),
    "skills": (RefusalCode.SKILL_NOT_FOUND, "skill"),
    "engines": (RefusalCode.ENGINE_NOT_FOUND, "engine"),
}


def path_of(*segments: str) -> str:
    """Raises `NotFound` for a name that would lead elsewhere.

    HTTP libraries resolve `.` and `..`, and the server takes an encoded slash for a slash.
    """
    for index, segment in enumerate(segments):
        if segment in ("", ".", "..") or "/" in segment:
            raise _no_such(segments[:index], segments[index:])
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)


def _no_such(above: tuple[str, ...], rest: tuple[str, ...]) -> NotFound:
    """For the name that starts below the nearest collection: a path has several segments, an id has one."""
    at = max(index for index, segment in enumerate(above) if segment in _COLLECTIONS)
    code, noun = _COLLECTIONS[above[at]]
    name = "/".join((*above[at + 1 :], *rest)) if noun == "artifact" else rest[0]
    return NotFound(404, code, f"there is no {noun} {name!r}")
