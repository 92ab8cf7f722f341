"""Slots: how many engine processes may exist at once, in all and for each engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class Slots:
    def __init__(self, total: int, per_engine: Mapping[str, int]) -> None:
        self.total = total
        self._per_engine = dict(per_engine)
        self._taken: Counter[str] = Counter()
        self.only: frozenset[str] | None = None
        """The engines of which this program starts processes; None: all."""
        self.ready = True
        """Whether this machine can start processes at all."""

    @property
    def free(self) -> int:
        return self.total - self._taken.total()

    def full_engines(self) -> frozenset[str]:
        """Engines that may have no further process even if slots are free."""
        return frozenset(name for name, limit in self._per_engine.items() if self._taken[name] >= limit)

    def offers(self, engine: str) -> bool:
        """Whether this program starts processes of the engine, now or when a slot is free."""
        return self.only is None or engine in self.only

    def limit(self, engine: str) -> int | None:
        """How many processes of the engine may exist at once, if it is limited separately."""
        return self._per_engine.get(engine)

    def taken_by(self, engine: str) -> int:
        return self._taken[engine]

    def free_of(self, engine: str) -> int:
        """How many further processes of this engine this program may start now."""
        if not self.offers(engine):
            return 0
        limit = self._per_engine.get(engine)
        return self.free if limit is None else min(self.free, limit - self._taken[engine])

    @property
    def taken(self) -> int:
        return self._taken.total()

    def reason(self, engine: str) -> str:
        """Why a queued run of this engine does not run yet: the machine is not ready, there is no free slot, or none for the
        engine, or it is about to start."""
        if not self.ready:
            return "unready"
        if self.free <= 0:
            return "slots"
        return "engine_slots" if engine in self.full_engines() else "starting"

    def take(self, engine: str) -> bool:
        if self.free_of(engine) <= 0:
            return False
        self._taken[engine] += 1
        return True

    def release(self, engine: str) -> None:
        self._taken[engine] -= 1
