"""Following all runs: each one as it is created and whenever its state has changed, from now on.

The store's news are taken once for all followers, and by nobody while there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Hashable, Sequence

from askback.core.errors import NotFound
from askback.core.runs import Run
from askback.store.base import UNKNOWN_RUN, Changes, Store

MOST_UNTOLD = 1000
"""Of a follower that is further behind than this many runs, nothing is kept: its stream ends."""
_PATIENCE_SEC = 0.5
"""Another program tells also of a run that has only said something, and never what became of it: those are not read
each time."""
_MOST_KNOWN = 10_000


class Movements:
    """Who follows, and each run as it was known last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followers: set[_Follower] = set()
        self._known: dict[str, tuple[int, Hashable]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def follow(self) -> AsyncGenerator[Sequence[Run]]:
        """First nothing: from then on no movement is missed. Who is slow gets only the latest of a run's movements.

        Ends where it is not known any more which runs have moved: whoever shows runs then reads them anew.
        """
        follower = self._join()
        try:
            yield ()
            while runs := await follower.take():
                yield runs
        finally:
            self._leave(follower)

    def _join(self) -> _Follower:
        follower = _Follower()
        self._followers.add(follower)
        if self._reading is None or self._reading.done():
            # Listening begins here, not when the task gets its turn, which it may never get.
            changes = self._store.changes()
            self._reading = asyncio.get_running_loop().create_task(self._read(changes))
            self._reading.add_done_callback(lambda _: changes.close())
            self._reading.add_done_callback(self._ended)
        return follower

    def _leave(self, follower: _Follower) -> None:
        self._followers.discard(follower)
        if not self._followers and self._reading is not None:
            self._reading.cancel()
            self._reading = None
            self._known.clear()

    async def _read(self, changes: Changes) -> None:
        while True:
            news = await changes.wait()
            if UNKNOWN_RUN in news:
                self._lose_all()
                continue
            self._tell([run for run in news.values() if run is not None])
            if elsewhere := [run_id for run_id, run in news.items() if run is None]:
                await asyncio.sleep(_PATIENCE_SEC)
                self._tell(await self._look_at(elsewhere))

    async def _look_at(self, run_ids: Collection[str]) -> Sequence[Run]:
        found: list[Run] = []
        for run_id in run_ids:
            try:
                found.append(await self._store.get(run_id))
            except NotFound:
                self._known.pop(run_id, None)
        return found

    def _tell(self, runs: Sequence[Run]) -> None:
        moved = [run for run in runs if self._is_news(run)]
        for follower in self._followers if moved else ():
            follower.tell(moved)

    def _is_news(self, run: Run) -> bool:
        version, movement = self._known.get(run.id, (-1, None))
        if run.version <= version:
            return False
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[run.id] = (run.version, _movement(run))
        return _movement(run) != movement

    def _lose_all(self) -> None:
        for follower in self._followers:
            follower.end()

    def _ended(self, reading: asyncio.Task[None]) -> None:
        """The store is closed, or cannot be read: nothing more will come."""
        if not reading.cancelled():
            reading.exception()
            self._lose_all()


class _Follower:
    """What is still to be told to one."""

    def __init__(self) -> None:
        self._untold: dict[str, Run] = {}
        self._over = False
        self._news = asyncio.Event()

    async def take(self) -> Sequence[Run]:
        """What has come since, once there is some; nothing when it is over."""
        await self._news.wait()
        self._news.clear()
        runs, self._untold = tuple(self._untold.values()), {}
        return () if self._over else runs

    def tell(self, runs: Sequence[Run]) -> None:
        self._untold |= {run.id: run for run in runs}
        if len(self._untold) > MOST_UNTOLD:
            self.end()
        self._news.set()

    def end(self) -> None:
        self._over = True
        self._untold = {}
        self._news.set()


def _movement(run: Run) -> Hashable:
    """Another one for each change of state, also where two are read together and the run is again what it was.

    To come back to a state it takes a new claim, or a new question.
    """
    return run.state, run.epoch, len(run.interaction_ids)
