"""Statistics of runs by day, skill and engine, and of answers."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from askback.wire.base import Moment, Shape, about
from askback.wire.runs import Usage

Day = date
Count = Annotated[int, about("How many.", 3, ge=0)]


class Finished(Shape):
    """Runs that ended."""

    succeeded: Count = 0
    failed: Count = 0
    canceled: Count = 0
    usage: Annotated[Usage, about("The tokens of these runs, in all their turns.")]

    @property
    def runs(self) -> int:
        return self.succeeded + self.failed + self.canceled


class DayStats(Finished):
    """The runs that ended on one day."""

    date: Annotated[Day, about("The day, in UTC.", "2026-03-01")]
    failures: Annotated[dict[str, int], about("Failed runs by the `code` of their error.", {"ENGINE_RATE_LIMITED": 2})]


class NamedStats(Finished):
    """The runs of one skill or engine that ended."""

    name: Annotated[str, about("The skill or the engine.", "trip-planner")]


class AnswerStats(Shape):
    """How long users took to answer. Of the latest 1,000 questions, those that were answered in this time."""

    count: Annotated[int, about("How many answers.", 40, ge=0)]
    median_sec: Annotated[float | None, about("Half of the answers took longer. Null without answers.", 95.5)] = None
    p90_sec: Annotated[float | None, about("One in ten answers took longer. Null without answers.", 3600.0)] = None


class Unfinished(Shape):
    """The runs that are not over."""

    queued: Count
    running: Count
    waiting_user: Count
    oldest_asked_at: Annotated[Moment | None, about("When the oldest pending question was asked.")] = None


class Statistics(Shape):
    """What happened in the last days.

    A run counts on the UTC day on which it ended, with the tokens of all its turns, and still counts after it was
    deleted. Answers of deleted runs do not count.
    """

    first: Annotated[Day, about("The first day.", "2026-02-01")]
    last: Annotated[Day, about("The last day: today, in UTC.", "2026-03-01")]
    days: Annotated[tuple[DayStats, ...], about("Every day, oldest first.")]
    skills: Annotated[tuple[NamedStats, ...], about("By skill, most runs first; at most 50.")]
    engines: Annotated[tuple[NamedStats, ...], about("By engine, most runs first; at most 50.")]
    answers: Annotated[AnswerStats, about("How long questions waited.")]
    unfinished: Annotated[Unfinished, about("The runs that are not over now.")]
