"""Live events: history then live, none twice and none missed, across waits, kills and stops of the server."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import threading
import time
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

import support.data_folder as world
from askback.access.tokens import Tokens
from askback.app import App
from askback.app.server import WebServer, web_server
from askback.core.access import AccessScope
from askback.http.protocol import Connections, protocol_with
from support.api import PATIENCE_SEC, calling, check, exchange, get, over, reach, refused, reply, start, waiting
from support.data_folder import World, run_async
from support.program import until
from support.server import Server

STREAM = {"accept": "text/event-stream"}


@dataclass
class Seen:
    """What came over a stream, in its order."""

    events: list[dict[str, Any]] = field(default_factory=list)
    comments: int = 0

    @property
    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.events]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def take(self, line: str, block: dict[str, str]) -> None:
        if line.startswith(":"):
            self.comments += 1
        elif line:
            name, _, value = line.partition(": ")
            block[name] = value
        elif block:
            event = json.loads(block["data"])
            assert (block["id"], block["event"]) == (str(event["seq"]), event["type"])
            self.events.append(event)
            block.clear()


@contextmanager
def stream(client: httpx.Client, run_id: str, **headers: str) -> Iterator[httpx.Response]:
    path = f"/v1/runs/{run_id}/events"
    with client.stream("GET", path, headers=STREAM | headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        yield response


def read(response: httpx.Response, seen: Seen) -> Iterator[None]:
    """Reads on, and stops after each line."""
    block: dict[str, str] = {}
    for line in response.iter_lines():
        seen.take(line, block)
        yield


def read_to_end(client: httpx.Client, run_id: str, **headers: str) -> Seen:
    seen = Seen()
    with stream(client, run_id, **headers) as response:
        for _ in read(response, seen):
            pass
    return seen


def stored(client: httpx.Client, run_id: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = client.get(f"/v1/runs/{run_id}/events").json()["items"]
    return events


# One server, from the outside.


def test_a_stream_has_the_history_then_what_comes_and_ends_with_the_run(client: httpx.Client, server: Server) -> None:
    run_id = waiting(client)
    seen = Seen()
    with calling(server.url, server.token) as follower, stream(follower, run_id) as response:
        reading = read(response, seen)
        while "interaction.asked" not in seen.types:
            next(reading)
        assert get(client, run_id)["state"] == "waiting_user"
        reply(client, run_id, "blue")
        for _ in reading:
            pass
    assert seen.events == stored(client, run_id)
    assert (seen.types[0], seen.events[-1]["data"]["to"]) == ("run.created", "succeeded")
    assert seen.seqs == list(range(1, len(seen.seqs) + 1))


def test_a_run_that_is_over_is_told_whole_and_the_stream_ends(client: httpx.Client) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    events = stored(client, run_id)
    assert read_to_end(client, run_id).events == events
    assert read_to_end(client, run_id, **{"last-event-id": "3"}).events == events[3:]
    assert read_to_end(client, run_id, **{"last-event-id": str(len(events))}).events == []
    assert read_to_end(client, run_id, **{"last-event-id": "9007199254740992"}).events == []


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "", "9" * 29, "\u0663".encode().decode("latin-1")])
def test_a_last_event_id_that_is_none_is_refused(client: httpx.Client, last: str) -> None:
    run_id = start(client, "quick")
    headers = {**STREAM, "last-event-id": last.encode("latin-1")}
    answer = client.get(f"/v1/runs/{run_id}/events", headers=headers)  # type: ignore[arg-type]
    refused(answer, 422, "INPUT_INVALID")


def test_a_client_gets_the_form_that_it_likes_best(client: httpx.Client) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    forms = {
        "text/event-stream": "text/event-stream",
        "Text/Event-Stream; charset=utf-8": "text/event-stream",
        "application/json, text/event-stream": "text/event-stream",
        "application/json, text/event-stream;q=0.1": "application/json",
        "application/json;q=0.5, text/event-stream; q=0.9": "text/event-stream",
        "text/event-stream;q=0": "application/json",
        "text/event-stream;q=high": "text/event-stream",
        "text/event-streams": "application/json",
        "*/*": "application/json",
        "": "application/json",
    }
    for accept, form in forms.items():
        answer = client.get(f"/v1/runs/{run_id}/events", headers={"accept": accept})
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, form), accept


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_stream_is_framed_as_its_client_understands(client: httpx.Client, server: Server, version: str) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    head = f"GET /v1/runs/{run_id}/events HTTP/{version}\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n"
    sent = f"{head}Authorization: Bearer {server.token}\r\nAccept: text/event-stream\r\n\r\n".encode()
    head_came, _, body = exchange(server, sent).partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head_came.lower():
        assert version == "1.1"
        body = unchunked(body)
    text = body.decode()
    assert text.startswith(": events\n\n")
    assert text.endswith("\n\n")
    blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in text.split("\n\n")[1:-1]]
    assert [int(block["id"]) for block in blocks] == list(range(1, len(blocks) + 1))


def unchunked(body: bytes) -> bytes:
    whole = b""
    while True:
        size, _, rest = body.partition(b"\r\n")
        if int(size, 16) == 0:
            assert rest == b"\r\n"
            return whole
        whole += rest[: int(size, 16)]
        assert rest[int(size, 16) :].startswith(b"\r\n")
        body = rest[int(size, 16) + 2 :]


def test_a_stream_of_an_unknown_run_is_404(client: httpx.Client) -> None:
    refused(client.get("/v1/runs/0000000000000000/events", headers=STREAM), 404, "RUN_NOT_FOUND")


def test_a_position_that_one_client_made_up_is_no_trouble_for_another(client: httpx.Client, server: Server) -> None:
    run_id = waiting(client)
    with calling(server.url, server.token) as liar, stream(liar, run_id, **{"last-event-id": "9007199254740992"}):
        followed: list[Seen] = []
        follower = threading.Thread(target=lambda: followed.append(read_to_end(client, run_id)))
        follower.start()
        with calling(server.url, server.token) as user:
            reply(user, run_id, "red")
        follower.join(PATIENCE_SEC)
    assert followed[0].events == stored(client, run_id)


# In this program, where time and caps can be set.


@asynccontextmanager
async def listening(place: World, config: str = "") -> AsyncIterator[tuple[App, WebServer, str]]:
    """The server on a real socket in this program; its address."""
    async with place.working(f'skills_dir = ["{place.folder}/skills"]\n{config}', serving=True) as app:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.bind(("127.0.0.1", 0))
        bound.listen(256)
        port = bound.getsockname()[1]
        web = web_server(app, port)
        protocol = protocol_with(Connections(max_unauthenticated=1000, max_total=1000))
        config_ = uvicorn.Config(
            web.application, http=protocol, lifespan="off", log_config=None, timeout_graceful_shutdown=60
        )
        server = uvicorn.Server(config_)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server._serve([bound]))
            try:
                yield app, web, f"http://127.0.0.1:{port}"
            finally:
                web.streams.close()
                server.should_exit = True
                await serving


@asynccontextmanager
async def following(url: str, token: str, run_id: str, **headers: str) -> AsyncIterator[httpx.Response]:
    given = {"authorization": f"Bearer {token}", **STREAM, **headers}
    async with (
        httpx.AsyncClient(base_url=url, headers=given, timeout=PATIENCE_SEC) as client,
        client.stream("GET", f"/v1/runs/{run_id}/events") as response,
    ):
        yield response


async def waiting_run(app: App) -> str:
    run = await world.submit(app, "asking")
    await world.waiting(app, run.id)
    return run.id


def test_a_quiet_stream_has_a_heartbeat(own_world: World) -> None:
    async def main() -> None:
        async with listening(own_world) as (app, web, url):
            web.streams.heartbeat_sec = 0.01
            run_id = await waiting_run(app)
            seen, block = Seen(), {}
            async with following(url, web.token, run_id) as response:
                async for line in response.aiter_lines():
                    seen.take(line, block)
                    if seen.comments >= 5:
                        break
            assert seen.types[-1] == "run.state"

    run_async(main)


def test_a_stream_begins_at_once_also_where_there_is_nothing_to_tell(own_world: World) -> None:
    async def main() -> None:
        async with listening(own_world) as (app, web, url):
            web.streams.heartbeat_sec = 3600
            run_id = await waiting_run(app)
            last = str(len(await world.events_of(app, run_id)))
            async with following(url, web.token, run_id, **{"last-event-id": last}) as response:
                async for line in response.aiter_lines():
                    assert line.startswith(":")
                    break

    run_async(main)


def test_one_stream_too_many_is_429_by_token_and_in_all(own_world: World) -> None:
    async def main() -> None:
        async with listening(own_world) as (app, web, url):
            other = Tokens(own_world.records, lambda: datetime.now(UTC)).make("b", (AccessScope.READ,), None)
            web.streams.max_per_token, web.streams.max_in_total = 2, 3
            run_id = await waiting_run(app)

            async def refused_for(token: str) -> None:
                async with following(url, token, run_id) as response:
                    await response.aread()
                    check(response)
                    assert (response.status_code, response.json()["code"]) == (429, "TOO_MANY_STREAMS")

            async with following(url, web.token, run_id), following(url, web.token, run_id):
                await _until(lambda: web.streams.count == 2)
                await refused_for(web.token)
                async with following(url, other, run_id):
                    await _until(lambda: web.streams.count == 3)
                    await refused_for(other)
            await _until(lambda: web.streams.count == 0)
            async with following(url, web.token, run_id) as response:
                assert response.status_code == 200

    run_async(main)


def test_clients_that_do_not_read_cost_a_constant_and_hold_up_nobody(own_world: World) -> None:
    """A run talks far more than a socket holds. Who reads gets it all; who does not, is still where it was."""
    said = [{"say": "x" * 20_000}] * 400
    own_world.skill([*said, {"finish": {"colour": "red"}}], name="talking")

    async def main() -> None:
        async with listening(own_world) as (app, web, url):
            run = await world.submit(app, "talking")
            port = int(url.rpartition(":")[2])
            lazy = [await asyncio.open_connection("127.0.0.1", port, limit=1024) for _ in range(5)]
            for _, writer in lazy:
                head = (
                    f"GET /v1/runs/{run.id}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n"
                )
                writer.write(f"{head}Authorization: Bearer {web.token}\r\n\r\n".encode())
            async with following(url, web.token, run.id) as response:
                seen, block = Seen(), {}
                async for line in response.aiter_lines():
                    seen.take(line, block)
            assert seen.types.count("assistant.message") >= 400
            assert seen.seqs == list(range(1, len(seen.seqs) + 1))
            await world.over(app, run.id)
            # Those who do not read may be behind with their first bytes, too.
            await _until(lambda: len(_held()) == 5)
            assert sum(_held()) < 5 * 1_000_000
            web.streams.close()
            await _until(lambda: web.streams.count == 0)
            for _, writer in lazy:
                writer.transport.abort()
            await _until(lambda: not _held())

    run_async(main)


def _held() -> list[int]:
    """How many bytes each transport of this program holds, where it holds any."""
    transports = [each for each in gc.get_objects() if isinstance(each, _SelectorSocketTransport)]
    return [len(each._buffer) for each in transports if each._buffer]


async def _until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_a_stream_ends_when_its_client_is_gone(own_world: World) -> None:
    async def main() -> None:
        async with listening(own_world) as (app, web, url):
            run_id = await waiting_run(app)
            async with following(url, web.token, run_id):
                await _until(lambda: web.streams.count == 1)
            await _until(lambda: web.streams.count == 0)

    run_async(main)


# Kills and stops.


class Follower(threading.Thread):
    """A client that comes back with `Last-Event-ID` whenever its stream breaks, until the run has ended."""

    def __init__(self, url: str, token: str, run_id: str) -> None:
        super().__init__(daemon=True)
        self.seen = Seen()
        self.breaks = 0
        self._url, self._token, self._run_id = url, token, run_id

    def run(self) -> None:
        while not self._ended():
            try:
                with calling(self._url, self._token) as client:
                    last = {"last-event-id": str(self.seen.seqs[-1])} if self.seen.events else {}
                    with stream(client, self._run_id, **last) as response:
                        for _ in read(response, self.seen):
                            pass
            except (httpx.HTTPError, OSError):
                pass
            if not self._ended():
                self.breaks += 1
                time.sleep(0.02)

    def _ended(self) -> bool:
        return bool(self.seen.events) and self.seen.events[-1]["data"].get("to") in ("succeeded", "failed", "canceled")


def test_a_server_that_is_killed_and_started_again_leaves_every_event_exactly_once(
    own_world: World, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    own_world.skill(
        [
            {"say": "one"},
            {"wait_for": str(gate / "1")},
            {"say": "two"},
            {"ask": {"interaction_id": "colour", "prompt": "?"}},
        ],
        [{"say": "three"}, {"wait_for": str(gate / "2")}, {"finish": {"colour": "{{reply}}"}}],
        name="gated",
    )
    gate.mkdir()
    first = Server(own_world)
    with first:
        with calling(first.url, first.token) as client:
            run_id = start(client, "gated")
            followers = [Follower(first.url, first.token, run_id) for _ in range(3)]
            for follower in followers:
                follower.start()
            until(lambda: all("assistant.message" in each.seen.types for each in followers))
        first.kill()
    (gate / "1").touch()
    with Server(own_world, port=first.port) as second:
        assert second.token == first.token
        with calling(second.url, second.token) as client:
            reach(client, run_id, "waiting_user")
        second.kill()
    with Server(own_world, port=first.port) as third, calling(third.url, third.token) as client:
        assert get(client, run_id)["state"] == "waiting_user"
        assert reply(client, run_id, "blue").status_code == 202
        (gate / "2").touch()
        assert over(client, run_id)["state"] == "succeeded"
        for follower in followers:
            follower.join(PATIENCE_SEC)
            assert follower.seen.events == stored(client, run_id)
            assert follower.breaks >= 2


def test_a_stop_is_graceful_with_streams_open_and_turns_in_flight(own_world: World, tmp_path: Path) -> None:
    """TERM ends it, whoever watches and however deaf an engine is; the next takes the turn up, and the streams go on."""
    own_world.skill(
        [
            {"misbehave": "ignore_term"},
            {"say": "one"},
            {"wait_for": str(tmp_path / "go")},
            {"finish": {"colour": "red"}},
        ],
        name="stubborn",
    )
    with Server(own_world) as first, calling(first.url, first.token) as client:
        run_id, idle = start(client, "stubborn"), waiting(client)
        followers = [Follower(first.url, first.token, each) for each in (run_id, idle)]
        for follower in followers:
            follower.start()
        until(lambda: "assistant.message" in followers[0].seen.types and followers[1].seen.events)
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(PATIENCE_SEC) == 0, first.stderr
        assert "Traceback" not in first.stderr
    (tmp_path / "go").touch()
    with Server(own_world, port=first.port) as second, calling(second.url, second.token) as client:
        assert over(client, run_id)["state"] == "succeeded"
        reply(client, idle, "red")
        over(client, idle)
        for follower, each in zip(followers, (run_id, idle), strict=True):
            follower.join(PATIENCE_SEC)
            assert follower.seen.events == stored(client, each)
