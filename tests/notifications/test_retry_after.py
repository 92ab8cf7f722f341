"""What a receiver asks for by `Retry-After`: a number or a date, and never without end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.notifications.channels.webhook import MAX_DELAY_SEC, requested_delay_sec

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("0", 0),
        ("9" * 400, MAX_DELAY_SEC),
        ("Sun, 01 Mar 2026 12:02:00 GMT", 120),
        ("Sunday, 01-Mar-26 12:02:00 GMT", 120),
        ("Sun Mar  1 12:02:00 2026", 120),
        ("Sun, 01 Mar 2026 13:02:00 +0100", 120),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_DELAY_SEC),
    ],
)
def test_seconds_and_dates_are_understood_and_bounded(header: str, seconds: float) -> None:
    assert requested_delay_sec(header, NOON) == seconds


@pytest.mark.parametrize("header", [None, "", "soon", "-5", "1.5", "1e3", "inf", "٣", "Sun, 99 Mar 2026 12:00:00 GMT"])
def test_what_is_neither_asks_for_nothing(header: str | None) -> None:
    assert requested_delay_sec(header, NOON) == 0


@given(st.text(alphabet='0123456789 :,-+GMTSunMar()"\\;\t', max_size=40))
def test_no_header_makes_it_raise(header: str) -> None:
    assert 0 <= requested_delay_sec(header, NOON) <= MAX_DELAY_SEC
