"""What this program offers to others: the engines that it has, and its slots. Watches for engines that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from askback.background.loops import keep_trying
from askback.background.outages import OUTAGES
from askback.catalog.probes import EngineSetup, Installed, Probes
from askback.cluster.fleet import REFRESH_SEC, EngineOffer, Offer
from askback.cluster.slots import Slots
from askback.core.errors import is_outage
from askback.engines.registry import Engines

log = logging.getLogger(__name__)

_LOOK_SEC = 5.0
_TELL_SEC = 0.5


class Offering:
    """`only`: the engines whose turns it executes, if not all that are installed."""

    def __init__(
        self,
        *,
        engines: Engines,
        setups: Mapping[str, EngineSetup],
        probes: Probes,
        slots: Slots,
        only: Collection[str],
        labels: Mapping[str, str],
        draining: Callable[[], bool],
        problem: Callable[[], str | None],
        publish: Callable[[Offer], None],
        count: Callable[[], Awaitable[int]],
        changed: Callable[[], None],
    ) -> None:
        self._engines = engines
        self._setups = setups
        self._probes = probes
        self._slots = slots
        self._only = frozenset(only)
        self._labels = dict(labels)
        self._draining = draining
        self._problem = problem
        self._publish = publish
        self._count = count
        """The slots of all programs that start turns."""
        self._changed = changed
        """Called when it has other engines than before."""
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
            group.create_task(self._tell())
            group.create_task(keep_trying(self._count_slots, log, "the slots of other programs cannot be counted"))

    async def _tell(self) -> None:
        while True:
            self._publish(self.current)
            await asyncio.sleep(_TELL_SEC)

    async def _count_slots(self) -> None:
        self._slots.everywhere = max(self._slots.total, await self._count())
        await asyncio.sleep(REFRESH_SEC)

    async def _watch(self) -> None:
        for name in sorted(self._slots.only or ()):
            await self._probe(name)
        await asyncio.sleep(_LOOK_SEC)
        before = self._slots.only
        await asyncio.to_thread(self._look)
        if self._slots.only != before:
            log.info("turns of these engines are executed from now on: %s", ", ".join(sorted(self._slots.only or ())))
            self._changed()

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

    @property
    def current(self) -> Offer:
        return Offer(
            slots=self._slots.total,
            taken=self._slots.taken,
            engines={name: self._engine(name, found) for name, found in sorted(self._found.items())},
            labels=self._labels,
            draining=self._draining(),
            problem=self._problem() or "",
        )

    def _engine(self, name: str, found: Installed) -> EngineOffer:
        return EngineOffer(
            path=found.path,
            probe=found.probe,
            signed_in=found.signed_in,
            slots=self._slots.limit(name),
            taken=self._slots.taken_by(name),
        )
