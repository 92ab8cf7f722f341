"""Following a run through breaks: every event exactly once, whatever becomes of the connection and the server."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from askback.client import AnswerUnreadable, Event, ServerUnreachable, WaitTimedOut
from askback.client.following import Following
from support.data_folder import ASK, DEADLINE_SEC, FINISH, World
from support.server import Server

WORK = {"tool": {"name": "paint", "detail": "the wall", "output": "done", "sleep_sec": 0.5}}


def told(seq: int, text: str = "") -> bytes:
    event = {
        "seq": seq,
        "run_id": "r",
        "type": "assistant.message",
        "at": "2026-01-01T00:00:00Z",
        "data": {"text": text},
    }
    return f"id: {seq}\nevent: assistant.message\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def following(after: int = 0, patience_sec: float = 60) -> Following:
    return Following("r", after, patience_sec)


# Reading a stream.


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_stream_may_be_cut_anywhere(size: int) -> None:
    text = "two\u2028lines, \x85 one\x0c text, é"
    stream = b": alive\n\n" + told(1, text) + b": alive\n\n" + told(2)
    reading = following()
    found: list[Event] = []
    for place in range(0, len(stream), size):
        found += reading.feed(stream[place : place + size])
    assert [event.seq for event in found] == [1, 2]
    assert found[0].data["text"] == text


def test_an_event_that_comes_again_is_passed_over() -> None:
    reading = following(after=1)
    assert [event.seq for event in reading.feed(told(1) + told(2) + told(2))] == [2]
    assert reading.stream().headers["Last-Event-ID"] == "2"


def test_half_an_event_is_forgotten_with_its_connection() -> None:
    reading = following()
    assert reading.feed(told(1)[:-10]) == []
    reading.stream()
    assert [event.seq for event in reading.feed(told(1))] == [1]


def test_a_stream_of_somebody_else_is_not_read() -> None:
    with pytest.raises(AnswerUnreadable):
        following().feed(b"data: hello\n\n")


def test_tries_become_rarer_until_something_is_heard() -> None:
    reading, error = following(), ServerUnreachable("http://here", "gone")
    reading.feed(b": alive\n\n")
    delays = [reading.lost(error) for _ in range(8)]
    assert delays == sorted(delays)
    assert delays[-1] == 2.0
    reading.feed(b": alive\n\n")
    assert reading.lost(error) == delays[0]


def test_patience_begins_with_the_loss_not_with_the_last_word() -> None:
    reading, error = following(patience_sec=0), ServerUnreachable("http://here", "gone")
    reading.feed(told(1))
    assert reading.lost(error) > 0


def test_a_time_that_is_up_ends_every_step_and_shortens_every_pause() -> None:
    error = ServerUnreachable("http://here", "gone")
    late = Following("r", 0, 60, timeout_sec=0)
    for step in (late.stream, lambda: late.lost(error)):
        with pytest.raises(WaitTimedOut, match="run r is still running after 0 s"):
            step()
    soon = Following("r", 0, 60, timeout_sec=60)
    soon.feed(told(1))
    assert [soon.lost(error) for _ in range(8)][-1] == 2.0
    assert late.pause() == 0


def test_patience_has_an_end() -> None:
    reading, error = following(patience_sec=-1), ServerUnreachable("http://here", "gone")
    reading.feed(b": alive\n\n")
    with pytest.raises(ServerUnreachable):
        reading.lost(error)


# A real server that goes and comes back.


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("when", ["assistant.message", "interaction.asked"])
def test_a_restart_of_the_server_loses_and_doubles_no_event(tmp_path: Path, how: str, when: str) -> None:
    world = World(tmp_path)
    world.skill([{"say": "First."}, WORK, ASK], [{"say": "Then."}, FINISH], name="asking")
    seen: list[Event] = []
    reached = threading.Event()

    with Server(world) as first, first.client() as client:
        run_id = client.create_run("asking", engine="scripted", mode="interactive").id

        def follow() -> None:
            for event in client.follow(run_id):
                seen.append(event)
                if event.type == when:
                    reached.set()

        watcher = threading.Thread(target=follow)
        watcher.start()
        assert reached.wait(DEADLINE_SEC)
        _ = first.kill() if how == "killed" else first.stop()
        with Server(world, port=first.port) as second, second.client() as other:
            other.wait(run_id)
            other.reply(run_id, "colour", "red")
            watcher.join(DEADLINE_SEC)
            assert not watcher.is_alive()
            assert seen == list(other.events(run_id))
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].data.get("to") == "succeeded"


def test_the_asyncio_client_goes_on_after_a_restart_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asking")

    async def main() -> None:
        first = await asyncio.to_thread(Server, world)
        async with first.async_client() as client, asyncio.timeout(DEADLINE_SEC):
            run = await client.create_run("asking", engine="scripted", mode="interactive")
            seen = []
            async for event in client.follow(run.id):
                seen.append(event)
                if event.type == "interaction.asked":
                    first.kill()
                    second = await asyncio.to_thread(Server, world, port=first.port)
                    await client.reply(run.id, event.data["interaction_id"], "red")
            assert seen == [event async for event in client.events(run.id)]
            second.kill()

    asyncio.run(main())
