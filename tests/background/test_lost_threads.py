"""For a moment no thread can be started: callers are refused, and everything works as soon as there are threads again."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from askback.background.loops import keep_trying, keep_trying_in_thread
from askback.background.pools import Pool
from askback.blobs.folder import FolderFiles
from askback.core.errors import RefusalCode, Unavailable
from support.data_folder import run_async

Refuse = Callable[[bool], None]
log = logging.getLogger(__name__)


@pytest.fixture
def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """As the system does: `start` of the standard library raises what it raises without threads."""
    real = threading.Thread.start
    refused = threading.Event()

    def start(self: threading.Thread) -> None:
        if refused.is_set():
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    return lambda wanted: refused.set() if wanted else refused.clear()


def test_a_pool_works_after_a_moment_without_threads(refuse_threads: Refuse) -> None:
    async def main() -> None:
        pool = Pool("tested", threads=2, waiting=0)
        refuse_threads(True)
        for _ in range(10):
            with pytest.raises(Unavailable) as refused:
                await pool.run(lambda: 1)
            assert refused.value.code is RefusalCode.RESOURCE_SHORTAGE
        closed = threading.Event()
        pool.post(closed.set)
        refuse_threads(False)
        assert await asyncio.wait_for(asyncio.gather(pool.run(lambda: 1), pool.run(lambda: 2)), 60) == [1, 2]
        assert await asyncio.to_thread(closed.wait, 60)
        pool.close()

    run_async(main)


def test_a_pool_that_has_a_thread_needs_no_further_one(refuse_threads: Refuse) -> None:
    async def main() -> None:
        pool = Pool("tested", threads=2, waiting=10)
        assert await pool.run(lambda: 1) == 1
        refuse_threads(True)
        assert await asyncio.wait_for(asyncio.gather(*(pool.run(lambda: 1) for _ in range(5))), 60) == [1] * 5
        pool.close()

    run_async(main)


def test_a_file_store_works_after_a_moment_without_threads(tmp_path: Path, refuse_threads: Refuse) -> None:
    FolderFiles(tmp_path).put("a/b", b"content")
    # Another one: a store uses the threads that it has again.
    files = FolderFiles(tmp_path)
    refuse_threads(True)
    for _ in range(50):
        with pytest.raises(Unavailable):
            files.get("a/b", 100)
    refuse_threads(False)
    assert files.get("a/b", 100) == b"content"


@pytest.mark.parametrize(
    "fault",
    [
        RuntimeError("can't start new thread"),
        OSError(24, "Too many open files"),
        MemoryError(),
        Unavailable(RefusalCode.STORE_UNUSABLE, "away"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_background_loop_outlives_an_outage_and_tries_again_soon(fault: Exception) -> None:
    async def main() -> None:
        faults = [fault]

        async def attempt() -> bool:
            if faults:
                raise faults.pop()
            return True

        # A pause of a minute would be too long.
        await asyncio.wait_for(keep_trying(attempt, log, "cannot do it"), 30)

    run_async(main)


def test_a_bug_ends_a_background_loop() -> None:
    async def main() -> None:
        async def attempt() -> bool:
            raise KeyError

        with pytest.raises(KeyError):
            await keep_trying(attempt, log, "cannot do it")

    run_async(main)


def test_no_error_ends_a_background_thread(caplog: pytest.LogCaptureFixture) -> None:
    closing, faults = threading.Event(), [KeyError("a bug"), OSError("a fault")]

    def attempt() -> None:
        if faults:
            raise faults.pop()
        closing.set()

    keep_trying_in_thread(attempt, log, "cannot do it", closing=closing, longest_pause_sec=1)
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]
