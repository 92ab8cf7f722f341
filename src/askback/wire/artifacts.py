"""Artifacts, their versions, and changes of a workdir, as they are sent."""

from __future__ import annotations

from typing import Annotated, Literal

from askback.core.changes import ChangeStatus, NoSummary
from askback.wire.base import Page, Shape, WholeList, about


class Artifact(Shape, omit_defaults=True):
    """A file that a run produced."""

    path: Annotated[str, about("Relative to the run's artifacts folder, with `/` between folders.", "itinerary.md")]
    size: Annotated[int, about("In bytes.", 171, ge=0)]
    turn: Annotated[
        int | None,
        about("The turn that changed it last; 0 if it was copied from another run. Missing if unknown.", 2),
    ] = None


class ArtifactList(Page[Artifact]):
    """The files that a run has produced so far, folder by folder."""

    items: Annotated[tuple[Artifact, ...], about("At most `limit` items, fewer if their paths are long.")]


class ArtifactVersion(Shape, omit_defaults=True):
    """An artifact as it was at the end of a turn."""

    turn: Annotated[int, about("The turn; 0 if the file was copied from another run.", 2, ge=0)]
    size: Annotated[int, about("In bytes.", 171, ge=0)]
    kept: Annotated[bool, about("Whether the content is kept, so that it can be compared.")]
    digest: Annotated[
        str | None, about("The SHA-256 of the content. Missing if the file is larger than 1 MB.", "9f86d081884c7d65…")
    ] = None
    removed: Annotated[bool, about("Whether the file was removed.")] = False


class VersionList(WholeList[ArtifactVersion]):
    """The versions of one artifact, oldest first."""


class ArtifactDiff(Shape, rename={"from_": "from"}):
    """What has changed in an artifact."""

    path: Annotated[str, about("The path of the artifact.", "itinerary.md")]
    from_: Annotated[int, about("The turn at whose end the comparison starts.", 1, ge=0)]
    to: Annotated[int | Literal["now"], about("The turn at whose end it ends, or `now`.", 2)]
    diff: Annotated[
        str | None,
        about(
            "A unified diff without the two lines that name the files. Empty if nothing has changed. Null if one of the "
            "contents is not kept: it is not text, is larger than 1 MB, or the run's space for versions is full.",
            "@@ -1,1 +1,1 @@\n-Day 1: museum\n+Day 1: harbour\n",
        ),
    ]
    cut: Annotated[
        bool, about("Whether the end is left out: the diff is longer than 10,000 lines or 500,000 characters.")
    ]


class ChangedFile(Shape):
    """A file in the `workdir` that a run has changed."""

    path: Annotated[str, about("Relative to the `workdir`, with `/` between folders.", "src/site.css")]
    status: Annotated[ChangeStatus, about("What happened to it.", "modified")]
    insertions: Annotated[int | None, about("Added lines. Null if it is not text.", 12)]
    deletions: Annotated[int | None, about("Removed lines. Null if it is not text.", 3)]


class Changes(Shape):
    """What a run has changed in its `workdir`, compared with the folder as it was when the run started. Covers all files
    that git does not ignore, except those below `artifacts/`."""

    files: Annotated[tuple[ChangedFile, ...], about("The first 200 changed files.")]
    total: Annotated[int, about("The number of changed files.", 1, ge=0)]
    insertions: Annotated[int, about("Added lines in all files.", 12, ge=0)]
    deletions: Annotated[int, about("Removed lines in all files.", 3, ge=0)]
    unavailable: Annotated[
        NoSummary | None,
        about(
            "Why there is no summary. `not_a_repository`: the folder is not the top folder of a git repository, or it is "
            "a linked worktree. `git_missing`: the server has no git. `too_slow`, `unreadable`: git could not compare the "
            "folder in time, or not at all. `not_started`: the run never started a turn there. Null if there is a summary."
        ),
    ]
