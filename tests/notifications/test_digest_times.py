"""When digests are due, whatever clocks and zones do, and who may send one: each at most once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.errors import Unavailable
from askback.fs.records import Records
from askback.notifications.digests import LATEST, DigestLedger, DigestTimes

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia")
TIMES = st.lists(st.builds(time, st.integers(0, 23), st.integers(0, 59)), min_size=1, max_size=4, unique=True).map(
    tuple
)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2037, 12, 31), timezones=st.just(UTC))
PLANS = st.builds(lambda at, zone: DigestTimes(at=at, zone=ZoneInfo(zone)), TIMES, st.sampled_from(ZONES))
BERLIN = ZoneInfo("Europe/Berlin")
DAY = timedelta(days=1)


def between(times: DigestTimes, first: datetime, last: datetime) -> Iterator[datetime]:
    while (first := times.next(first)) <= last:
        yield first


@pytest.mark.contract("N-4")
@given(times=PLANS, now=MOMENTS)
def test_now_is_between_the_latest_and_the_next(times: DigestTimes, now: datetime) -> None:
    latest, following = times.latest(now), times.next(now)
    assert latest <= now < following
    assert times.latest(following) == following
    assert times.next(latest) == following
    assert following - latest <= 2 * DAY


@pytest.mark.contract("N-4")
@given(times=PLANS, now=MOMENTS)
def test_each_listed_time_is_due_once_a_day(times: DigestTimes, now: datetime) -> None:
    found = [moment.astimezone(times.zone) for moment in between(times, now, now + 7 * DAY)]
    by_day = Counter((moment.date(), moment.time()) for moment in found)
    assert max(by_day.values()) == 1
    shifted = [moment for moment in found if moment.time() not in times.at]
    assert all(_was_skipped(moment, times) for moment in shifted)
    assert len(found) <= 8 * len(times.at)


def _was_skipped(moment: datetime, times: DigestTimes) -> bool:
    """Whether this moment stands for a listed time that the clocks of this day leave out."""
    before = (moment.astimezone(UTC) - DAY).astimezone(times.zone).utcoffset()
    after = moment.utcoffset()
    assert before is not None
    assert after is not None
    return before != after and (moment - (after - before)).time() in times.at


@pytest.mark.contract("N-4")
@pytest.mark.parametrize(
    ("now", "due"),
    [
        (datetime(2026, 3, 29, 0, 0, tzinfo=BERLIN), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        (datetime(2026, 10, 25, 0, 0, tzinfo=BERLIN), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
        (datetime(2026, 10, 25, 0, 31, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)),
    ],
    ids=["skipped", "twice: the first", "twice: not again"],
)
def test_daylight_saving(now: datetime, due: datetime) -> None:
    assert DigestTimes(at=(time(2, 30),), zone=BERLIN).next(now) == due


@given(now=MOMENTS)
def test_without_a_zone_it_is_that_of_the_machine(now: datetime) -> None:
    due = DigestTimes(at=(time(9),)).next(now).astimezone()
    assert (due.hour, due.minute) == (9, 0)


# Who may send one.

JUMPS = st.lists(
    st.one_of(st.integers(1, 7200), st.integers(-20_000, 90_000)).map(lambda sec: timedelta(seconds=sec)), max_size=60
)


@pytest.mark.contract("N-4")
@given(times=PLANS, now=MOMENTS, jumps=JUMPS)
def test_no_digest_is_claimed_twice_whatever_the_clock_does(
    times: DigestTimes, now: datetime, jumps: list[timedelta]
) -> None:
    with TemporaryDirectory() as folder:
        start = now
        ledgers = [DigestLedger(Records(Path(folder))) for _ in range(2)]
        ledgers[0].begin(["channel"], now)
        claimed = []
        for place, jump in enumerate(jumps):
            now += jump
            claim = ledgers[place % 2].claim("channel", times.latest(now), now)
            if claim is not None:
                assert claim.last_at <= now <= claim.last_at + LATEST
                claimed.append(claim.last_at)
        assert len(set(claimed)) == len(claimed)
        assert all(start < due for due in claimed)


NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def ledger(folder: Path, since: datetime = NINE - HOUR) -> DigestLedger:
    made = DigestLedger(Records(folder))
    made.begin(["channel"], since)
    return made


@pytest.mark.contract("N-4")
def test_of_many_claims_at_once_one_wins(tmp_path: Path) -> None:
    ledgers = [ledger(tmp_path) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        claims = list(pool.map(lambda each: each.claim("channel", NINE, NINE), ledgers))
    assert sum(claim is not None for claim in claims) == 1


@pytest.mark.contract("N-4")
@pytest.mark.parametrize(("late", "sent"), [(timedelta(), True), (LATEST, True), (LATEST + HOUR, False)])
def test_a_missed_digest_is_sent_within_twelve_hours(tmp_path: Path, late: timedelta, sent: bool) -> None:
    ledger(tmp_path)
    assert (ledger(tmp_path).claim("channel", NINE, NINE + late) is not None) == sent


def test_a_new_channel_gets_no_digest_from_before(tmp_path: Path) -> None:
    fresh = ledger(tmp_path, NINE + HOUR)
    assert fresh.claim("channel", NINE, NINE + 2 * HOUR) is None
    assert fresh.claim("unknown", NINE, NINE + 2 * HOUR) is None
    assert fresh.claim("channel", NINE + DAY, NINE + DAY) is not None


def test_a_channel_that_was_removed_starts_anew(tmp_path: Path) -> None:
    ledger(tmp_path).begin([], NINE)
    assert ledger(tmp_path, NINE + HOUR).claim("channel", NINE, NINE + 2 * HOUR) is None


@pytest.mark.contract("N-4")
def test_a_failed_digest_is_due_again_until_the_next_one(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    first = kept.claim("channel", NINE, NINE)
    assert first is not None
    assert kept.failed(first, NINE + HOUR)
    assert kept.next_retry(["channel", "other"]) == NINE + HOUR
    assert kept.next_retry(["other"]) is None
    assert kept.claim("channel", NINE, NINE + HOUR / 2) is None
    second = ledger(tmp_path).claim("channel", NINE, NINE + HOUR)
    assert second is not None
    assert (second.last_at, second.attempts) == (NINE, 2)
    assert not kept.failed(first, NINE + 2 * HOUR), "another attempt has been claimed since"
    assert not kept.failed(second, NINE + LATEST + HOUR), "too late"
    assert kept.failed(second, NINE + 2 * HOUR)
    later = kept.claim("channel", NINE + 2 * HOUR, NINE + 2 * HOUR)
    assert later is not None
    assert (later.last_at, later.attempts) == (NINE + 2 * HOUR, 1)
    assert kept.claim("channel", NINE + 2 * HOUR, NINE + 3 * HOUR) is None


def test_a_retry_that_was_missed_for_too_long_is_dropped(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    first = kept.claim("channel", NINE, NINE)
    assert first is not None
    assert kept.failed(first, NINE + HOUR)
    assert kept.claim("channel", NINE, NINE + LATEST + HOUR) is None


def test_a_clock_that_was_years_ahead_does_not_end_digests(tmp_path: Path) -> None:
    kept = ledger(tmp_path, NINE + 1000 * DAY)
    assert kept.claim("channel", NINE, NINE) is None
    assert kept.claim("channel", NINE + DAY, NINE + DAY) is not None


def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    (tmp_path / "digests.json").write_text("{")
    with pytest.raises(Unavailable, match=r"digests\.json"):
        kept.claim("channel", NINE, NINE)
