"""Who sees which deliveries: no caller sees the devices of others, and a restricted token nothing of the server's receivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.app import now
from askback.core.access import AccessScope
from support.api import calling, waiting
from support.data_folder import ASK, FINISH, World
from support.program import until
from support.push_service import push_service
from support.receiver import Receiver, receiving
from support.server import Server

LABELS = {"customer": "acme"}


def seen(client: httpx.Client, run_id: str) -> list[tuple[str, str]]:
    """The kind and the host of each delivery about the change to the question. Both lists agree, also in small pages."""
    items = pages(client, f"/v1/runs/{run_id}/deliveries")
    assert items == pages(client, "/v1/deliveries", label="customer:acme")
    return sorted({(each["kind"], each["url"].split("/")[2]) for each in items})


def pages(client: httpx.Client, path: str, **query: str) -> list[dict[str, Any]]:
    found, cursor = [], None
    while True:
        page = client.get(path, params=query | {"limit": "1"} | ({"cursor": cursor} if cursor else {})).json()
        found += page["items"]
        if (cursor := page["next_cursor"]) is None:
            return found


@pytest.mark.contract("N-8")
def test_deliveries_to_receivers_of_others_are_not_listed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asking")
    tokens = Tokens(world.records, now)
    with (
        receiving(Receiver()) as own,
        receiving(Receiver()) as named,
        push_service() as phone,
        push_service() as tablet,
    ):
        hooks = f'[{{"url": "{own.url}", "states": ["waiting_user"]}}]'
        env = {"ASKBACK_NOTIFICATIONS__ALLOW_PRIVATE": "true", "ASKBACK_WEBHOOKS": hooks}
        with Server(world, env=env) as server, calling(server.url, server.token) as main:
            app = tokens.make("app", (AccessScope.READ, AccessScope.SUBMIT), None, labels=LABELS)
            reader = tokens.make("reader", (AccessScope.READ,), None)
            with calling(server.url, app) as restricted, calling(server.url, reader) as free:
                for client, device in ((main, phone), (free, tablet)):
                    assert client.post("/v1/push/subscriptions", json=device.subscription()).status_code == 201
                hook = {"url": named.url, "states": ["waiting_user"], "reminders": False}
                run_id = waiting(restricted, webhooks=[hook])
                settings = ("standard", f"127.0.0.1:{own.port}")
                of_run = ("standard", f"127.0.0.1:{named.port}")
                phones = [("push", f"127.0.0.1:{each.receiver.port}") for each in (phone, tablet)]
                # Every attempt changes its row: the lists are compared when all are done.
                until(lambda: all(each.came for each in (own, named, phone.receiver, tablet.receiver)))
                until(lambda: all(each["attempts"] == 0 or each["delivered_at"] for each in everything(main, run_id)))
                assert seen(main, run_id) == sorted([settings, of_run, *phones])
                assert seen(free, run_id) == sorted([settings, of_run, phones[1]])
                assert seen(restricted, run_id) == [of_run]


def everything(client: httpx.Client, run_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get(f"/v1/runs/{run_id}/deliveries").json()["items"]
    return items
