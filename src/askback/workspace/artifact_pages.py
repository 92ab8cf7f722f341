"""The list of a run's artifacts, bounded as a whole and page by page.

An engine can make a hundred thousand files with paths of 4,096 characters each, so the characters count as well as the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from askback.workspace.layout import MAX_LISTED, MAX_NAMES, Artifact

PAGE_FILES = 10_000
PAGE_NAMES = 1_000_000
"""Characters of the paths on one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactPage:
    """Some artifacts, and the number of those up to its end if there are further ones."""

    items: Sequence[Artifact]
    end: int | None


def bounded(artifacts: Iterable[Artifact]) -> Iterator[Artifact]:
    """As many of them as are listed."""
    files, names = MAX_LISTED, MAX_NAMES
    for each in artifacts:
        files, names = files - 1, names - len(each.path)
        if files < 0 or names < 0:
            return
        yield each


def page_of(artifacts: Iterable[Artifact], after: int, limit: int, max_names: int = PAGE_NAMES) -> ArtifactPage:
    """The artifacts after the first `after`: at most `limit`, and fewer if their paths are long."""
    items: list[Artifact] = []
    for number, each in enumerate(artifacts):
        if number < after:
            continue
        max_names -= len(each.path)
        if len(items) >= limit or (max_names < 0 and items):
            return ArtifactPage(items=items, end=number)
        items.append(each)
    return ArtifactPage(items=items, end=None)
