"""Webhooks over HTTP: named with a run, and the log of what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.app.server import web_server
from support.data_folder import World, run_async
from support.receiver import ALLOWED, Receiver, receiving

SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="


@asynccontextmanager
async def serving(world: World, config: str) -> AsyncIterator[httpx.AsyncClient]:
    world.skill([{"finish": {"colour": "red"}}], name="tested")
    folders = f'skills_dir = ["{world.folder / "skills"}"]\n'
    async with world.working(folders + config, serving=True) as app:
        web = web_server(app, 8765)
        transport = httpx.ASGITransport(app=web.application)
        headers = {"authorization": f"Bearer {web.token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765", headers=headers) as client:
            yield client


async def create(client: httpx.AsyncClient, *webhooks: dict[str, Any]) -> httpx.Response:
    body = {"skill": "tested", "engine": "scripted", "mode": "auto", "webhooks": list(webhooks)}
    return await client.post("/v1/runs", json=body)


async def told(client: httpx.AsyncClient, path: str, count: int) -> list[dict[str, Any]]:
    while True:
        items: list[dict[str, Any]] = (await client.get(path)).json()["items"]
        if len(items) == count and all(each["delivered_at"] for each in items):
            return items
        await asyncio.sleep(0.01)


REMINDERS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "of programs": ({}, []),
    "of people": ({"kind": "ntfy"}, [60, 120]),
    "off": ({"kind": "ntfy", "reminders": False}, []),
    "on": ({"reminders": True}, [60, 120]),
    "other": ({"reminders": {"after_sec": [90], "repeat_sec": 100, "max": 3}}, [90, 190, 290]),
    "fewer": ({"reminders": {"max": 1}}, [60]),
    "more": ({"reminders": {"repeat_sec": 60, "max": 3}}, [60, 120, 180]),
}


@pytest.mark.contract("N-4")
@pytest.mark.parametrize("which", REMINDERS)
def test_the_reminders_of_a_run_s_webhook_are_planned_and_in_the_log(tmp_path: Path, which: str) -> None:
    hook, expected = REMINDERS[which]

    async def main() -> None:
        world = World(tmp_path)
        with receiving(Receiver()) as receiver:
            config = f"{ALLOWED}[notifications.reminders]\nafter_sec = [60, 120]\n"
            async with serving(world, config) as client:
                world.skill([{"ask": {"interaction_id": "colour", "prompt": "Which colour?"}}], name="tested")
                body = {"skill": "tested", "engine": "scripted", "mode": "interactive"}
                wanted = {"url": receiver.url, "states": ["waiting_user"], **hook}
                made = await client.post("/v1/runs", json=body | {"webhooks": [wanted]})
                assert made.status_code == 201, made.text
                run_id = made.json()["id"]
                while (run := (await client.get(f"/v1/runs/{run_id}")).json())["state"] != "waiting_user":
                    await asyncio.sleep(0.01)
                asked_at = datetime.fromisoformat(run["pending_interaction"]["asked_at"])
                log = (await client.get(f"/v1/runs/{run_id}/deliveries")).json()["items"][::-1]
        planned = [each for each in log if each["reason"] == "reminder"]
        due = [datetime.fromisoformat(each["next_attempt_at"]) - asked_at for each in planned]
        assert [each.total_seconds() for each in due] == expected
        assert {each["event"] for each in planned} <= {"interaction.reminder"}

    run_async(main)


def test_a_run_s_webhooks_are_told_and_the_log_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        with receiving(Receiver()) as receiver:
            async with serving(World(tmp_path), ALLOWED) as client:
                hook = {"url": f"{receiver.url}?canary", "secret": SECRET, "states": ["running", "succeeded"]}
                made = await create(client, hook)
                assert made.status_code == 201, made.text
                run_id = made.json()["id"]
                last, first = await told(client, f"/v1/runs/{run_id}/deliveries", 2)
                assert (first["to"], last["to"]) == ("running", "succeeded")
                assert first["url"] == f"{receiver.url}?…"
                assert first | {"id": 0, "seq": 0, "delivered_at": 0} == {
                    "id": 0,
                    "run_id": run_id,
                    "url": f"{receiver.url}?…",
                    "kind": "standard",
                    "reason": "state",
                    "event": "run.state",
                    "seq": 0,
                    "to": "running",
                    "attempts": 1,
                    "last_status": 204,
                    "last_error": None,
                    "next_attempt_at": None,
                    "delivered_at": 0,
                }
                everything = await client.get("/v1/deliveries", params={"limit": 1})
                assert everything.json()["items"] == [last]
                rest = await client.get("/v1/deliveries", params={"cursor": everything.json()["next_cursor"]})
                assert rest.json() == {"items": [first], "next_cursor": None}
                shown = everything.text + made.text + (await client.get(f"/v1/runs/{run_id}/events")).text
                assert SECRET not in shown
                assert "canary" not in shown
        assert {came.headers["webhook-id"] for came in receiver.came} == {first["id"], last["id"]}

    run_async(main)


@pytest.mark.parametrize(
    "webhook",
    [
        {"url": "http://127.0.0.1/"},
        {"url": "gopher://example.com/"},
        {"url": "https://example.com/", "secret": "plain"},
        {"url": "https://example.com/", "kind": "other"},
        {"url": "https://example.com/", "states": ["no-such-state"]},
        {"url": "https://example.com/", "more": 1},
        {"url": "https://example.com/", "reminders": {"after_sec": [1]}},
        {"url": "https://example.com/", "reminders": {"after_sec": [60, 61]}},
        {"url": "https://example.com/", "reminders": {"after_sec": [60 * number for number in range(1, 12)]}},
        {"url": "https://example.com/", "reminders": {"repeat_sec": 59}},
        {"url": "https://example.com/", "reminders": {"repeat_sec": 60, "max": 11}},
        {},
    ],
)
def test_an_unfit_webhook_is_422_and_makes_no_run(tmp_path: Path, webhook: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(World(tmp_path), "") as client:
            refused = await create(client, webhook)
            assert refused.status_code == 422
            assert "webhooks[0]" in refused.text
            assert (await client.get("/v1/runs")).json()["items"] == []

    run_async(main)


def test_the_log_of_no_run_is_404_and_a_bad_cursor_422(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(World(tmp_path), "") as client:
            assert (await client.get("/v1/runs/none/deliveries")).status_code == 404
            assert (await client.get("/v1/deliveries", params={"cursor": "x"})).status_code == 422
            assert (await client.get("/v1/deliveries")).json() == {"items": [], "next_cursor": None}

    run_async(main)
