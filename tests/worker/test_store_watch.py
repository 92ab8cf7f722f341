"""When an instance knows that the file store cannot be used, and when it can be used again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from askback.background.pools import Pool
from askback.core.errors import RefusalCode, Unavailable
from askback.worker import machine
from askback.worker.machine import MachineHealth
from support.data_folder import run_async

DOWN = Unavailable(RefusalCode.FILES_UNAVAILABLE, "the file store is down")
NO_DATABASE = Unavailable(RefusalCode.STORE_UNUSABLE, "the database is away")


class Share:
    """A file store that fails as it is told, and a machine that uses it."""

    def __init__(self) -> None:
        self.fault: Unavailable | None = None
        self.checks: list[bool] = []
        self.meanwhile = ""
        self.machine = MachineHealth(
            check_folders=lambda thorough: None,
            size_of=lambda run_id: 0,
            pool=Pool("checking", threads=1, waiting=1),
            clock=lambda: datetime.now(UTC),
            check_files=self.check,
        )

    async def check(self, thorough: bool) -> None:
        self.checks.append(thorough)
        if self.meanwhile:
            self.machine.files_failed(self.meanwhile)
        if self.fault is not None:
            raise self.fault

    async def look(self) -> RefusalCode | None:
        await self.machine.check_files(self.check)
        return self.machine.problem


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_FIRST_PAUSE_SEC", 0.0)


def test_only_a_thorough_look_ends_an_outage_of_files(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        share = Share()
        assert await share.look() is None
        assert not caplog.records
        for fault in (DOWN, DOWN, NO_DATABASE):
            share.fault = fault
            assert await share.look() is RefusalCode.FILES_UNAVAILABLE
        share.fault = None
        assert await share.look() is None
        await share.machine.recovered()
        said = [each.getMessage() for each in caplog.records if "starts" in each.getMessage()]
        assert said == [f"this machine starts no turns for now: {DOWN.message}", "this machine starts turns again"]
        assert share.checks == [False, False, True, True, True]

    run_async(main)


def test_a_failure_during_a_look_at_the_files_counts() -> None:
    async def main() -> None:
        share = Share()
        share.machine.files_failed("a file cannot be stored")
        share.meanwhile = "nor can another"
        assert await share.look() is RefusalCode.FILES_UNAVAILABLE
        share.meanwhile = ""
        assert await share.look() is None

    run_async(main)


def test_no_look_ends_the_pause_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_FIRST_PAUSE_SEC", 3600.0)
    monkeypatch.setattr(machine, "_LONGEST_PAUSE_SEC", 3600.0)

    async def main() -> None:
        share = Share()
        share.machine.files_failed("a file cannot be stored")
        assert await share.look() is RefusalCode.FILES_UNAVAILABLE

    run_async(main)
