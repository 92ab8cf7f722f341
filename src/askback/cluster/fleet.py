"""The instances that execute runs, on all machines of one database: what each offers, and what all of them offer together.

Every instance keeps what it offers in its row. A server reads the rows every few seconds, so what it knows is that old.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from askback.background.loops import keep_trying
from askback.catalog.probes import Installed
from askback.cluster.instances import Instances
from askback.cluster.slots import Slots, has_its_share, limited_engines
from askback.core.instances import Instance, InstanceKind
from askback.core.queue import Shares
from askback.wire import server as wire

log = logging.getLogger(__name__)

_EXECUTE = (InstanceKind.SERVER, InstanceKind.WORKER)
REFRESH_SEC = 2.0
_SLOT_REASONS = ("starting", "engine_slots", "slots")
_REASONS = (*_SLOT_REASONS, "unready")
"""The most hopeful first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOffer(Installed):
    """An engine that an instance has. `slots`: how many of its processes may run there, if it is limited separately."""

    slots: int | None = None
    taken: int = 0

    @property
    def is_full(self) -> bool:
        return self.slots is not None and self.taken >= self.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What an instance says of itself in its row."""

    slots: int = 0
    taken: int = 0
    engines: Mapping[str, EngineOffer] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    draining: bool = False
    problem: str = ""
    """The code of the reason why it starts no turns for now, if there is one."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Offer:
        """From the document of a row. Other versions may have other fields; what cannot be read offers nothing."""
        try:
            return msgspec.convert(document, cls, strict=False)
        except (msgspec.ValidationError, ValueError):
            return cls()

    @property
    def document(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made

    @property
    def free(self) -> int:
        return self.slots - self.taken


class WorkerState(StrEnum):
    ALIVE = "alive"
    DRAINING = "draining"
    UNREADY = "unready"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetWorker:
    """An instance that executes runs, as its row shows it."""

    name: str
    kind: str
    host: str
    pid: int
    version: str
    started_at: datetime
    alive: bool
    offer: Offer

    @property
    def state(self) -> WorkerState:
        if not self.alive:
            return WorkerState.GONE
        if self.offer.draining:
            return WorkerState.DRAINING
        return WorkerState.UNREADY if self.offer.problem else WorkerState.ALIVE


async def read_workers(instances: Instances) -> Sequence[FleetWorker]:
    """The instances that execute runs which belong to nobody in particular."""
    found = [worker_of(each) for each in await instances.known() if each.facts.kind in _EXECUTE]
    return [each for each in found if each.offer.slots]


def worker_of(instance: Instance) -> FleetWorker:
    facts = instance.facts
    return FleetWorker(
        name=instance.name,
        kind=facts.kind,
        host=facts.host,
        pid=facts.pid,
        version=facts.version,
        started_at=instance.started_at,
        alive=instance.alive,
        offer=Offer.read(facts.offer),
    )


def worker_view(worker: FleetWorker) -> wire.Worker:
    offer = worker.offer
    return wire.Worker(
        name=worker.name,
        kind=worker.kind,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        state=worker.state,
        labels=dict(offer.labels),
        slots=wire.Slots(total=offer.slots, taken=offer.taken),
        engines=tuple(
            wire.WorkerEngine(
                name=name,
                version=each.probe.version,
                interactive_profile=each.probe.kind,
                signed_in=each.signed_in,
                slots=each.slots,
                taken=each.taken,
            )
            for name, each in sorted(offer.engines.items())
        ),
        started_at=worker.started_at.astimezone(UTC),
        problem=offer.problem or None,
    )


@dataclass
class Fleet:
    """What the instances that execute runs offer together."""

    read: Callable[[], Awaitable[Sequence[FleetWorker]]]
    """The rows of these instances."""
    own: Callable[[], str]
    """The name of this instance."""
    slots: Slots | None
    """Of this instance, if it executes runs: newer than what its row has."""
    held: Callable[[], Awaitable[Mapping[str, Mapping[str, int]]]]
    """Counts the slots that each token has of each engine."""
    share: Callable[[int, Mapping[str, int]], Shares]
    """Divides slots among tokens, as in `Slots`."""
    workers: tuple[FleetWorker, ...] = field(default=(), init=False)
    """As last read, the oldest first."""
    _held: Mapping[str, Mapping[str, int]] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        async def wait_and_refresh() -> None:
            await asyncio.sleep(REFRESH_SEC)
            await self.refresh()

        await keep_trying(wait_and_refresh, log, "the workers cannot be read")

    async def refresh(self) -> None:
        found = await self.read()
        self._held = await self.held()
        self.workers = tuple(sorted(found, key=lambda each: (each.started_at, each.name)))

    @property
    def working(self) -> list[FleetWorker]:
        """Those that start turns."""
        return [each for each in self.workers if each.state is WorkerState.ALIVE]

    @property
    def others(self) -> list[FleetWorker]:
        return [each for each in self.working if each.name != self.own()]

    @property
    def total_slots(self) -> int:
        return sum(each.offer.slots for each in self.working)

    @property
    def taken_slots(self) -> int:
        return sum(each.offer.taken for each in self.working)

    def having(self, engine: str) -> int:
        """How many instances start turns of this engine."""
        return sum(engine in each.offer.engines for each in self.working)

    def offers(self, engine: str) -> list[EngineOffer]:
        """Of the other instances that start turns."""
        return [found for each in self.others if (found := each.offer.engines.get(engine)) is not None]

    def last_offers(self, engine: str) -> list[EngineOffer]:
        """Of instances that are being stopped, are not ready or are gone, newest last: they may come back."""
        stopped = [each for each in self.workers if each.state is not WorkerState.ALIVE]
        return [found for each in stopped if (found := each.offer.engines.get(engine)) is not None]

    def reason(self, engine: str, token: str | None = None) -> str:
        """Why a queued run of this engine, created with this token, does not run yet."""
        reason = self._engine_reason(engine)
        if token is None or reason not in _SLOT_REASONS:
            return reason
        total, engines = self.total_slots, engine_slots(each.offer for each in self.working)
        shares, held = self.share(total, limited_engines(total, engines)), self._held.get(token, {})
        here, here_of_engine = (
            (0, 0) if self.slots is None else (self.slots.held_by(token), self.slots.held_by(token, engine))
        )
        in_all, of_engine = max(here, sum(held.values())), max(here_of_engine, held.get(engine, 0))
        return "token_slots" if has_its_share(shares, token, engine, in_all, of_engine) else reason

    def _engine_reason(self, engine: str) -> str:
        reasons = {
            "slots" if offer.free <= 0 else "engine_slots" if offer.engines[engine].is_full else "starting"
            for offer in (each.offer for each in self.others)
            if engine in offer.engines
        }
        if self.slots is not None and self.slots.offers(engine):
            reasons.add(self.slots.reason(engine))
        if any(engine in each.offer.engines for each in self.workers if each.state is WorkerState.UNREADY):
            reasons.add("unready")
        return next((each for each in _REASONS if each in reasons), "no_worker")


def engine_slots(offers: Iterable[Offer]) -> dict[str, int]:
    """How many slots each engine can have in these instances together."""
    found: Counter[str] = Counter()
    for offer in offers:
        for name, engine in offer.engines.items():
            found[name] += offer.slots if engine.slots is None else min(offer.slots, engine.slots)
    return dict(found)
