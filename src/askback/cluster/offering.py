"""What this program offers to others: the engines that it has, and its slots. Watches for engines that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from askback.core.errors import Unavailable
from askback.engines.registry import Engines
from askback.installed.fleet import EngineOffer, Offer
from askback.installed.probes import EngineSetup, Installed, Probes
from askback.process.slots import Slots
from askback.text.outages import OUTAGES

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
            group.create_task(self._watch())
            group.create_task(self._tell())

    async def _tell(self) -> None:
        while True:
            self._publish(self.current)
            await asyncio.sleep(_TELL_SEC)

    async def _watch(self) -> None:
        while True:
            for name in sorted(self._slots.only or ()):
                await self._probe(name)
            await asyncio.sleep(_LOOK_SEC)
            before = self._slots.only
            try:
                await asyncio.to_thread(self._look)
            except OSError as error:
                OUTAGES.failed(log, "the installed engines cannot be looked for", error)
            if self._slots.only != before:
                log.info(
                    "turns of these engines are executed from now on: %s", ", ".join(sorted(self._slots.only or ()))
                )
                self._changed()

    async def _probe(self, name: str) -> None:
        try:
            found = await self._probes.find(self._engines[name], self._setups[name])
        except (Unavailable, OSError) as error:
            # The machine may be short of files or processes for a moment.
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
