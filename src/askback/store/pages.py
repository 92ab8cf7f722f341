"""What reads of the store take and return: filters, pages and counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Generic, Self, TypeVar

from askback.core.events import Event
from askback.core.runs import Run, RunState, Usage

T = TypeVar("T")

LabelSet = frozenset[tuple[str, str]]
"""Labels that a run must all have. Two values of one name are possible: then no run is found."""
ANY_LABELS: LabelSet = frozenset()

UNKNOWN_RUN = ""
"""The key in `Changes` that means that any run may have changed."""


class StaleWrite(Exception):
    """The run has changed since it was read; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A caller's key for creating one run. `body_digest` shows whether a repeated request is the same."""

    key: str
    body_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    state: RunState | None = None
    skill: str | None = None
    engine: str | None = None
    creator: str | None = None
    """The name of the token that created them. Without labels, a list by creator reads every run."""
    labels: LabelSet = ANY_LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A part of a list. `next_cursor` is None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxFilter:
    """Which questions are wanted. `words` must all occur in the skill, the summary, the prompt or the context."""

    skill: str | None = None
    engine: str | None = None
    words: str = ""
    labels: LabelSet = ANY_LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxCount:
    """How many questions match a filter, and when the latest of all was asked.

    `skills` ignores the skill of the filter, and `engines` its engine: they count what another choice would show.
    """

    total: int
    newest_at: datetime | None
    skills: tuple[tuple[str, int], ...] = ()
    engines: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How many runs ended in each state, and the tokens that they used."""

    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def runs(self) -> int:
        return self.succeeded + self.failed + self.canceled


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStats:
    """The runs that ended from `first` to `last`, in UTC days, and the runs that are not over now.

    Runs that were deleted since count as well. `answer_sec` has the latest answers of that time, of runs that still exist.
    """

    first: date
    last: date
    days: Mapping[date, Finished]
    """Only days on which a run ended."""
    failures: Mapping[date, Mapping[str, int]]
    """Failed runs by day and error code."""
    skills: Mapping[str, Finished]
    """The most used skills, most runs first."""
    engines: Mapping[str, Finished]
    unfinished: Mapping[RunState, int]
    answer_sec: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """What turns have used. None: no engine has reported it."""

    name: str | None
    turns: int
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None
    turns_with_cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSums:
    """What the turns have used that ended from `first` to `last`, in UTC days, also of runs that were deleted since."""

    first: date
    last: date
    total: UsageSum
    items: tuple[UsageSum, ...]


PAGE_BYTES = 1_000_000
"""The approximate size of a page. A page has at least one item, however large."""


class EventPage(tuple[Event, ...]):
    """Events of a run, in order. `more`: later events exist. `size`: the total size in bytes.

    `committed_at` is when the first of them was committed, on the monotonic clock; None if it was not seen.
    """

    more: bool = False
    size: int = 0
    committed_at: float | None = None

    @classmethod
    def of(cls, events: Iterable[Event], *, more: bool, size: int = 0, committed_at: float | None = None) -> Self:
        page = cls(events)
        page.more = more
        page.size = size
        page.committed_at = committed_at
        return page


class QueuedRuns(tuple[Run, ...]):
    """Runs that may start, in queue order. `held_back`: there are others, whose tokens have as many slots as they may."""

    held_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestions:
    """How many questions are open, and the runs of the oldest ones, the oldest first."""

    total: int
    oldest: tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries are wanted. `since` is part of the time, `until` is not."""

    actor: str | None = None
    action: str | None = None
    run_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStore:
    id: str
    confirmed: bool
    """Whether a store with this id was seen. Before that, the id is only proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRunCount:
    """The runs that wait or are queued, and those that run, by what the database says of their files."""

    stored: int
    """Their files were put into the store."""
    not_stored: int
    """They have had a turn, and their files are only on the machine of that turn."""
    not_started: int
    """They have had no turn, so there is no session yet."""
    running: int
    """They run, and no earlier turn has put their files into the store: the turn that runs does so at its end."""
    unfinished: int
    """All of these, and those that need nothing from the store."""
