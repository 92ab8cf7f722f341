"""Work in the background: how loops outlive an outage, and how threads are started.

An instance lasts longer than a database, a disk or a machine that is short of threads. No outage may end one of its loops.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar, cast

from askback.background.outages import OUTAGES
from askback.core.errors import is_outage, shortage

T = TypeVar("T")

LONGEST_PAUSE_SEC = 10.0


class Pauses:
    """The pauses between failed attempts: each is twice as long as the one before, up to a limit."""

    def __init__(self, longest_sec: float = LONGEST_PAUSE_SEC, *, first_sec: float = 1.0) -> None:
        self._longest_sec = longest_sec
        self._first_sec = self._next_sec = first_sec

    def next_sec(self) -> float:
        pause_sec, self._next_sec = self._next_sec, min(2 * self._next_sec, self._longest_sec)
        return pause_sec

    def reset(self) -> None:
        self._next_sec = self._first_sec


async def retry(
    attempt: Callable[[], Awaitable[T]],
    *,
    retries: Callable[[Exception], bool],
    pause: Callable[[], Awaitable[object]],
) -> T:
    """The result of the first attempt that succeeds. `retries` says whether there is another one after an error, and
    `pause` waits before it; both may raise another error to give up."""
    while True:
        try:
            return await attempt()
        except Exception as error:
            if not retries(error):
                raise
        await pause()


@asynccontextmanager
async def racing(*works: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    """Wait until one of these is done. The others are canceled at the end of the block."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def keep_trying(
    attempt: Callable[[], Awaitable[bool | None]],
    log: logging.Logger,
    failing: str,
    *,
    longest_pause_sec: float = LONGEST_PAUSE_SEC,
) -> None:
    """Call `attempt` again and again, until it returns True. After an outage, pause and continue; `failing` is logged.

    Other errors are raised: they are bugs.
    """
    pauses = Pauses(longest_pause_sec)

    def retries(error: Exception) -> bool:
        if is_outage(error):
            OUTAGES.failed(log, failing, error)
        return is_outage(error)

    async def pause() -> None:
        await asyncio.sleep(pauses.next_sec())

    while not await retry(attempt, retries=retries, pause=pause):
        pauses.reset()


def keep_trying_in_thread(
    attempt: Callable[[], None],
    log: logging.Logger,
    failing: str,
    *,
    closing: threading.Event,
    longest_pause_sec: float = LONGEST_PAUSE_SEC,
) -> None:
    """Call `attempt` again and again until `closing` is set. No error ends this: nobody would start the thread again."""
    pauses = Pauses(longest_pause_sec)
    while not closing.is_set():
        try:
            attempt()
            pauses.reset()
        except Exception as error:
            OUTAGES.failed(log, failing, error, is_bug=not is_outage(error))
            closing.wait(pauses.next_sec())


async def first_of(*waits: Callable[[], Coroutine[Any, Any, Any]], timeout: float | None = None) -> None:
    """Wait until the first of these has returned, and cancel the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait()) for wait in waits]
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


class SharedCall(Generic[T]):
    """A call that anybody can make at any time: those who make it while it is under way get the same result."""

    def __init__(self, call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._call = call
        self._calling: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        if self._calling is None or self._calling.done():
            self._calling = asyncio.get_running_loop().create_task(self._call())
        return await asyncio.shield(self._calling)


def start_thread(target: Callable[..., object], *args: Any, name: str) -> threading.Thread:
    """Start a daemon thread: one that hangs does not delay the end of the instance.

    Raises `Unavailable` while the system has no thread for it. Count or store the thread only after this.
    """
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise shortage(error) from error
    return thread


async def in_own_thread(call: Callable[[], T], *, name: str) -> T:
    """The result of a call in a new thread. Raises `Unavailable` while the system has no thread for it.

    Unlike this, `asyncio.to_thread` without threads leaves the call in its queue, and the next thread makes it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(T, result))

    def work() -> None:
        result, fault = None, None
        try:
            result = call()
        except BaseException as error:
            fault = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, result, fault)

    start_thread(work, name=name)
    return await done
