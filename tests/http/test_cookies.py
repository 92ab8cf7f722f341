"""Cookies as browsers and strangers send them."""

from __future__ import annotations

import pytest

from askback.cli.commands.doctor import has_slow_cookies
from askback.http.addresses import cookie


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", None),
        ("session=abc", "abc"),
        ("other=1; session=abc; more=2", "abc"),
        ("other=1;session=abc", "abc"),
        ("session = abc ", "abc"),
        ("session=a=b==", "a=b=="),
        ("session=", ""),
        ("session", None),
        ("my_session=abc; session_2=d", None),
        ("session=old; session=new", "new"),
        (';;=;"session="x"', None),
        ("other=a,b; session=abc", "abc"),
    ],
)
def test_a_cookie_is_found_by_its_whole_name(header: str, found: str | None) -> None:
    assert cookie(header, "session") == found


@pytest.mark.parametrize(
    ("version", "slow"),
    [
        ((3, 11, 0), True),
        ((3, 11, 9), True),
        ((3, 11, 10), False),
        ((3, 12, 5), True),
        ((3, 12, 6), False),
        ((3, 13, 0), False),
        ((3, 14, 1), False),
    ],
)
def test_doctor_knows_which_versions_of_python_parse_cookies_slowly(version: tuple[int, int, int], slow: bool) -> None:
    assert has_slow_cookies(version) is slow
