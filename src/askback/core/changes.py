"""What a run has changed in a folder of the user. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ChangeStatus(StrEnum):
    """How a file differs from what it was before the run."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class NoSummary(StrEnum):
    """Why there is no summary of the changes."""

    NOT_A_REPOSITORY = "not_a_repository"
    GIT_MISSING = "git_missing"
    TOO_SLOW = "too_slow"
    UNREADABLE = "unreadable"
    NOT_STARTED = "not_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """`insertions` and `deletions` are None for a file that is not text."""

    path: str
    status: ChangeStatus
    insertions: int | None = None
    deletions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a run changed in a folder of the user. `files` may be cut; the counts are of all files."""

    files: tuple[ChangedFile, ...] = ()
    total: int = 0
    insertions: int = 0
    deletions: int = 0
    unavailable: NoSummary | None = None
