"""Which engines runs can have: what this instance offers to others, and what all instances together offer.

`Offering` publishes the engines of this machine and its slots, and watches for engines that come and go. `FleetEngines` reads
what the workers offer, for a server that leaves runs to others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from askback.background.loops import keep_trying
from askback.background.outages import OUTAGES
from askback.catalog.probes import EngineSetup, EngineSource, Installed, Probes
from askback.cluster.fleet import REFRESH_SEC, EngineOffer, Fleet, Offer, WorkerState, engine_slots, read_workers
from askback.cluster.instances import Instances
from askback.cluster.slots import Slots
from askback.core.errors import is_outage
from askback.core.runs import ProfileKind
from askback.engines.base import Engine, Probe
from askback.engines.registry import Engines

log = logging.getLogger(__name__)

_LOOK_SEC = 5.0
_PUBLISH_SEC = 0.5
_ASSUMED = "no worker has the engine at the moment; assumed"


@dataclass(kw_only=True)
class Offering:
    instances: Instances
    engines: Engines
    setups: Mapping[str, EngineSetup]
    probes: Probes
    slots: Slots
    only: Collection[str]
    """The engines whose turns it executes, if not all that are installed."""
    labels: Mapping[str, str]
    draining: Callable[[], bool]
    problem: Callable[[], str | None]
    engines_changed: Callable[[], None]
    _found: dict[str, Installed] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._look()

    def _look(self) -> None:
        """Find the engines that are here, without asking their programs."""
        here = {name for name, engine in self.engines.items() if self.probes.has(engine, self.setups[name])}
        offered = here & frozenset(self.only) if self.only else here
        self.slots.only = frozenset(offered)
        self._found = {name: found for name, found in self._found.items() if name in offered}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_trying(self._watch, log, "the installed engines cannot be looked for"))
            group.create_task(self._publish())
            group.create_task(keep_trying(self._count_slots, log, "the slots of other programs cannot be counted"))

    async def _publish(self) -> None:
        while True:
            offer = make_offer(
                self.slots,
                self._found,
                labels=self.labels,
                draining=self.draining(),
                problem=self.problem(),
            )
            self.instances.update(replace(self.instances.facts, offer=offer.document))
            await asyncio.sleep(_PUBLISH_SEC)

    async def _count_slots(self) -> None:
        """The slots of all instances that start turns are shared among tokens."""
        workers = await read_workers(self.instances)
        offers = [each.offer for each in workers if each.state is WorkerState.ALIVE]
        self.slots.everywhere = max(self.slots.total, sum(each.slots for each in offers))
        self.slots.count_engines(engine_slots(offers))
        await asyncio.sleep(REFRESH_SEC)

    async def _watch(self) -> None:
        for name in sorted(self.slots.only or ()):
            await self._probe(name)
        await asyncio.sleep(_LOOK_SEC)
        before = self.slots.only
        await asyncio.to_thread(self._look)
        if self.slots.only != before:
            log.info("turns of these engines are executed from now on: %s", ", ".join(sorted(self.slots.only or ())))
            self.engines_changed()

    async def _probe(self, name: str) -> None:
        try:
            found = await self.probes.find(self.engines[name], self.setups[name])
        except Exception as error:
            # The machine may be short of files or processes for a moment.
            if not is_outage(error):
                raise
            OUTAGES.failed(log, f"{name} cannot be asked for its version", error)
            return
        if found is not None:
            self._found[name] = found


def make_offer(
    slots: Slots,
    installed: Mapping[str, Installed],
    *,
    labels: Mapping[str, str],
    draining: bool,
    problem: str | None,
) -> Offer:
    return Offer(
        slots=slots.total,
        taken=slots.taken,
        engines={
            name: EngineOffer(
                path=found.path,
                probe=found.probe,
                signed_in=found.signed_in,
                slots=slots.limit(name),
                taken=slots.taken_by(name),
            )
            for name, found in sorted(installed.items())
        },
        labels=labels,
        draining=draining,
        problem=problem or "",
    )


class FleetEngines(EngineSource):
    """`here`: the engines of this machine, if this instance executes runs."""

    def __init__(self, fleet: Fleet, here: Probes | None) -> None:
        self._fleet = fleet
        self._executes = here is not None
        self._here = here or EngineSource()

    async def find(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        """The capabilities that the engine has on every worker that has it."""
        own = await self.here(engine, setup)
        return weakest([*([] if own is None else [own]), *self._fleet.offers(engine.name)])

    async def here(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        return await self._here.find(engine, setup)

    async def expected(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        """As `find`; if no worker has the engine now, as the last one had it.

        A server without a worker expects any engine that it knows: its worker may not have been started yet.
        """
        found = await self.find(engine, setup)
        if found is not None:
            return found
        gone = weakest(self._fleet.last_offers(engine.name))
        return gone if gone is not None or self._executes else _assumed(engine)

    def has(self, engine: Engine, setup: EngineSetup) -> bool:
        return bool(self._fleet.offers(engine.name)) or self._here.has(engine, setup)

    def signed_in(self, engine: Engine, setup: EngineSetup) -> bool | None:
        """Whether it is signed in wherever it is: a run may get any of them."""
        known = [each.signed_in for each in self._fleet.offers(engine.name)]
        if self._here.has(engine, setup):
            known.append(self._here.signed_in(engine, setup))
        return _all_signed_in(known) if known else False

    def workers(self, engine: Engine) -> int | None:
        return self._fleet.having(engine.name)

    def any_worker(self) -> bool:
        return self._executes or bool(self._fleet.working)

    def watch(self, listener: Callable[[str], None]) -> None:
        self._here.watch(listener)

    def forget(self) -> None:
        self._here.forget()


def weakest(found: Sequence[Installed]) -> Installed | None:
    """What all of them can do: a run may get any of them."""
    if not found:
        return None
    probes = [each.probe for each in found]
    least = min(found, key=lambda each: (each.probe.kind is ProfileKind.RESUMABLE, each.probe.resident))
    efforts = set(least.probe.effort).intersection(*(each.effort for each in probes))
    features = set(least.probe.features).intersection(*(each.features for each in probes))
    return Installed(
        path=least.path,
        probe=replace(
            least.probe,
            features=tuple(each for each in least.probe.features if each in features),
            resident=all(each.resident for each in probes),
            effort=tuple(each for each in least.probe.effort if each in efforts),
        ),
        signed_in=_all_signed_in([each.signed_in for each in found]),
    )


def _all_signed_in(known: Sequence[bool | None]) -> bool | None:
    return next((each for each in (False, None) if each in known), True)


def _assumed(engine: Engine) -> Installed:
    resumable = ProfileKind.RESUMABLE in engine.profiles
    probe = Probe(
        kind=ProfileKind.RESUMABLE if resumable else ProfileKind.STICKY_PROCESS,
        reason=_ASSUMED,
        resident=ProfileKind.STICKY_PROCESS in engine.profiles,
        effort=tuple(sorted(engine.profiles)),
    )
    return Installed(path="", probe=probe, signed_in=None)
