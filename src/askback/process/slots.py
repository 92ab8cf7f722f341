"""Slots: how many engine processes may exist at once, in all and for each engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class Slots:
    def __init__(self, total: int, per_engine: Mapping[str, int]) -> None:
        self.total = total
        self._per_engine = dict(per_engine)
        self._taken: Counter[str] = Counter()
        self.absent: frozenset[str] = frozenset()
        """Engines of which this program starts no process at all."""

    @property
    def free(self) -> int:
        return self.total - self._taken.total()

    def full_engines(self) -> frozenset[str]:
        """Engines that may have no further process even if slots are free."""
        full = (name for name, limit in self._per_engine.items() if self._taken[name] >= limit)
        return self.absent.union(full)

    def limit(self, engine: str) -> int | None:
        """How many processes of the engine may exist at once, if it has a limit of its own."""
        return self._per_engine.get(engine)

    def taken_by(self, engine: str) -> int:
        return self._taken[engine]

    @property
    def taken(self) -> int:
        return self._taken.total()

    def reason(self, engine: str) -> str:
        """Why a queued run of this engine does not run yet: no free slot, none for the engine, or it is about to start."""
        if self.free <= 0:
            return "slots"
        return "engine_slots" if engine in self.full_engines() else "starting"

    def take(self, engine: str) -> bool:
        if self.free <= 0 or engine in self.full_engines():
            return False
        self._taken[engine] += 1
        return True

    def release(self, engine: str) -> None:
        self._taken[engine] -= 1
