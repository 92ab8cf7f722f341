"""`askback files`, and what commands do to a file store: those that look create nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.blobs.identity import ID_FILE
from support import machines
from support.api import calling, start, waiting
from support.data_folder import ASK, FINISH, World
from support.program import Ran, Started, askback, until
from support.server import Server


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.skill([ASK], [FINISH], name="asking")
    return made


def env(files: Path | None) -> dict[str, str]:
    return {} if files is None else {"ASKBACK_FILES": str(files)}


def on(world: World, files: Path | None, *words: str) -> Ran:
    return askback(world, *words, env=env(files))


def server(world: World, files: Path | None) -> Server:
    return Server(world, env={**env(files), "ASKBACK_SKILLS_DIR": str(world.folder / "skills")})


def doctor(world: World, files: Path | None) -> dict[str, Any]:
    findings = on(world, files, "doctor", "--json").json["findings"]
    return next((each for each in findings if each["what"] == "files"), {})


def runs(**given: int) -> dict[str, int]:
    return {"stored": 0, "not_kept": 0, "not_stored": 0, "not_started": 0, "running": 0, **given}


def test_a_store_is_examined_and_given_up(world: World, tmp_path: Path) -> None:
    stored, absent, empty = (tmp_path / name for name in ("stored", "absent", "empty"))
    assert "`files` is not set" in on(world, None, "files").stdout
    assert doctor(world, None) == {}
    # Before its first use.
    told = doctor(world, stored)
    assert (told["ok"], "the first server creates it" in told["message"]) == (None, True)
    assert on(world, stored, "files", "status", "--json").json == {
        "files": str(stored),
        "id": None,
        "found_id": None,
        "reachable": False,
        "matches": None,
        "problem": None,
        "runs": runs(),
        "looked_for": 0,
        "missing": [],
        "other_machines_wait": None if world.database is None else False,
    }
    assert not stored.exists()
    with server(world, stored) as program, calling(program.url, program.token) as client:
        waiting(client)
        # A program that is running knows the store that it was started with.
        for words in (("files", "forget", "--yes"), ("files", "adopt", "--yes")):
            refused = on(world, stored, *words)
            assert (refused.code, "stop every server and worker" in refused.stderr) == (1, True)
        assert program.stop() == 0
    mark = json.loads((stored / ID_FILE).read_text())["id"]
    seen = on(world, stored, "files", "status", "--json")
    assert (seen.code, seen.json["id"], seen.json["found_id"], seen.json["matches"]) == (0, mark, mark, True)
    assert seen.json["runs"] == runs(stored=1)
    assert f"is the store of this database ({mark})" in on(world, stored, "files").stdout
    assert (seen.json["looked_for"], seen.json["missing"]) == (1, [])
    # Another place, or none.
    empty.mkdir()
    for place in (absent, empty, None):
        ran = on(world, place, "files", "status", "--json")
        assert (ran.code, ran.json["id"], ran.json["found_id"], bool(ran.json["matches"])) == (1, mark, None, False)
        # Nothing is said of what is in the right store.
        assert (ran.json["runs"]["stored"], ran.json["missing"]) == (None, None)
        assert "have their files in the store" not in on(world, place, "files").stdout
        assert doctor(world, place)["ok"] is False
        assert on(world, place, "runs", "--json").code == 0
    assert not absent.exists()
    assert list(empty.iterdir()) == []
    # The way back says what it costs, and is not taken by mistake.
    asked = on(world, stored, "files", "forget")
    assert (asked.code, "files of 1 waiting or queued run are" in asked.stderr) == (1, True)
    ended = Started(world, "serve", "--port", "0").ended()
    assert (ended.code, "askback files forget" in ended.stderr) == (1, True)
    assert on(world, stored, "files", "forget", "--yes", "--json").json == {"changed": True, "runs": 1}
    with server(world, None) as program:
        assert program.stop() == 0


def test_a_command_without_the_setting_executes_nothing(world: World, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    with server(world, stored) as program:
        assert program.stop() == 0
    ran = on(world, None, "run", str(tmp_path / "skills" / "asking"), "--engine", "scripted", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "FILES_UNAVAILABLE")
    assert on(world, None, "runs", "--json").json == []
    ran = on(world, None, "skills", "install", str(tmp_path / "skills" / "asking"), "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "FILES_UNAVAILABLE")
    assert on(world, stored, "skills", "install", str(tmp_path / "skills" / "asking"), "--json").code == 0


def test_a_store_that_lost_its_mark_is_adopted(world: World, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    with server(world, stored) as program, calling(program.url, program.token) as client:
        run_id = waiting(client)
        assert program.stop() == 0
    (stored / ID_FILE).unlink()
    assert Started(world, "serve", "--port", "0", env=env(stored)).ended().code == 1
    assert on(world, stored, "files", "adopt").code == 1
    assert not (stored / ID_FILE).exists()
    assert on(world, stored, "files", "adopt", "--yes").code == 0
    # A copy of the store, with the database of a new machine, is adopted as well.
    other = World(tmp_path / "other")
    other.folder.mkdir()
    copy = tmp_path / "copy"
    shutil.copytree(stored, copy)
    assert Started(other, "serve", "--port", "0", env=env(copy)).ended().code == 1
    adopted = on(other, copy, "files", "adopt", "--yes", "--json").json
    assert adopted == {"changed": True, "id": json.loads((stored / ID_FILE).read_text())["id"]}
    with server(other, copy) as program:
        assert program.stop() == 0
    with server(world, stored) as program, calling(program.url, program.token) as client:
        assert client.get(f"/v1/runs/{run_id}").json()["state"] == "waiting_user"


def test_archives_that_are_not_in_the_store_are_named(world: World, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    with server(world, stored) as program, calling(program.url, program.token) as client:
        lost, there = waiting(client), waiting(client)
        assert program.stop() == 0
    for archive in (stored / "runs" / lost / "kept").iterdir():
        archive.unlink()
    seen = on(world, stored, "files", "status", "--json")
    assert (seen.code, seen.json["missing"], seen.json["problem"]) == (1, [lost], None)
    assert seen.json["runs"] == runs(stored=1)
    said = on(world, stored, "files").stdout
    assert f"the store does not have the files of {lost}: their sessions are lost" in said
    assert "1 have their files in the store" in said
    assert there not in said


def test_the_files_of_earlier_runs_are_counted_until_they_are_stored(world: World, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    world.skill([{"touch": "started"}, {"wait_for": "end"}, FINISH], name="busy")
    with server(world, None) as program, calling(program.url, program.token) as client:
        waiting(client)
        start(client)
        running = start(client, "busy")
        until((world.data_dir / "runs" / running / "work" / "started").exists)
        program.kill()
    before = on(world, stored, "files", "status", "--json").json["runs"]
    assert before["stored"] == 0
    assert before["not_stored"] >= 1
    # Its turn was interrupted.
    assert before["running"] >= 1
    assert "being executed" in on(world, stored, "files").stdout
    (world.data_dir / "runs" / running / "work" / "end").touch()
    with server(world, stored) as program:
        until(lambda: "the files of all waiting and queued runs are stored" in program.stderr)
        left = on(world, stored, "files", "status", "--json").json["runs"]
        assert (left["not_stored"], left["running"]) == (0, 0)
        assert program.stop() == 0


def test_health_notices_that_a_share_is_unmounted(world: World, tmp_path: Path) -> None:
    if (reason := machines.missing()) is not None:
        pytest.skip(reason)
    share, mounted = tmp_path / "share", tmp_path / "mounted"
    share.mkdir(mode=0o700)
    mounted.mkdir(mode=0o700)
    with Server(world, env=env(mounted), program=machines.bound(share, mounted)) as program:

        def told() -> tuple[int, int, str]:
            answers = [httpx.get(f"{program.url}/{name}", timeout=60) for name in ("readyz", "healthz")]
            return answers[0].status_code, answers[1].status_code, answers[1].json()["files"]

        def inside(*words: str) -> None:
            command = ["nsenter", "--mount", f"--target={program.process.pid}", *words]
            subprocess.run(command, check=True, capture_output=True, timeout=60)

        assert (share / ID_FILE).exists()
        # Before the first question: a good answer is remembered for half a minute.
        inside("umount", "--lazy", str(mounted))
        # A server without the file store still serves most requests.
        until(lambda: told() == (200, 503, "FILES_UNAVAILABLE"))
        with httpx.Client(headers={"authorization": f"Bearer {program.token}"}, timeout=60) as client:
            answer = client.post(f"{program.url}/v1/uploads", files={"file": ("plan.txt", b"x")})
            assert (answer.status_code, answer.json()["code"]) == (503, "FILES_UNAVAILABLE")
        assert list(mounted.iterdir()) == []
        inside("mount", "--bind", str(share), str(mounted))
        until(lambda: told() == (200, 200, "ok"))
