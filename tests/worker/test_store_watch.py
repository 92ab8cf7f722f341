"""When a program knows that the file store cannot be used, and when it can be used again."""

from __future__ import annotations

import pytest

from askback.core.errors import RefusalCode, Unavailable
from askback.worker import store_watch
from askback.worker.store_watch import StoreWatch
from support.data_folder import run_async

DOWN = Unavailable(RefusalCode.FILES_UNAVAILABLE, "the file store is down")
NO_DATABASE = Unavailable(RefusalCode.STORE_UNUSABLE, "the database is away")


class Share:
    """A file store that fails as it is told."""

    def __init__(self) -> None:
        self.fault: Unavailable | None = None
        self.looks: list[bool] = []
        self.told: list[str | None] = []
        self.watch = StoreWatch(self.look)
        self.watch.changed = self.told.append
        self.meanwhile = ""

    async def look(self, thorough: bool) -> None:
        self.looks.append(thorough)
        if self.meanwhile:
            self.watch.failed(self.meanwhile)
        if self.fault is not None:
            raise self.fault


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "_FIRST_PAUSE_SEC", 0.0)


def test_only_a_thorough_look_ends_an_outage_of_files() -> None:
    async def main() -> None:
        share = Share()
        await share.watch.look()
        assert (share.watch.problem, share.told) == (None, [])
        for fault in (DOWN, DOWN, NO_DATABASE):
            share.fault = fault
            await share.watch.look()
            assert share.watch.problem == DOWN.message
        share.fault = None
        await share.watch.look()
        assert (share.watch.problem, share.told) == (None, [DOWN.message, None])
        assert share.looks == [False, False, True, True, True]

    run_async(main)


def test_a_failure_during_a_look_at_the_files_counts() -> None:
    async def main() -> None:
        share = Share()
        share.watch.failed("a file cannot be stored")
        share.meanwhile = "nor can another"
        await share.watch.look()
        assert share.watch.problem == "a file cannot be stored"
        share.meanwhile = ""
        await share.watch.look()
        assert share.watch.problem is None

    run_async(main)


def test_no_look_ends_the_pause_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "_FIRST_PAUSE_SEC", 3600.0)
    monkeypatch.setattr(store_watch, "_LONGEST_PAUSE_SEC", 3600.0)

    async def main() -> None:
        share = Share()
        share.watch.failed("a file cannot be stored")
        await share.watch.look()
        assert share.watch.problem is not None

    run_async(main)
