"""When digests are due: at listed times of day, in one time zone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestTimes:
    """Each listed time of a day is one moment, whatever the clocks of the zone do on that day.

    A time that occurs twice is the first of the two. A time that is skipped is as long after midnight as it would be on
    another day. Two listed times can be the same moment.
    """

    at: tuple[time, ...]
    zone: tzinfo | None = None
    """None: that of this machine."""

    def latest(self, now: datetime) -> datetime:
        """The last of these moments that is not after `now`, in UTC."""
        return max(moment for moment in self._around(now) if moment <= now)

    def next(self, now: datetime) -> datetime:
        """The first of these moments after `now`, in UTC."""
        return min(moment for moment in self._around(now) if moment > now)

    def _around(self, now: datetime) -> Iterator[datetime]:
        # A zone that moves to the other side of the date line skips a day.
        today = now.astimezone(self.zone).date()
        for days in range(-2, 3):
            day = today + timedelta(days=days)
            yield from (self._moment(day, at) for at in self.at)

    def _moment(self, day: date, at: time) -> datetime:
        return datetime.combine(day, at, tzinfo=self.zone).astimezone(UTC)
