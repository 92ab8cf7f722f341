"""`GET /v1/stats`: runs, failures and tokens by day, skill and engine, answers, and what waits."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import httpx
import pytest

from askback.http.routes.server import quantile
from support.api import over, reply, start, waiting


def stats(client: httpx.Client, days: int = 30) -> dict[str, Any]:
    response = client.get("/v1/stats", params={"days": days})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def total(found: dict[str, Any], name: str) -> int:
    return sum(day[name] for day in found["days"])


def test_what_ends_is_counted_on_its_day_by_skill_engine_and_code(client: httpx.Client) -> None:
    before = stats(client)
    over(client, start(client, "failing"))
    answered = waiting(client)
    assert reply(client, answered, "red").status_code == 202
    over(client, answered)
    found = stats(client)
    assert total(found, "failed") == total(before, "failed") + 1
    assert total(found, "succeeded") == total(before, "succeeded") + 1
    failures = [sum(day["failures"].get("ENGINE_AUTH_REQUIRED", 0) for day in each["days"]) for each in (before, found)]
    assert failures[1] == failures[0] + 1
    assert "failing" in {each["name"] for each in found["skills"]}
    assert {each["name"] for each in found["engines"]} == {"scripted"}
    assert found["answers"]["count"] == before["answers"]["count"] + 1
    assert 0 <= found["answers"]["median_sec"] <= found["answers"]["p90_sec"]


def test_what_waits_is_told_with_the_time_of_the_oldest_question(client: httpx.Client) -> None:
    before = stats(client)["unfinished"]["waiting_user"]
    run_id = waiting(client)
    found = stats(client)["unfinished"]
    assert found["waiting_user"] == before + 1
    assert found["oldest_asked_at"] <= client.get(f"/v1/runs/{run_id}").json()["pending_interaction"]["asked_at"]
    client.post(f"/v1/runs/{run_id}/cancel")


@pytest.mark.parametrize("days", [1, 14, 366])
def test_every_day_is_there(client: httpx.Client, days: int) -> None:
    found = stats(client, days)
    listed = [date.fromisoformat(day["date"]) for day in found["days"]]
    assert len(listed) == days
    assert (listed[0].isoformat(), listed[-1].isoformat()) == (found["first"], found["last"])
    assert listed == [listed[0] + timedelta(days=number) for number in range(days)]


@pytest.mark.parametrize("days", ["0", "367", "-1", "many"])
def test_other_numbers_of_days_are_refused(client: httpx.Client, days: str) -> None:
    response = client.get("/v1/stats", params={"days": days})
    assert (response.status_code, response.json()["code"]) == (422, "REQUEST_INVALID")


def test_a_quantile_is_a_value_of_the_list() -> None:
    assert (quantile([], 0.5), quantile([1.0], 0.9), quantile([1.0, 2.0, 3.0], 0.5)) == (None, 1.0, 2.0)
