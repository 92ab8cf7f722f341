"""What this instance offers to others: the engines that it has, and its slots. Watches for engines that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from askback.background.loops import keep_trying
from askback.background.outages import OUTAGES
from askback.catalog.probes import EngineSetup, Installed, Probes
from askback.cluster.fleet import REFRESH_SEC, EngineOffer, Offer, WorkerState, engine_slots, read_workers
from askback.cluster.instances import Instances
from askback.cluster.slots import Slots
from askback.core.errors import is_outage
from askback.engines.registry import Engines

log = logging.getLogger(__name__)

_LOOK_SEC = 5.0
_PUBLISH_SEC = 0.5


class Offering:
    """`only`: the engines whose turns it executes, if not all that are installed."""

    def __init__(
        self,
        *,
        instances: Instances,
        engines: Engines,
        setups: Mapping[str, EngineSetup],
        probes: Probes,
        slots: Slots,
        only: Collection[str],
        labels: Mapping[str, str],
        draining: Callable[[], bool],
        problem: Callable[[], str | None],
        engines_changed: Callable[[], None],
    ) -> None:
        self._instances = instances
        self._engines = engines
        self._setups = setups
        self._probes = probes
        self._slots = slots
        self._only = frozenset(only)
        self._labels = dict(labels)
        self._draining = draining
        self._problem = problem
        self._engines_changed = engines_changed
        self._found: dict[str, Installed] = {}
        self._look()

    def _look(self) -> None:
        """Find the engines that are here, without asking their programs."""
        here = {name for name, engine in self._engines.items() if self._probes.has(engine, self._setups[name])}
        offered = here & self._only if self._only else here
        self._slots.only = frozenset(offered)
        self._found = {name: found for name, found in self._found.items() if name in offered}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_trying(self._watch, log, "the installed engines cannot be looked for"))
            group.create_task(self._publish())
            group.create_task(keep_trying(self._count_slots, log, "the slots of other programs cannot be counted"))

    async def _publish(self) -> None:
        while True:
            offer = make_offer(
                self._slots,
                self._found,
                labels=self._labels,
                draining=self._draining(),
                problem=self._problem(),
            )
            self._instances.update(replace(self._instances.facts, offer=offer.document))
            await asyncio.sleep(_PUBLISH_SEC)

    async def _count_slots(self) -> None:
        """The slots of all instances that start turns are shared among tokens."""
        workers = await read_workers(self._instances)
        offers = [each.offer for each in workers if each.state is WorkerState.ALIVE]
        self._slots.everywhere = max(self._slots.total, sum(each.slots for each in offers))
        self._slots.count_engines(engine_slots(offers))
        await asyncio.sleep(REFRESH_SEC)

    async def _watch(self) -> None:
        for name in sorted(self._slots.only or ()):
            await self._probe(name)
        await asyncio.sleep(_LOOK_SEC)
        before = self._slots.only
        await asyncio.to_thread(self._look)
        if self._slots.only != before:
            log.info("turns of these engines are executed from now on: %s", ", ".join(sorted(self._slots.only or ())))
            self._engines_changed()

    async def _probe(self, name: str) -> None:
        try:
            found = await self._probes.find(self._engines[name], self._setups[name])
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
