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
    "files": (RefusalCode.SKILL_FILE_NOT_FOUND, "file"),
    "engines": (RefusalCode.ENGINE_NOT_FOUND, "engine"),
}
_OF_PATHS = ("artifacts", "files")


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
    collections = [index for index, segment in enumerate(above) if segment in _COLLECTIONS]
    # The folders of a path may be named like a collection.
    at = next((index for index in collections if above[index] in _OF_PATHS), collections[-1])
    code, noun = _COLLECTIONS[above[at]]
    name = "/".join((*above[at + 1 :], *rest)) if above[at] in _OF_PATHS else rest[0]
    return NotFound(404, code, f"there is no {noun} {name!r}")
