"""Calls of a file store: threads are used again, and one that hangs is not waited for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from askback.blobs.base import Calls
from askback.core.errors import Unavailable

LONG_SEC = 60.0


def test_calls_one_after_the_other_share_a_thread() -> None:
    calls = Calls("here", LONG_SEC, threads=8)
    assert len({calls.run(threading.get_ident) for _ in range(50)}) == 1


def test_an_error_is_that_of_its_call_alone() -> None:
    calls = Calls("here", LONG_SEC, threads=1)
    with pytest.raises(ZeroDivisionError):
        calls.run(lambda: 1 // 0)
    assert calls.run(lambda: "well") == "well"


def test_no_more_calls_run_at_a_time_than_there_may_be_threads() -> None:
    calls, together, seen = Calls("here", LONG_SEC, threads=3), threading.Barrier(3), set[int]()

    def work() -> None:
        seen.add(threading.get_ident())
        together.wait(LONG_SEC)

    with ThreadPoolExecutor(12) as callers:
        for _ in callers.map(lambda _: calls.run(work), range(12)):
            pass
    assert len(seen) == 3


def test_a_call_that_hangs_is_left_alone_and_the_next_has_another_thread() -> None:
    calls, release = Calls("here", 0.05, threads=2), threading.Event()
    with pytest.raises(Unavailable, match="did not answer"):
        calls.run(release.wait)
    assert calls.run(lambda: "well", size=60_000_000) == "well"
    release.set()


def test_a_store_whose_calls_all_hang_refuses_the_next() -> None:
    calls, release = Calls("here", 0.05, threads=1), threading.Event()
    for _ in range(2):
        with pytest.raises(Unavailable, match="did not answer"):
            calls.run(release.wait)
    release.set()
    assert calls.run(lambda: "well", size=60_000_000) == "well"
