"""What a server or a worker says of itself: its health, whether it is ready, and its metrics."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from askback import __version__
from askback.app import App
from askback.app.engines import networks
from askback.app.fleet import is_shared, read_workers, shown, worker_of
from askback.cluster.fleet import EngineOffer, Offer
from askback.core.errors import RefusalCode
from askback.http.streams import Streams
from askback.process.child import NotStarted, Spawner
from askback.process.isolation import NO_SANDBOX, Enforcement, Isolation, Network
from askback.process.warm import DropReason
from askback.telemetry.metrics import Gauges, Metrics
from askback.wire import server as wire

T = TypeVar("T")

_UNKNOWN_ISOLATION = "Whether the sandbox works could not be tested yet. It is tried again."
_ANSWER_SEC = 0.5
"""How long a part that is looked at may take: the answer is due within a second."""


class Shared(Generic[T]):
    """A look that anybody can ask for, any number of times: those who ask while it is under way get the same result."""

    def __init__(self, look: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._look = look
        self._looking: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
        return await asyncio.shield(self._looking)


async def health(app: App) -> wire.Health:
    """Never fails because a part cannot be looked at."""
    vitals = app.vitals
    database, files, machine, confinement = await asyncio.gather(
        vitals.database(), vitals.files(), _machine(app), _confinement(app.spawner)
    )
    isolation, enforcement = confinement or (None, None)
    works = database == "ok" and files in (None, "ok") and vitals.worker_alive
    useful = works and (machine == "ok" or not app.role.executes)
    degraded = "degraded" if vitals.lagging or vitals.stuck else "ok"
    return wire.Health(
        status=degraded if useful else "failing",
        version=__version__,
        database=database,
        files=files,
        machine=machine,
        disk_free_bytes=_free_bytes(app),
        slots=_slots(app),
        workers=None if app.fleet is None else len(app.fleet.working),
        oldest_queued_sec=vitals.oldest_queued_sec,
        loop_lag_sec=round(vitals.loop_lag_sec, 3),
        stuck=tuple(vitals.stuck),
        sandbox="unknown" if isolation is None else isolation.level,
        telegram=None if app.telegram is None else app.telegram.state,
        limits=wire.Limits() if enforcement is None else _limits(enforcement),
        isolation=_isolation(app, isolation),
    )


def _limits(enforcement: Enforcement) -> wire.Limits:
    return wire.Limits(**{name: tuple(means) for name, means in enforcement.means.items()})


def _isolation(app: App, known: Isolation | None) -> wire.Isolation:
    hidden = known is not None and known.hides_files
    without = _UNKNOWN_ISOLATION if known is None else NO_SANDBOX
    return wire.Isolation(
        files="run" if hidden else "user",
        shares_folders=bool(known.shared if known is not None else app.settings.sandbox_share),
        network=min(networks(app.settings).values(), key=tuple(Network).index),
        message="" if hidden else without,
    )


async def _confinement(spawner: Spawner) -> tuple[Isolation, Enforcement] | None:
    """None if it could not be tested in time. A test that has begun is not given up: its result is for the next caller."""
    test = asyncio.create_task(_tested(spawner))
    await asyncio.wait({test}, timeout=_ANSWER_SEC)
    return test.result() if test.done() else None


async def _tested(spawner: Spawner) -> tuple[Isolation, Enforcement] | None:
    try:
        return await spawner.isolation(), await spawner.enforcement()
    except NotStarted:
        # For example, no program is started without a lease.
        return None


def _slots(app: App) -> wire.Slots:
    if app.fleet is None or app.role.executes:
        return wire.Slots(total=app.slots.total, taken=app.slots.taken)
    return wire.Slots(total=app.fleet.total_slots, taken=app.fleet.taken_slots)


async def workers(app: App) -> Sequence[wire.Worker]:
    """The programs that execute runs. Embedded, that is this server."""
    if is_shared(app.settings):
        return [shown(each) for each in await read_workers(app.programs)]
    return [await _own(app)] if app.role.serves else []


async def _own(app: App) -> wire.Worker:
    facts, engines = app.programs.facts, await app.service.engines.reports()
    offer = Offer(
        slots=app.slots.total,
        taken=app.slots.taken,
        engines={
            each.engine.name: EngineOffer(
                path=each.installed.path,
                probe=each.installed.probe,
                signed_in=each.installed.signed_in,
                slots=app.slots.limit(each.engine.name),
                taken=app.slots.taken_by(each.engine.name),
            )
            for each in engines
            if each.installed is not None
        },
        draining=app.worker.draining,
        problem=app.worker.problem or "",
    )
    (program,) = await app.programs.living()
    return shown(worker_of(replace(program, facts=replace(facts, offer=offer.document))))


async def readiness(app: App) -> wire.Readiness:
    """Whether it should get work now: requests for a server, turns for a worker.

    All servers share the file store. Without it they still serve most requests, so none of them is unready for that.
    """
    database, machine, files = await asyncio.gather(app.vitals.database(), _machine(app), app.vitals.files())
    stored = files or "ok"
    if app.fitness.problem is RefusalCode.FILES_UNAVAILABLE:
        # The turns may have noticed it first.
        stored = RefusalCode.FILES_UNAVAILABLE
    draining = app.worker.draining
    return wire.Readiness(
        ready=database == machine == "ok" and not draining and (stored == "ok" or app.role.serves),
        database=database,
        files=stored if machine == "ok" else machine,
        machine=machine,
        draining=draining,
    )


async def _machine(app: App) -> str:
    look = asyncio.create_task(app.fitness.look())
    await asyncio.wait({look}, timeout=_ANSWER_SEC)
    # A folder that hangs is reported when the look has given it up.
    problem = look.result() if look.done() else app.fitness.problem
    # That is no problem of this machine.
    return "ok" if problem in (None, RefusalCode.FILES_UNAVAILABLE) else problem


def _free_bytes(app: App) -> int:
    try:
        return shutil.disk_usage(app.settings.data_dir).free
    except OSError:
        return 0


def make_metrics(app: App, streams: Streams | None = None) -> Metrics:
    exporter, fleet = app.exporter, app.fleet
    metrics = Metrics(
        Gauges(
            slots_total=app.slots.total if app.role.executes else 0,
            slots_taken=lambda: app.slots.taken,
            workers=lambda: 1 if fleet is None else len(fleet.working),
            streams=lambda: 0 if streams is None else streams.count,
            loop_lag_sec=lambda: app.vitals.loop_lag_sec,
            warm_processes=lambda: app.warm.count,
            warm_bytes=lambda: app.warm.memory_bytes,
            warm_replies=lambda: {"hit": app.warm.hits, "miss": app.warm.misses},
            prewarmed_processes=lambda: app.prewarming.count,
            prewarmed_starts=lambda: {"hit": app.prewarming.hits, "miss": app.prewarming.misses},
            warm_drops=lambda: {reason: app.warm.drops[reason] for reason in DropReason},
            spans=lambda: {} if exporter is None else exporter.counts,
        ),
        run_labels=app.settings.telemetry.metric_labels,
    )
    if streams is not None:
        streams.measure_lag = metrics.event_lag.observe
    app.observer.measure_commit = metrics.commit.observe
    app.observer.add(metrics.observe)
    return metrics


async def send_metrics(app: App, metrics: Metrics) -> None:
    """Send the metrics to the collector again and again, and once more at the end."""
    exporter = app.exporter
    assert exporter is not None
    try:
        while True:
            await asyncio.sleep(app.settings.telemetry.metrics_sec)
            if app.role.serves:
                await metrics.refresh(app.store)
            exporter.send_metrics(tuple(metrics.registry.collect()))
    finally:
        exporter.send_metrics(tuple(metrics.registry.collect()))
