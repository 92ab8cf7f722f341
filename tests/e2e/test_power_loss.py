"""What was acknowledged survives a power failure: every file is on the disk before the row that refers to it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import postgres
from support.api import calling, over, reply, start, waiting
from support.data_folder import ASK, World
from support.postgres import databases
from support.power_loss import traced
from support.server import Server

FILE = {"type": "object", "required": ["plan"], "properties": {"plan": {"type": "string", "x-input-source": "file"}}}
ARTIFACT = {"write": {"path": "artifacts/deep/report.txt", "text": "done\n"}}
RED = {"finish": {"colour": "red"}}


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    on_postgres = request.param == "postgres"
    if on_postgres and (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(on_postgres):
        world = World(tmp_path / "world")
        world.skill([RED], name="reading", schemas={"input": FILE})
        world.skill([ASK], [ARTIFACT, RED], name="writing")
        world.skill([ASK], [RED], name="plain")
        yield world


def uploaded(client: httpx.Client, name: str) -> dict[str, Any]:
    response = client.post("/v1/uploads", files={"file": (name, b"content")})
    assert response.status_code == 201, response.text
    return {"upload_id": response.json()["upload_id"]}


def story(client: httpx.Client) -> dict[str, str]:
    """A run that is answered with a file and leaves an artifact, and then one with an input file."""
    plan, answer = uploaded(client, "plan.txt"), uploaded(client, "answer.txt")
    writing = waiting(client, "writing")
    assert reply(client, writing, answer).status_code == 202
    over(client, writing)
    reading = start(client, "reading", mode="auto", input={"plan": plan})
    over(client, reading)
    return {"upload": plan["upload_id"], "reading": reading, "writing": writing}


def test_what_a_row_refers_to_is_on_the_disk_before_the_row_is_written(world: World) -> None:
    with Server(world) as server, calling(server.url, server.token) as client:
        with traced(server.process.pid, world.folder) as traces:
            known = story(client)
        client.get(f"/v1/runs/{known['writing']}/artifacts/deep/report.txt").raise_for_status()
    trace, runs = traces[0], world.data_dir / "runs"
    upload = world.data_dir / "uploads" / known["upload"] / "plan.txt"
    assert trace.lost(upload, known["reading"]) == set()
    inputs = runs / known["reading"] / "work" / "inputs" / "plan" / "plan.txt"
    assert inputs.read_bytes() == b"content"
    assert trace.lost(inputs, known["reading"]) == set()
    (answer,) = (runs / known["writing"] / "work" / "inputs").glob("*/answer.txt")
    assert trace.lost(answer, "The answer is the file") == set()
    # The engine has written its artifact before its versions are recorded.
    ended = trace.stored_at(known["writing"], "succeeded")
    assert trace.syncs(trace.written_at("versions/index.json"), ended) >= 1
    assert trace.lost(runs / known["writing"] / "versions" / "index.json", known["writing"], "succeeded") == set()


def test_runs_without_files_sync_nothing_of_their_own(world: World) -> None:
    with Server(world) as server, calling(server.url, server.token) as client:
        # The first run stores a copy of its skill.
        whole_run(client)
        with traced(server.process.pid, world.folder) as traces:
            whole_run(client)
    assert traces[0].syncs(0, len(traces[0].calls)) == 0


def whole_run(client: httpx.Client) -> None:
    run_id = waiting(client, "plain")
    assert reply(client, run_id, "red").status_code == 202
    over(client, run_id)
