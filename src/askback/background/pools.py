"""Threads for slow work: each kind of work has a small pool, so that no kind can use up the threads of another.

No caller can use up a pool either: callers take turns, and none has all threads or more places than it leaves free.

A job that calls its checkpoint ends early when its caller is gone or the instance stops. The threads are daemons: one that
is stuck in a system call cannot delay a stop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from askback.background.loops import first_of, start_thread
from askback.core.errors import RefusalCode, Unavailable

T = TypeVar("T")

Checkpoint = Callable[[], None]
"""Raises `Abandoned` once nobody waits for the job."""
STUCK_SEC = 120.0
"""A pool is stuck if every thread has been busy with a single job for this long while other jobs wait."""


Party = tuple[str, ...]
"""Who shares with others: a token, or all links that a token has created and then one of these. Empty: the server itself."""
PARTY: ContextVar[Party] = ContextVar("party", default=())
"""For whom the current task works."""


class Shares:
    """Places or bytes that parties share. A party gets more only while it would hold no more than is free for all others; a
    link holds at most `of_link`.
    """

    def __init__(self, total: int, *, of_link: int) -> None:
        self._free = total
        self._of_link = of_link
        self._held: Counter[Party] = Counter()

    def take(self, party: Party, amount: int = 1) -> bool:
        """Whether that much was free for this party."""
        whole = party[:1]
        if amount + (self._held[whole] if party else 0) > self._free:
            return False
        if party != whole and self._held[party] + amount > self._of_link:
            return False
        self._add(party, amount)
        return True

    def give_back(self, party: Party, amount: int = 1) -> None:
        self._add(party, -amount)

    def _add(self, party: Party, amount: int) -> None:
        self._free -= amount
        for each in {party, party[:1]}:
            self._held[each] += amount
            if not self._held[each]:
                del self._held[each]


class Abandoned(Exception):
    """The caller of this job is gone, or the instance is stopping."""


def unchecked() -> None:
    """A checkpoint for work that cannot be abandoned."""


@dataclass(slots=True, eq=False)
class _Job:
    work: Callable[[Checkpoint], Any]
    answer: asyncio.Future[Any]
    party: Party = ()
    abandoned: threading.Event = field(default_factory=threading.Event)
    began: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> bool:
        """Mark the job as started. False if it was abandoned before."""
        with self.lock:
            self.began = not self.abandoned.is_set()
            return self.began

    def abandon(self) -> bool:
        """Make its checkpoint raise. Returns whether a thread works on it."""
        with self.lock:
            self.abandoned.set()
            return self.began

    def checkpoint(self) -> None:
        if self.abandoned.is_set():
            raise Abandoned

    def settle(self, result: Any, error: BaseException | None) -> None:
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(result)


class Pool:
    """Runs up to `threads` jobs at a time. Up to `waiting` more wait; further ones are refused.

    Of one party, all threads but one have jobs at a time: a further job is passed on when one of these has ended, behind the
    jobs of others. A link shares the threads of all links of its token.
    """

    def __init__(self, name: str, *, threads: int, waiting: int) -> None:
        self.name = name
        self._max_threads = threads
        self._places = Shares(threads + waiting, of_link=max(1, waiting // 16))
        self._passed_on: Counter[Party] = Counter()
        self._held_back: dict[_Job, None] = {}
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._open: set[_Job] = set()
        self._began: dict[int, float] = {}
        self._threads = 0
        self._closed = False

    async def run(self, work: Callable[..., T], *args: Any, admitted: bool = False) -> T:
        """Run `work(*args)` in a thread. `admitted`: it is part of work that was already accepted."""
        return await self._run(lambda _: work(*args), admitted=admitted)

    async def run_abandonable(self, work: Callable[[Checkpoint], T]) -> T:
        """Like `run`. The work gets a checkpoint, which ends it when the caller is gone."""
        return await self._run(work, admitted=False)

    async def run_unless(self, over: Callable[[], Coroutine[Any, Any, Any]], work: Callable[[Checkpoint], T]) -> T:
        """Like `run_abandonable`, until `over` returns: then raises `Abandoned`, once no thread works on it."""

        async def wait(job: _Job) -> None:
            await first_of(over, lambda: asyncio.wait({job.answer}))
            if not job.answer.done() and not job.abandon():
                raise Abandoned

        return await self._run(work, admitted=False, before=wait)

    async def _run(
        self,
        work: Callable[[Checkpoint], T],
        *,
        admitted: bool,
        before: Callable[[_Job], Awaitable[None]] | None = None,
    ) -> T:
        party = PARTY.get()
        if self._closed or not (admitted or self._places.take(party)):
            raise Unavailable(RefusalCode.SERVER_BUSY, f"too much work is waiting ({self.name}); try again in a moment")
        job = _Job(work, asyncio.get_running_loop().create_future(), party[:1])
        try:
            self._pass_on(job)
            self._open.add(job)
            if before is not None:
                await before(job)
            result: T = await job.answer
        except Abandoned:
            if before is not None and not self._closed:
                raise
            raise Unavailable(RefusalCode.SERVER_BUSY, "the server is stopping; try again in a moment") from None
        finally:
            job.abandoned.set()
            # Nobody asks for the answer of a job that is abandoned.
            job.answer.cancel()
            self._open.discard(job)
            self._held_back.pop(job, None)
            if not admitted:
                self._places.give_back(party)
        return result

    def _pass_on(self, job: _Job) -> None:
        """Give the job to the threads, or hold it back if its party has its share of them."""
        if job.party and self._passed_on[job.party] >= max(1, self._max_threads - 1):
            self._held_back[job] = None
        else:
            if self._passed_on.total() >= self._threads:
                self._start_thread()
            self._passed_on[job.party] += 1
            self._jobs.put(job)

    def _finish(self, job: _Job, result: Any, error: BaseException | None) -> None:
        """A thread is free again. An abandoned job counts until then, or its party could take all threads one by one."""
        job.settle(result, error)
        self._passed_on[job.party] -= 1
        following = next((each for each in self._held_back if each.party == job.party), None)
        if following is not None:
            del self._held_back[following]
            self._pass_on(following)
        elif not self._passed_on[job.party]:
            del self._passed_on[job.party]

    def post(self, work: Callable[[], object]) -> None:
        """Run something without waiting for it, such as closing a file that a thread may still read."""
        job = _Job(lambda _: work(), asyncio.get_running_loop().create_future())
        self._passed_on[job.party] += 1
        self._jobs.put(job)
        # Without a thread, it is left to the next one that is started.
        with suppress(Unavailable):
            if self._threads == 0:
                self._start_thread()

    @property
    def is_stuck(self) -> bool:
        """Whether every thread has worked on one job for `STUCK_SEC` while others wait."""
        now, began = time.monotonic(), list(self._began.values())
        full = len(began) >= self._max_threads and len(self._open) > len(began)
        return full and all(now - at > STUCK_SEC for at in began)

    def close(self) -> None:
        """Refuse new work and abandon all jobs. Does not wait."""
        self._closed = True
        for job in self._open:
            job.abandoned.set()
        for job in self._held_back:
            self._jobs.put(job)
        self._held_back.clear()
        for _ in range(self._threads):
            self._jobs.put(None)

    def _start_thread(self) -> None:
        """Start one more thread, up to the limit. Raises `Unavailable` if there is none, and none can be started."""
        if self._threads >= self._max_threads:
            return
        try:
            start_thread(self._work, name=f"askback-{self.name}")
        except Unavailable:
            if self._threads == 0:
                raise
        else:
            self._threads += 1

    def _work(self) -> None:
        me = threading.get_ident()
        while (job := self._jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = Abandoned()
            if job.begin():
                self._began[me] = time.monotonic()
                try:
                    result, error = job.work(job.checkpoint), None
                except BaseException as fault:
                    error = fault
                del self._began[me]
            # The loop may be closed, with everyone who waits.
            with suppress(RuntimeError):
                job.answer.get_loop().call_soon_threadsafe(self._finish, job, result, error)
            del job, result, error


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """One pool for each kind of slow work."""

    parsing: Pool = field(default_factory=lambda: Pool("parsing", threads=2, waiting=64))
    """Large JSON bodies: decoding, checking, hashing."""
    zipping: Pool = field(default_factory=lambda: Pool("zipping", threads=3, waiting=64))
    files: Pool = field(default_factory=lambda: Pool("files", threads=4, waiting=256))
    """Artifacts and uploads."""
    previews: Pool = field(default_factory=lambda: Pool("previews", threads=1, waiting=128))
    """Rendering Markdown, and indenting JSON. More threads would only wait for the interpreter lock, and no download waits for this."""
    pages: Pool = field(default_factory=lambda: Pool("pages", threads=2, waiting=256))
    """Rendering templates."""
    copying: Pool = field(default_factory=lambda: Pool("copying", threads=3, waiting=64))
    """The files of one run for another."""
    skills: Pool = field(default_factory=lambda: Pool("skills", threads=3, waiting=128))
    """Reading, hashing and installing packages."""
    turns: Pool = field(default_factory=lambda: Pool("turns", threads=8, waiting=1_000_000))
    """Workspaces and new homes. The slots bound how much waits."""
    storing: Pool = field(default_factory=lambda: Pool("storing", threads=64, waiting=1_000_000))
    """What takes minutes for a turn with large files: its home is saved, its files are packed, the file store is waited for."""
    saving: Pool = field(default_factory=lambda: Pool("saving", threads=2, waiting=1_000_000))
    """Homes of waiting runs, in advance. No turn waits for this."""
    sweeping: Pool = field(default_factory=lambda: Pool("sweeping", threads=1, waiting=1_000))
    checking: Pool = field(default_factory=lambda: Pool("checking", threads=2, waiting=1_000))
    """Whether the folders of this machine can be used: that must not wait for work that uses them."""

    def __iter__(self) -> Iterator[Pool]:
        return (getattr(self, each.name) for each in fields(self))

    @property
    def stuck(self) -> list[str]:
        return [pool.name for pool in self if pool.is_stuck]

    def close(self) -> None:
        for pool in self:
            pool.close()
