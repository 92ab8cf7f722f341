"""Following a run across lost connections: parsing the stream, resuming it, and giving up. Does no I/O."""

from __future__ import annotations

import time

import msgspec

from askback.client import calls
from askback.client.errors import AnswerUnreadable, CallFailed, WaitTimedOut
from askback.core.events import EventType
from askback.core.runs import RunState
from askback.wire.runs import Event

SILENCE_SEC = 45.0
"""A server sends a heartbeat every 15 seconds; after this time without one it is considered lost."""
PATIENCE_SEC = 60.0
_MIN_DELAY_SEC = 0.05
_MAX_DELAY_SEC = 2.0
_SETTLING = frozenset({RunState.WAITING_USER, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED})


class Following:
    """The events of one run, each exactly once, over any number of connections, for at most `timeout_sec`."""

    def __init__(self, run_id: str, after: int, patience_sec: float, timeout_sec: float | None = None) -> None:
        self.after = after
        self._run_id = run_id
        self._patience_sec = patience_sec
        self._timeout_sec = timeout_sec
        self._began_at = time.monotonic()
        self._buffer = b""
        self._connected_once = False
        self._lost_at: float | None = None
        self._delay_sec = _MIN_DELAY_SEC

    @property
    def left_sec(self) -> float | None:
        """The time left; None without a timeout."""
        return None if self._timeout_sec is None else self._began_at + self._timeout_sec - time.monotonic()

    def stream(self) -> calls.Call[bytes]:
        self._check_time()
        self._buffer = b""
        return calls.event_stream(self._run_id, self.after)

    def rest(self) -> calls.Listing[Event]:
        """The events after the last one, as a list. For a final run: the end of a stream does not prove completeness."""
        return calls.events(self._run_id, after=self.after)

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete with this chunk."""
        self._connected_once, self._lost_at, self._delay_sec = True, None, _MIN_DELAY_SEC
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        calls.check_size(len(self._buffer))
        try:
            data = [line.removeprefix(b"data:") for line in lines if line.startswith(b"data:")]
            found = [msgspec.json.decode(each, type=Event) for each in data]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AnswerUnreadable(f"cannot decode an event: {error}") from None
        return [event for event in found if self.is_new(event)]

    def is_new(self, event: Event) -> bool:
        if event.seq <= self.after:
            return False
        self.after = event.seq
        return True

    def lost(self, error: CallFailed) -> float:
        """How long to wait before the next attempt. Raises the error if there was no connection for too long, or ever.

        Counts from the first failed attempt: the caller may have taken long to process an event.
        """
        self._check_time()
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if not self._connected_once or now - self._lost_at > self._patience_sec:
            raise error
        return self.pause()

    def pause(self) -> float:
        """How long to wait before the next attempt: longer each time that nothing was received."""
        delay_sec = self._delay_sec
        self._delay_sec = min(2 * delay_sec, _MAX_DELAY_SEC)
        left_sec = self.left_sec
        return delay_sec if left_sec is None else max(0.0, min(delay_sec, left_sec))

    def _check_time(self) -> None:
        if self._timeout_sec is not None and time.monotonic() >= self._began_at + self._timeout_sec:
            raise WaitTimedOut(self._run_id, self._timeout_sec)


def may_settle(event: Event) -> bool:
    """Whether the run may be final, or may wait, after this event."""
    return event.type == EventType.RUN_STATE and event.data.get("to") in _SETTLING
