"""Slots: how many engine processes may exist at once, in all and for each engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from askback.core.queue import UNLIMITED, Shares


class Slots:
    def __init__(
        self,
        total: int,
        per_engine: Mapping[str, int],
        share: Callable[[int], Shares] = lambda total: UNLIMITED,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """`share` divides a number of slots among tokens. `ready`: whether this machine can start processes at all."""
        self.total = total
        self.everywhere = total
        """The slots of all programs together, as far as it is known."""
        self._share = share
        self._tokens: Counter[str | None] = Counter()
        self._per_engine = dict(per_engine)
        self._taken: Counter[str] = Counter()
        self.only: frozenset[str] | None = None
        """The engines of which this program starts processes; None: all."""
        self._ready = ready

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

    def held_by(self, token: str | None) -> int:
        return self._tokens[token]

    def free_of(self, engine: str) -> int:
        """How many further processes of this engine this program may start now."""
        if not self.offers(engine):
            return 0
        limit = self._per_engine.get(engine)
        return self.free if limit is None else min(self.free, limit - self._taken[engine])

    @property
    def taken(self) -> int:
        return self._taken.total()

    @property
    def shares(self) -> Shares:
        return self._share(self.everywhere)

    def reason(self, engine: str, token: str | None = None) -> str:
        """Why a queued run of this engine does not run yet: the machine is not ready, its token has as many slots as it may
        have, there is no free slot, or none for the engine, or it is about to start."""
        if not self._ready():
            return "unready"
        share = self.shares.of(token)
        if share is not None and self.held_by(token) >= share:
            return "token_slots"
        if self.free <= 0:
            return "slots"
        return "engine_slots" if engine in self.full_engines() else "starting"

    def take(self, engine: str, token: str | None = None) -> bool:
        if self.free_of(engine) <= 0:
            return False
        self._taken[engine] += 1
        self._tokens[token] += 1
        return True

    def release(self, engine: str, token: str | None = None) -> None:
        self._taken[engine] -= 1
        self._tokens[token] -= 1
