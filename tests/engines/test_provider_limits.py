"""When a provider's limit ends, and what it is a limit of, as far as an engine says it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from askback.core.errors import LimitKind
from askback.engines import registry
from askback.engines.base import Stream, TurnFailed
from askback.engines.limits import moment_of, read_limit
from askback.testing import turn_of

AT = datetime(2026, 11, 17, 22, 0, tzinfo=UTC)


def end_of(words: str, at: datetime = AT) -> datetime | None:
    return read_limit(words, at).resets_at


@pytest.mark.contract("U-3")
@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("try again at 11:54 PM.", datetime(2026, 11, 17, 23, 54, tzinfo=UTC)),
        ("try again at 9:54 PM.", datetime(2026, 11, 17, 21, 54, tzinfo=UTC)),
        ("try again at 12:05 AM.", datetime(2026, 11, 18, 0, 5, tzinfo=UTC)),
        ("try again at Nov 20th, 2026 9:54 PM.", datetime(2026, 11, 20, 21, 54, tzinfo=UTC)),
        ("resets 11:53pm (UTC)", datetime(2026, 11, 17, 23, 53, tzinfo=UTC)),
        ("resets 3am (America/New_York)", datetime(2026, 11, 18, 8, 0, tzinfo=UTC)),
        ("resets Jan 2, 9:53pm (UTC)", datetime(2027, 1, 2, 21, 53, tzinfo=UTC)),
        ("regain access on 2026-12-01 at 00:00 UTC.", datetime(2026, 12, 1, tzinfo=UTC)),
        ("reset at 2026-11-18T02:15:00+08:00", datetime(2026, 11, 17, 18, 15, tzinfo=UTC)),
        ("Your quota will reset after 2h0m0s.", AT + timedelta(hours=2)),
        ("Suggested retry after 7200s.", AT + timedelta(hours=2)),
        ("Please try again in 2.5s.", AT + timedelta(seconds=2.5)),
        ("try again in 6 minutes", AT + timedelta(minutes=6)),
        ("try again in 1 hour 5 min", AT + timedelta(hours=1, minutes=5)),
    ],
)
def test_the_end_of_a_limit_is_read_from_its_text(words: str, end: datetime) -> None:
    assert end_of(words) == end


@pytest.mark.contract("U-3")
@pytest.mark.parametrize(
    "words",
    [
        "",
        "try again later",
        "try again in a few moments",
        # The time of a provider whose zone nobody names.
        "It will be reset at 2026-11-18 02:15:00.",
        "resets 11:53pm",
        "resets 11:53pm (Mars/Olympus)",
        "resets 11:53pm (../../etc/passwd)",
        "try again at 25:99 PM",
        "try again at Feb 31st, 2027 9:54 PM",
        "reset at 2026-13-45T99:99:00Z",
        "reset at 2036-11-18T02:15:00Z",
        "reset at 1971-11-18T02:15:00Z",
        "reset after 99999999999999h",
        "try again in 3 months",
    ],
)
def test_a_time_that_is_not_known_is_none(words: str) -> None:
    assert end_of(words) is None


def test_a_time_of_day_that_has_just_passed_is_not_tomorrow() -> None:
    just_after = datetime(2026, 11, 18, 0, 3, tzinfo=UTC)
    assert end_of("try again at 11:54 PM", just_after) == datetime(2026, 11, 17, 23, 54, tzinfo=UTC)
    assert end_of("try again at 11:54 PM", just_after + timedelta(hours=1)) == datetime(
        2026, 11, 18, 23, 54, tzinfo=UTC
    )


@pytest.mark.contract("U-3")
def test_a_structured_time_comes_before_the_text() -> None:
    reported = AT + timedelta(minutes=7)
    assert read_limit("try again in 1h", AT, reported).resets_at == reported
    assert read_limit("try again in 1h", AT, timedelta(minutes=7)).resets_at == reported


@pytest.mark.parametrize("seconds", [None, True, "1794959606", -1, 0, 1e300, float("nan"), float("inf")])
def test_what_is_no_moment_is_none(seconds: object) -> None:
    assert moment_of(seconds) is None


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("You've hit your usage limit. Visit … to purchase more credits", LimitKind.USAGE_WINDOW),
        ("You've hit your weekly limit", LimitKind.USAGE_WINDOW),
        ("You hit your spend cap set in your workspace.", LimitKind.SPENDING_CAP),
        ("Your workspace is out of credits.", LimitKind.CREDITS),
        ("402 Insufficient Balance", LimitKind.CREDITS),
        ("Quota exceeded. Check your plan and billing details.", LimitKind.QUOTA),
        ("429 Too Many Requests", LimitKind.RATE),
        ("429", LimitKind.RATE),
    ],
)
def test_the_kind_of_a_limit(words: str, kind: LimitKind) -> None:
    assert read_limit(words, AT).kind is kind


@pytest.mark.contract("U-3")
def test_the_app_server_of_codex_reports_the_window_that_is_used_up() -> None:
    conversation = registry.get("codex").conversation(turn_of(registry.get("codex"), {}))
    list(conversation.say("Do it."))
    error = {"message": "You’ve hit your usage limit.", "codexErrorInfo": "usageLimitExceeded"}
    limits = {"primary": {"usedPercent": 100, "resetsAt": 1794959700}, "secondary": {"usedPercent": 40, "resetsAt": 9}}
    for method, params in (
        ("account/rateLimits/updated", {"rateLimits": limits}),
        ("turn/completed", {"turn": {"status": "failed", "error": error}}),
    ):
        list(conversation.feed(Stream.STDOUT, json.dumps({"method": method, "params": params}).encode()))
    failed = conversation.outcome()
    assert isinstance(failed, TurnFailed)
    assert failed.reset == datetime(2026, 11, 17, 23, 55, tzinfo=UTC)


def test_codex_prints_times_in_utc() -> None:
    codex = registry.get("codex")
    assert codex.launch(turn_of(codex, {})).env["TZ"] == "UTC"
