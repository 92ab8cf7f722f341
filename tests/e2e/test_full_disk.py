"""A server whose disk is full refuses what it cannot store, keeps what there is, and goes on when there is room again."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import Any

import httpx
import pytest
from storm.processes import bearing

from askback.client import Client, Refused, Run
from support.data_folder import ASK, FINISH, World
from support.program import until, work_folder
from support.server import Server

SIZE_MB = 24
BUSY = [{"touch": "started"}, {"wait_for": "speak"}, {"tool": {"name": "look"}}, {"wait_for": "end"}, ASK]
ENV = {"ASKBACK_SLOTS": "4"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world on a small file system of its own."""
    world = World(tmp_path)
    world.data_dir.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=700", "none", str(world.data_dir)]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield world
    subprocess.run(["umount", "--lazy", str(world.data_dir)], check=True)


class Filler:
    """A file that takes all the room there is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "filler"

    def fill(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                while _has_room(file, size):
                    pass

    def free(self) -> None:
        self._path.unlink()


def _has_room(file: RawIOBase, size: int) -> bool:
    """Whether so many bytes could be added."""
    try:
        return file.write(b"x" * size) == size
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


def readiness(server: Server) -> tuple[int, str]:
    answer = httpx.get(f"{server.url}/readyz", timeout=120)
    return answer.status_code, str(answer.json()["machine"])


def settled(client: Client, run_id: str) -> Run:
    """The run once it asks or is over. With a deadline: a run that hangs is what is looked for here."""
    return until(lambda: run if (run := client.get_run(run_id)).settled else None)


def refused_until_full(client: Client, filler: Filler, skill: str) -> list[str]:
    """Submit until there is no room for one more run; the runs that there was room for."""
    made: list[str] = []
    while len(made) < 500:
        filler.fill()
        try:
            made.append(client.create_run(skill, engine="scripted", mode="interactive").id)
        except Refused as refusal:
            if (refusal.status, refusal.code) != (507, "DISK_FULL"):
                raise
            return made
    raise AssertionError("there was room for 500 runs")


@pytest.mark.contract("B-1")
def test_a_full_disk_refuses_and_loses_nothing(world: World) -> None:
    world.skill([ASK], [FINISH], name="asks")
    world.skill(BUSY, [FINISH], name="busy")
    filler = Filler(world.data_dir)
    with Server(world, env=ENV) as server, server.client() as client:
        waiting = settled(client, client.create_run("asks", engine="scripted", mode="interactive").id)
        busy = client.create_run("busy", engine="scripted", mode="interactive")
        until(lambda: (work_folder(world, busy.id) / "started").exists())
        made = refused_until_full(client, filler, "asks")
        # Nothing was executed yet, or it was stored: a run is queued, and says why, or it asks.
        until(lambda: readiness(server) == (503, "DISK_FULL"))
        for run_id in made:
            run = until(lambda run_id=run_id: seen if (seen := client.get_run(run_id)).state != "running" else None)
            assert run.state == "waiting_user" or run.queue_reason == "unready", run
        folders = set(os.listdir(world.data_dir / "runs"))  # noqa: PTH208
        assert folders == {waiting.id, busy.id, *made}
        with pytest.raises(Refused) as refusal:
            client.reply(waiting.id, "colour", "red" * 2000)
        assert refusal.value.status == 507
        assert client.get_run(waiting.id).state == "waiting_user"
        assert client.get_run(busy.id).state == "running"
        filler.free()
        until(lambda: readiness(server) == (200, "ok"))
        (work_folder(world, busy.id) / "speak").touch()
        (work_folder(world, busy.id) / "end").touch()
        for run_id in (waiting.id, busy.id, *made):
            asked = settled(client, run_id)
            assert asked.state == "waiting_user", asked.error
            client.reply(run_id, "colour", f"red {run_id}")
        for run_id in (waiting.id, busy.id, *made):
            assert settled(client, run_id).state == "succeeded"
            assert client.result(run_id).data == {"colour": f"red {run_id}"}
            assert sum(f"red {run_id}" in prompt for prompt in world.prompts(run_id)) == 1
            assert bearing(f"ASKBACK_RUN={run_id}") == set()
        assert {run.id for run in client.list_runs()} == {waiting.id, busy.id, *made}


@pytest.mark.contract("B-1")
@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
@pytest.mark.parametrize("words", [{"tool": {"name": "look", "output": "x" * 4000}}, {"stderr": "x" * 4000}])
def test_a_turn_that_cannot_be_written_down_is_taken_up_again(
    world: World, profile: str, words: dict[str, Any]
) -> None:
    spoken = [words] * 20
    world.skill([{"touch": "started"}, {"wait_for": "speak"}, *spoken, {"wait_for": "end"}, ASK], [FINISH], name="busy")
    filler = Filler(world.data_dir)
    with Server(world, env=ENV) as server, server.client() as client:
        options = {"interactive_profile": profile}
        run = client.create_run("busy", engine="scripted", mode="interactive", options=options)
        work = work_folder(world, run.id)
        until((work / "started").exists)
        made = refused_until_full(client, filler, "busy")
        (work / "speak").touch()
        until(lambda: "interrupted" in server.stderr)
        filler.free()
        for each in (run.id, *made):
            for name in ("speak", "end"):
                (work_folder(world, each) / name).touch()
        for each in (run.id, *made):
            asked = settled(client, each)
            assert asked.state == "waiting_user", asked.error
            client.reply(each, "colour", f"red {each}")
            assert settled(client, each).state == "succeeded"
            assert sum(f"red {each}" in prompt for prompt in world.prompts(each)) == 1
