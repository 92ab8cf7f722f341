"""What callers get while the PostgreSQL server restarts, or is suspended and does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from test_http_streams import Seen, following, listening, waiting_run

from askback.client import AsyncClient
from support import postgres
from support.api import PATIENCE_SEC
from support.data_folder import FINISH, World, run_async, until
from support.postgres import PostgresServer, databases

ASKING = {"ask": {"interaction_id": "colour", "prompt": "Which colour?"}}
LONG_SEC = 240.0


@pytest.fixture(scope="module")
def database_server() -> Iterator[PostgresServer]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def place(database_server: PostgresServer, tmp_path: Path) -> World:
    postgres.address_file(tmp_path).write_text(f"{database_server.make_database()}&connect_timeout=2")
    with databases.chosen(False):
        world = World(tmp_path)
    world.skill([ASKING], [FINISH], name="asking")
    return world


def limit(monkeypatch: pytest.MonkeyPatch, *, patience_sec: float) -> None:
    from askback.store.postgres import link

    given = link.Limits(patience_sec=patience_sec, answer_sec=2.0, least_sec=2.0, statement_sec=60.0)
    monkeypatch.setattr(link, "DEFAULT", given)


async def created(client: httpx.AsyncClient) -> httpx.Response:
    body = {"skill": "asking", "engine": "scripted", "mode": "interactive"}
    return await client.post("/v1/runs", json=body, headers={"Idempotency-Key": "one"})


async def replied(client: httpx.AsyncClient, run_id: str) -> httpx.Response:
    body = {"interaction_id": "colour", "response": "blue"}
    return await client.post(f"/v1/runs/{run_id}/interaction/reply", json=body)


async def stored(client: httpx.AsyncClient, run_id: str) -> list[int]:
    return [event["seq"] for event in (await client.get(f"/v1/runs/{run_id}/events")).json()["items"]]


async def followed(url: str, token: str, run_id: str, seqs: list[int]) -> None:
    async with AsyncClient(url, token) as client:
        async for event in client.follow(run_id, patience_sec=LONG_SEC):
            seqs.append(event.seq)  # noqa: PERF401 -- the caller looks at them meanwhile


@pytest.mark.contract("M-9")
def test_while_the_database_is_suspended_callers_get_503_and_afterwards_work_continues(
    place: World, database_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, patience_sec=2.0)

    async def main() -> None:
        async with listening(place) as (app, web, url):
            run_id = await waiting_run(app)
            seqs: list[int] = []
            follower = asyncio.create_task(followed(url, web.token, run_id, seqs))
            await until(lambda: bool(seqs))
            headers = {"authorization": f"Bearer {web.token}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_SEC) as client:
                database_server.freeze()
                try:
                    await while_suspended(client, run_id)
                finally:
                    database_server.thaw()
                while (response := await created(client)).status_code == 503:
                    await asyncio.sleep(0.05)
                assert response.status_code in (200, 201), response.text
                while (response := await replied(client, run_id)).status_code == 503:
                    await asyncio.sleep(0.05)
                # 409: the reply that got 503 was stored when the database went on.
                assert response.status_code in (202, 409), response.text
                # No event was missed or came twice.
                await follower
                assert seqs == await stored(client, run_id)
                assert (await client.get(f"/v1/runs/{run_id}")).json()["state"] == "succeeded"
                assert len((await client.get("/v1/runs")).json()["items"]) == 2
                while (await client.get("/healthz")).json()["status"] != "ok":
                    await asyncio.sleep(0.05)

    run_async(main)


async def while_suspended(client: httpx.AsyncClient, run_id: str) -> None:
    responses = await asyncio.gather(
        created(client),
        replied(client, run_id),
        *(client.get(f"/v1/runs/{run_id}") for _ in range(10)),
        client.get("/v1/inbox"),
    )
    for response in responses:
        assert response.status_code == 503, response.text
        assert response.json()["code"] == "STORE_UNUSABLE"
        assert "check that the server runs" in response.json()["detail"]
        assert int(response.headers["retry-after"]) > 0
    # It answers meanwhile, and says what is wrong.
    while (health := await client.get("/healthz")).json()["database"] == "ok":
        await asyncio.sleep(0.05)
    assert (health.status_code, health.json()["database"]) == (503, "STORE_UNUSABLE")
    page = await client.get("/runs", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "Not available at the moment" in page.text
    assert int(page.headers["retry-after"]) > 0


@pytest.mark.contract("M-9")
def test_a_stream_that_is_open_while_the_database_restarts_goes_on_without_a_gap(
    place: World, database_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, patience_sec=LONG_SEC)

    async def main() -> None:
        async with listening(place) as (app, web, url):
            run_id = await waiting_run(app)
            headers = {"authorization": f"Bearer {web.token}"}
            seen, block = Seen(), dict[str, str]()
            async with (
                httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_SEC) as client,
                following(url, web.token, run_id) as response,
            ):
                lines = response.aiter_lines()
                while "interaction.asked" not in seen.types:
                    seen.take(await anext(lines), block)
                await asyncio.to_thread(database_server.crash)
                replying = asyncio.create_task(replied(client, run_id))
                await asyncio.to_thread(database_server.start)
                assert (await replying).status_code == 202
                # The same response, to its end.
                async for line in lines:
                    seen.take(line, block)
                assert seen.seqs == await stored(client, run_id)
                assert (await client.get(f"/v1/runs/{run_id}")).json()["state"] == "succeeded"

    run_async(main)
