"""Following a run through breaks: what to read of a stream, where to go on after one, and when to give up. Does no I/O."""

from __future__ import annotations

import time

import msgspec

from askback.client import calls
from askback.client.errors import AnswerUnreadable, CallFailed, WaitTimedOut
from askback.core.events import EventType
from askback.core.runs import RunState
from askback.wire.runs import Event

SILENCE_SEC = 45.0
"""A server says at least every 15 seconds that it is alive; one silent for so long is gone."""
PATIENCE_SEC = 60.0
_SHORTEST_SEC = 0.05
_LONGEST_SEC = 2.0
_MOMENTOUS = frozenset({RunState.WAITING_USER, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED})


class Following:
    """One run's events, each exactly once, over as many connections as it takes.

    With a `timeout_sec` it raises `WaitTimedOut` at the first step after that.
    """

    def __init__(self, run_id: str, after: int, patience_sec: float, timeout_sec: float | None = None) -> None:
        self.after = after
        self._run_id = run_id
        self._patience_sec = patience_sec
        self._timeout_sec = timeout_sec
        self._began_at = time.monotonic()
        self._buffer = b""
        self._heard = False
        self._lost_at: float | None = None
        self._delay_sec = _SHORTEST_SEC

    @property
    def left_sec(self) -> float | None:
        """How much of the time is left; None where it has no end."""
        return None if self._timeout_sec is None else self._began_at + self._timeout_sec - time.monotonic()

    def stream(self) -> calls.Call[bytes]:
        """The call that goes on behind the last event that was seen."""
        self._check_time()
        self._buffer = b""
        return calls.event_stream(self._run_id, self.after)

    def rest(self) -> calls.Listing[Event]:
        """All that is behind the last event, as a list: for a run that is over. A stream's end proves nothing."""
        return calls.events(self._run_id, self.after)

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this part of the stream completes."""
        self._heard, self._lost_at, self._delay_sec = True, None, _SHORTEST_SEC
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        found = [_event(line) for line in lines if line.startswith(b"data:")]
        return [event for event in found if self.is_new(event)]

    def is_new(self, event: Event) -> bool:
        if event.seq <= self.after:
            return False
        self.after = event.seq
        return True

    def lost(self, error: CallFailed) -> float:
        """How long to wait before the next try; raises the error when nobody was ever there, or not for too long.

        Counted from the loss: whoever takes his time over an event has not tried to come back yet.
        """
        self._check_time()
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if not self._heard or now - self._lost_at > self._patience_sec:
            raise error
        return self.pause()

    def pause(self) -> float:
        """How long to wait before the next try: longer each time that nothing was heard in between."""
        delay_sec = self._delay_sec
        self._delay_sec = min(2 * delay_sec, _LONGEST_SEC)
        left_sec = self.left_sec
        return delay_sec if left_sec is None else max(0.0, min(delay_sec, left_sec))

    def _check_time(self) -> None:
        if self._timeout_sec is not None and time.monotonic() >= self._began_at + self._timeout_sec:
            raise WaitTimedOut(self._run_id, self._timeout_sec)


def may_settle(event: Event) -> bool:
    """Whether the run may be over, or ask, after this."""
    return event.type == EventType.RUN_STATE and event.data.get("to") in _MOMENTOUS


def _event(line: bytes) -> Event:
    try:
        return msgspec.json.decode(line.removeprefix(b"data:"), type=Event)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AnswerUnreadable(f"an event cannot be read: {error}") from None
