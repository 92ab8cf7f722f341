"""Following all runs: every run that is created or changes its state, from now on.

One listener serves all followers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Hashable, Sequence

from askback.core.errors import AskbackError, NotFound
from askback.core.runs import Run
from askback.runs.following.shared_reader import SharedReader
from askback.store.base import UNKNOWN_RUN, Changes, RunStore

MAX_UNSENT = 1000
"""A follower with more unsent runs than this is too slow: its stream ends."""
_ELSEWHERE_SEC = 0.5
"""Changes by other processes are read with this delay: most of them only added events."""
_MAX_KNOWN = 10_000


class RunChanges:
    """The followers, and the last known state of each run."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._followers: set[_Follower] = set()
        self._known: dict[str, tuple[int, Hashable]] = {}
        self._reader = SharedReader(store.changes, self._read)

    async def follow(self) -> AsyncGenerator[Sequence[Run]]:
        """Yield changed runs in batches. A slow follower gets only the latest version of a run.

        The first batch is empty; no change after it is missed. Ends when it is unknown which runs have changed: the
        follower must then read the runs again.
        """
        follower = _Follower()
        self._followers.add(follower)
        try:
            with self._reader.followed() as news:
                yield ()
                while not follower.ended:
                    if follower.unsent:
                        yield follower.take()
                    else:
                        await news()
        except AskbackError:
            return  # the store is closed or cannot be read
        finally:
            self._followers.discard(follower)
            if not self._followers:
                self._known.clear()

    async def _read(self, changes: Changes) -> None:
        while True:
            changed = await changes.wait()
            if UNKNOWN_RUN in changed:
                for follower in self._followers:
                    follower.ended = True
                self._reader.wake()
                continue
            self._send([run for run in changed.values() if run is not None])
            if elsewhere := [run_id for run_id, run in changed.items() if run is None]:
                await asyncio.sleep(_ELSEWHERE_SEC)
                self._send(await self._look_up(elsewhere))

    async def _look_up(self, run_ids: Collection[str]) -> Sequence[Run]:
        found: list[Run] = []
        for run_id in run_ids:
            try:
                found.append(await self._store.get(run_id))
            except NotFound:
                self._known.pop(run_id, None)
        return found

    def _send(self, runs: Sequence[Run]) -> None:
        if changed := [run for run in runs if self._is_new(run)]:
            for follower in self._followers:
                follower.add(changed)
            self._reader.wake()

    def _is_new(self, run: Run) -> bool:
        version, state = self._known.get(run.id, (-1, None))
        if run.version <= version:
            return False
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[run.id] = (run.version, _state(run))
        return _state(run) != state


class _Follower:
    """The runs that one follower has not received yet."""

    def __init__(self) -> None:
        self.unsent: dict[str, Run] = {}
        self.ended = False

    def take(self) -> Sequence[Run]:
        runs, self.unsent = tuple(self.unsent.values()), {}
        return runs

    def add(self, runs: Sequence[Run]) -> None:
        self.unsent |= {run.id: run for run in runs}
        if len(self.unsent) > MAX_UNSENT:
            self.ended = True
            self.unsent = {}


def _state(run: Run) -> Hashable:
    """A value that differs after every change of state, even if the run has returned to an earlier state.

    To return to a state, a run needs a new claim or a new question.
    """
    return run.state, run.epoch, len(run.interaction_ids)
