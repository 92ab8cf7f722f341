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
        share: Callable[[int, Mapping[str, int]], Shares] = lambda total, engines: UNLIMITED,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """`share` divides the slots, and those of single engines, among tokens. `ready`: whether this machine can start processes at all."""
        self.total = total
        self.everywhere = total
        """The slots of all instances together, as far as it is known."""
        self._engines_everywhere: Mapping[str, int] = {}
        """How many of them an engine can have, as far as it is known."""
        self._share = share
        self._tokens: Counter[tuple[str | None, str]] = Counter()
        self._per_engine = dict(per_engine)
        self._taken: Counter[str] = Counter()
        self.only: frozenset[str] | None = None
        """The engines of which this instance starts processes; None: all."""
        self._ready = ready
        self.count_engines({})

    def count_engines(self, everywhere: Mapping[str, int]) -> None:
        """How many slots each engine can have in all instances together. What this one has counts in any case."""
        here = {name: min(self.total, limit) for name, limit in self._per_engine.items()}
        self._engines_everywhere = {
            name: max(here.get(name, 0), everywhere.get(name, 0)) for name in here.keys() | everywhere.keys()
        }

    @property
    def free(self) -> int:
        return self.total - self._taken.total()

    def full_engines(self) -> frozenset[str]:
        """Engines that may have no further process even if slots are free."""
        return frozenset(name for name, limit in self._per_engine.items() if self._taken[name] >= limit)

    def offers(self, engine: str) -> bool:
        """Whether this instance starts processes of the engine, now or when a slot is free."""
        return self.only is None or engine in self.only

    def limit(self, engine: str) -> int | None:
        """How many processes of the engine may exist at once, if it is limited separately."""
        return self._per_engine.get(engine)

    def taken_by(self, engine: str) -> int:
        return self._taken[engine]

    def held_by(self, token: str | None, engine: str | None = None) -> int:
        """The slots that the runs of a token have, in all or of one engine."""
        held = ((name, number) for (owner, name), number in self._tokens.items() if owner == token)
        return sum(number for name, number in held if engine is None or name == engine)

    def free_of(self, engine: str) -> int:
        """How many further processes of this engine this instance may start now."""
        if not self.offers(engine):
            return 0
        limit = self._per_engine.get(engine)
        return self.free if limit is None else min(self.free, limit - self._taken[engine])

    @property
    def taken(self) -> int:
        return self._taken.total()

    @property
    def shares(self) -> Shares:
        return self._share(self.everywhere, limited_engines(self.everywhere, self._engines_everywhere))

    def reason(self, engine: str, token: str | None = None) -> str:
        """Why a queued run of this engine does not run yet: the machine is not ready, its token has as many slots as it may
        have, there is no free slot, or none for the engine, or it is about to start."""
        if not self._ready():
            return "unready"
        if has_its_share(self.shares, token, engine, self.held_by(token), self.held_by(token, engine)):
            return "token_slots"
        if self.free <= 0:
            return "slots"
        return "engine_slots" if engine in self.full_engines() else "starting"

    def take(self, engine: str, token: str | None = None) -> bool:
        if self.free_of(engine) <= 0:
            return False
        self._taken[engine] += 1
        self._tokens[token, engine] += 1
        return True

    def release(self, engine: str, token: str | None = None) -> None:
        self._taken[engine] -= 1
        self._tokens[token, engine] -= 1
        self._tokens = +self._tokens


def limited_engines(total: int, engines: Mapping[str, int]) -> dict[str, int]:
    """The engines that cannot have all slots."""
    return {engine: slots for engine, slots in engines.items() if slots < total}


def has_its_share(shares: Shares, token: str | None, engine: str, held: int, held_of_engine: int) -> bool:
    """Whether a token has as many slots as it may have, in all or of this engine."""
    share, share_of_engine = shares.of(token), shares.of_engine(token, engine)
    return (share is not None and held >= share) or (share_of_engine is not None and held_of_engine >= share_of_engine)
