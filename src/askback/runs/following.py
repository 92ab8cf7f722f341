"""Following all runs, and waiting for a change of one: one background task reads for everyone, while there is anyone.

`inbox` and `run_events` use the same `SharedReader` for the inbox and for the events of one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from askback.core.errors import AskbackError, NotFound
from askback.core.runs import Run
from askback.store.listeners import Changes
from askback.store.pages import UNKNOWN_RUN
from askback.store.visible import RunStore


class Listener(Protocol):
    """The source that the task listens to: the changes of the store, or the events of one run."""

    def close(self) -> None: ...


L = TypeVar("L", bound=Listener)
News = Callable[[], Awaitable[None]]
"""Waits until the reader has something new. If the reader failed, raises its error."""


class SharedReader(Generic[L]):
    def __init__(self, listen: Callable[[], L], read: Callable[[L], Coroutine[Any, Any, None]]) -> None:
        """`read` calls `wake` whenever there is something new for the followers."""
        self._listen = listen
        self._read = read
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.followers = 0

    @contextmanager
    def followed(self) -> Iterator[News]:
        """Count one more follower during this block, and start the task if needed."""
        self.followers += 1
        task = self._running()

        async def news() -> None:
            if not task.done():
                await self._news.wait()
            if task.done():
                task.result()

        try:
            yield news
        finally:
            self.followers -= 1
            if not self.followers and self._task is not None:
                self._task.cancel()
                self._task = None

    @property
    def ended(self) -> bool:
        """Whether the task has ended, which it does only by an error while there are followers."""
        return self._task is None or self._task.done()

    def wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _running(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            # Listen immediately, so that no change before the task's first step is missed.
            listener = self._listen()
            self._task = asyncio.get_running_loop().create_task(self._read(listener))
            self._task.add_done_callback(lambda task: self._ended(task, listener))
        return self._task

    def _ended(self, task: asyncio.Task[None], listener: L) -> None:
        listener.close()
        if not task.cancelled():
            task.exception()  # followers raise it; without followers, asyncio must not warn that it was never retrieved
        self.wake()


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


@dataclass(slots=True, eq=False)
class _Waiter:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    run: Run | None = None
    """The new version, if this process made the change."""


class RunVersions:
    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._waiters: dict[str, set[_Waiter]] = {}
        self._reader = SharedReader(store.changes, self._read)

    async def wait(self, run_id: str, until: Callable[[Run], bool]) -> Run:
        """The first version of the run that satisfies `until`, which every final run must."""
        waiter = _Waiter()
        self._waiters.setdefault(run_id, set()).add(waiter)
        try:
            with self._reader.followed() as news:
                run = await self._store.get(run_id)
                while not until(run):
                    if self._reader.ended:
                        await news()
                    await waiter.woken.wait()
                    waiter.woken.clear()
                    known, waiter.run = waiter.run, None
                    run = known or await self._store.get(run_id)
                return run
        finally:
            waiters = self._waiters[run_id]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[run_id]

    async def _read(self, changes: Changes) -> None:
        try:
            while True:
                changed = await changes.wait()
                known = self._waiters if UNKNOWN_RUN in changed else self._waiters.keys() & changed.keys()
                for run_id in list(known):
                    self._wake(run_id, changed.get(run_id))
        finally:
            for run_id in list(self._waiters):
                self._wake(run_id, None)

    def _wake(self, run_id: str, run: Run | None) -> None:
        for waiter in self._waiters[run_id]:
            waiter.run = run
            waiter.woken.set()
