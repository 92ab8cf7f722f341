"""The part of `lifecycle.decide` for limits of the model provider: a run is parked until its limit ends. Pure.

A parked run is queued, has neither slot nor process, and is not executed before `Run.not_before`. Then the turn that met the
limit is executed so that its prompt is in the session exactly once. Engines differ in what a failed turn leaves in their
session. So if no tool was started, the turn is repeated from the home as it was before; otherwise the home stays, and a
further turn asks the model to continue.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from datetime import timedelta

from askback.core import event_factory
from askback.core.decisions import Decision, Refusal, Stay, unsuitable
from askback.core.errors import LimitKind
from askback.core.events import NewEvent
from askback.core.outcomes import TurnError
from askback.core.runs import OnLimit, Parking, Run, RunState, TurnKind, TurnOrder, Usage
from askback.core.signals import LimitKnown, ParkEnded, TurnEnded

_MARGIN = timedelta(seconds=30)
"""Providers count on with their own clock."""
_SPREAD_SEC = 90
"""Over which the runs that wait for the same limit are distributed."""
_UNKNOWN = timedelta(minutes=15)
"""The first pause if nobody says when the limit ends. It doubles with every further one, up to `_LONGEST`."""
_AGAIN = timedelta(minutes=1)
"""The same for a limit that holds although its end has passed: the engine was wrong, or its clock is."""
_LONGEST = timedelta(hours=4)


def plan(run: Run, signal: TurnEnded) -> Parking | None:
    """How the run is parked after a turn that met a limit. None: it is not."""
    error = signal.outcome.error if isinstance(signal.outcome, TurnError) else None
    limit = None if error is None else error.limit
    if limit is None or run.options.on_limit is not OnLimit.PARK or run.cancel_requested:
        return None
    if run.sticky and (signal.used_tools or run.next_turn.kind is not TurnKind.START):
        # Its session ends with its process.
        return None
    at, before = signal.at, run.parking
    known = limit.resets_at if limit.resets_at is not None and limit.resets_at > at else None
    if limit.kind is LimitKind.CREDITS or (limit.kind is LimitKind.SPENDING_CAP and known is None):
        # It does not end by itself.
        return None
    times = 1 if before is None else before.times + 1
    since = at if before is None else before.since
    last = since + timedelta(seconds=run.options.max_park_sec)
    if known is None:
        until = min(at + _doubled(_UNKNOWN, times), max(last, at))
    else:
        until = known if times == 1 else max(known, at + _doubled(_AGAIN, times))
    if until > last or at >= last:
        return None
    return Parking(limit=limit, until=until, not_before=until + _delay(run), since=since, times=times)


def _doubled(pause: timedelta, times: int) -> timedelta:
    return min(pause * (1 << min(times - 1, 10)), _LONGEST)


def _delay(run: Run) -> timedelta:
    """The same for a run whenever it is computed."""
    return _MARGIN + timedelta(seconds=zlib.crc32(run.id.encode()) % _SPREAD_SEC)


def park(run: Run, signal: TurnEnded, parking: Parking, events: tuple[NewEvent, ...]) -> Decision:
    """Queue the turn again for later. `run` has the version, usage and warnings of the ended turn."""
    parked = run.evolve(state=RunState.QUEUED, worker=None, process=None, parking=parking)
    if repeats(run, signal):
        # What the session counts starts again from before the turn.
        parked = parked.evolve(
            handle=run.handle_before_turn, usage_lost=(run.usage_lost or Usage()) + (signal.usage or Usage())
        )
    else:
        number = run.attempt_number + 1
        # The limit is not the fault of the run: the further turn does not count.
        most = None if run.max_attempt is None else run.max_attempt + 1
        parked = parked.evolve(next_turn=TurnOrder(kind=TurnKind.REPAIR, attempt_number=number), max_attempt=most)
    moved = event_factory.moved(run.state, parked.state, signal.at)
    return Decision(run=parked, events=(*events, event_factory.parked(run, parking, signal.at), moved))


def repeats(run: Run, signal: TurnEnded) -> bool:
    """Whether the turn of a run that is parked is repeated from the home as it was before."""
    return not signal.used_tools or run.handle is None


def avoid(run: Run, signal: LimitKnown) -> Decision | Stay | Refusal:
    """Park a queued run whose turn was not started."""
    if not run.in_queue:
        return unsuitable(run, "avoid a limit")
    before = run.parking
    since = signal.at if before is None else before.since
    if not would_avoid(run) or signal.until > since + timedelta(seconds=run.options.max_park_sec):
        return Stay(reason="the run is executed in spite of the limit")
    parking = Parking(
        limit=signal.limit,
        until=signal.until,
        not_before=signal.until + _delay(run),
        since=since,
        times=0 if before is None else before.times,
    )
    parked = run.evolve(version=run.version + 1, parking=parking, updated_at=signal.at)
    return Decision(run=parked, events=(event_factory.parked(run, parking, signal.at),))


def would_avoid(run: Run) -> bool:
    """Whether the run is parked for a limit that another run has met. A run with variables may have its own sign-in."""
    forced = run.parking is not None and run.parking.forced
    return run.options.on_limit is OnLimit.PARK and not run.env_names and not forced and not run.bound_to_process


def end(run: Run, signal: ParkEnded) -> Decision | Stay | Refusal:
    parking = run.parking
    if parking is None or run.not_before is None:
        return unsuitable(run, "be resumed: it is not parked")
    if signal.by is None and signal.at < run.not_before:
        return Stay(reason="the limit is not over")
    ended = replace(parking, not_before=None, forced=signal.by is not None)
    resumed = run.evolve(version=run.version + 1, parking=ended, updated_at=signal.at)
    return Decision(run=resumed, events=(event_factory.resumed(signal.by, signal.at),))
