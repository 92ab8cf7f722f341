"""Many loops that fail for one reason log it once, once a minute, and once more when it is over."""

from __future__ import annotations

import logging

import pytest

from askback.background.outages import Outages
from askback.core.errors import RefusalCode, Unavailable

log = logging.getLogger("askback.tests.outages")
AWAY = Unavailable(RefusalCode.STORE_UNUSABLE, "the database is away")
FILES = Unavailable(RefusalCode.FILES_UNAVAILABLE, "the bucket is away")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outages(clock: Clock) -> Outages:
    return Outages(clock)


def test_one_line_begins_one_a_minute_reminds_and_one_ends(
    outages: Outages, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(150):
        clock.now = 1000.0 + second
        outages.failed(log, "deadlines cannot be checked", AWAY)
        outages.failed(log, "no runs can be claimed", AWAY, run="01abc")
    outages.over(log, RefusalCode.FILES_UNAVAILABLE, "the files are back")
    outages.over(log, RefusalCode.STORE_UNUSABLE, "the database can be reached again")
    assert caplog.messages == [
        "deadlines cannot be checked: the database is away",
        "deadlines cannot be checked: the database is away; 119 more failures since the last line",
        "deadlines cannot be checked: the database is away; 119 more failures since the last line",
        "the database can be reached again; not logged: 59 more failures",
    ]


def test_outages_of_different_things_are_logged_separately(outages: Outages, caplog: pytest.LogCaptureFixture) -> None:
    outages.failed(log, "a", AWAY)
    outages.failed(log, "b", FILES)
    outages.over(log, RefusalCode.FILES_UNAVAILABLE, "the files are back")
    assert caplog.messages == ["a: the database is away", "b: the bucket is away", "the files are back"]


def test_what_comes_and_goes_is_logged_twice_a_minute_at_most(
    outages: Outages, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(60):
        clock.now = 1000.0 + second
        outages.failed(log, "a", AWAY)
        outages.over(log, RefusalCode.STORE_UNUSABLE, "it is back")
    assert caplog.messages == ["a: the database is away", "it is back"]


def test_what_never_failed_is_not_over(outages: Outages, caplog: pytest.LogCaptureFixture) -> None:
    outages.over(log, RefusalCode.STORE_UNUSABLE, "it is back")
    assert caplog.messages == []
    outages.begun(log, RefusalCode.STORE_UNUSABLE, "the connection was lost")
    outages.failed(log, "a", AWAY)
    outages.failed(log, "b", AWAY)
    outages.over(log, RefusalCode.STORE_UNUSABLE, "it is back")
    assert caplog.messages == ["the connection was lost", "it is back; not logged: 2 more failures"]
