"""Engines that print as much as they may: nobody else waits for it, and the server's memory stays bounded.

`ASKBACK_TEST_OUTPUT_MB=225` has every turn print nearly all that a turn may print.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import support.talker as talker
from askback.client import Client, Run
from support.data_folder import World
from support.server import Server
from support.watching import Watch, peak_rss_mb

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

OUTPUT_MB = float(os.environ.get("ASKBACK_TEST_OUTPUT_MB", "16"))
MOST_RSS_MB = 400
LONGEST_SEC = 1.0
LONGEST_TURN_SEC = 900.0
CONFIG = (
    f"slots = 4\n[engines.codex]\ncommand = [{json.dumps(sys.executable)}, {json.dumps(str(Path(talker.__file__)))}]\n"
)


class Place:
    """A server with the stand-in, and runs that name the shape of its output."""

    def __init__(self, folder: Path) -> None:
        world = World(folder)
        world.skill(name="talks")
        world.settings(CONFIG)
        self.server = Server(world, "--config", str(folder / "askback.toml"))
        self.client: Client = self.server.client()

    def start(self, shape: str, megabytes: float, **more: Any) -> str:
        options = {"model": f"{shape}-{megabytes}"}
        return self.client.create_run("talks", engine="codex", options=options, **more).id

    def ended(self, run_id: str, *states: str) -> Run:
        def reached() -> Run | None:
            run = self.client.get_run(run_id)
            return run if run.state.final or run.state in states else None

        deadline = time.monotonic() + LONGEST_TURN_SEC
        while (run := reached()) is None:
            assert time.monotonic() < deadline, "it took too long"
            # Whoever asks all the time slows the server down that is watched.
            time.sleep(0.1)
        return run

    def close(self) -> None:
        self.client.close()
        if self.server.process.poll() is None:
            self.server.kill()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("shape", talker.SHAPES)
def test_a_turn_that_prints_all_it_may_keeps_nobody_waiting(place: Place, shape: str) -> None:
    with Watch(place.server.port, place.server.process.pid) as watch:
        # Short lines take longer to read than long ones.
        megabytes = OUTPUT_MB / 3 if shape in talker.SHORT_LINES else OUTPUT_MB
        run = place.ended(place.start(shape, megabytes, mode="auto"))
        seen = watch.seen()
    assert seen.asked > 0
    rss = peak_rss_mb(place.server.process.pid)
    print(f"{shape}: /healthz {seen.server:.2f} s, control {seen.control:.2f} s, {rss:.0f} MB")
    assert str(run.state) == "succeeded", run.error
    assert seen.server < LONGEST_SEC + 2 * seen.control
    assert rss < MOST_RSS_MB


def test_many_talkative_turns_at_once_share_one_bound(place: Place) -> None:
    with Watch(place.server.port, place.server.process.pid) as watch:
        runs = [place.start(shape, OUTPUT_MB / 3, mode="auto") for shape in ("huge", "wide", "braces", "tiny")]
        for run_id in runs:
            assert str(place.ended(run_id).state) == "succeeded"
        seen = watch.seen()
    assert seen.server < LONGEST_SEC + 2 * seen.control
    assert peak_rss_mb(place.server.process.pid) < MOST_RSS_MB


def test_what_is_cut_of_a_talkative_turn_is_said_in_its_warnings(place: Place) -> None:
    tiny = place.ended(place.start("tiny", 6, mode="auto"))
    assert {warning.code for warning in tiny.warnings} == {"ASSISTANT_TEXT_TRUNCATED", "EVENTS_TRUNCATED"}
    events = sum(1 for _ in place.client.events(tiny.id))
    assert 50_000 <= events < 50_100
    huge = place.ended(place.start("huge", 15, mode="auto"))
    assert "ASSISTANT_TEXT_TRUNCATED" in {warning.code for warning in huge.warnings}


def test_a_question_is_bounded_as_a_whole_and_the_inbox_by_its_pages(place: Place) -> None:
    """Twenty streams that nobody reads, on an inbox of the largest questions."""
    runs = [place.start("ask", 0.002, mode="interactive") for _ in range(40)]
    for run_id in runs:
        run = place.ended(run_id, "waiting_user")
        assert "QUESTION_TRUNCATED" in {warning.code for warning in run.warnings}
    headers = {"Authorization": f"Bearer {place.server.token}"}
    before = peak_rss_mb(place.server.process.pid)
    with ExitStack() as open_streams, httpx.Client(base_url=place.server.url, headers=headers, timeout=60) as http:
        for _ in range(20):
            stream = http.stream("GET", "/v1/inbox", headers={"Accept": "text/event-stream"})
            assert open_streams.enter_context(stream).status_code == 200
        found, cursor = [], None
        while True:
            query = {"limit": 200} if cursor is None else {"limit": 200, "cursor": cursor}
            answer = http.get("/v1/inbox", params=query)
            assert len(answer.content) < 1_200_000
            page = answer.json()
            found += page["items"]
            if (cursor := page["next_cursor"]) is None:
                break
        assert peak_rss_mb(place.server.process.pid) < before + 60
    assert [item["run_id"] for item in found] == [
        item["run_id"] for item in sorted(found, key=lambda each: each["asked_at"])
    ]
    assert {item["run_id"] for item in found} == set(runs)
    assert all(len(json.dumps(item, ensure_ascii=False).encode()) < 66_000 for item in found)
    assert all(item["prompt"].startswith("Which one? ") for item in found)
