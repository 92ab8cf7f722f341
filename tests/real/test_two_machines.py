"""Real engines on two machines: one asks and is lost with its disk, and the other finishes by what the model saw."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from double import ModelDouble, Request, Step, say
from engines_under_test import EngineUnderTest
from suite import finish, heard, question, reply_in

from askback.blobs.base import StoreAddress, read_address
from askback.blobs.object_store import ObjectStoreFiles
from askback.fs.archive_reader import unpack
from askback.workspace.archives import FOLDERS
from support.api import calling, over, reach, reply, start
from support.machines import Fleet, Machine, WorkerProgram
from support.object_store import CREDENTIALS

ENV = {
    **CREDENTIALS,
    "ASKBACK_FLEET__LEASE_SEC": "6",
    # Some of the programs are scripts.
    "PATH": os.environ["PATH"],
}
SIGN_INS = {
    "codex": (".codex/auth.json", {"auth_mode": "apikey", "OPENAI_API_KEY": "TOKEN"}),
    "claude": (
        ".claude/.credentials.json",
        {"claudeAiOauth": {"accessToken": "TOKEN", "refreshToken": "TOKEN", "expiresAt": 4_000_000_000_000}},
    ),
}


@pytest.fixture
def api(fleet: Fleet) -> Iterator[httpx.Client]:
    machine = fleet.machine("api")
    machine.skill(name="asking")
    with machine.server(env=ENV) as server, calling(server.url, server.token) as client:
        yield client


def token_of(machine: Machine) -> str:
    return f"sign-in-of-{machine.name}-0123456789"


def worker(machine: Machine, engine: EngineUnderTest, url: str, probes: Path) -> WorkerProgram:
    """A worker on a machine where the engine is installed, pointed at the double, and signed in."""
    home = machine.folder / "engine-home"
    config = machine.folder / "engines.toml"
    config.write_text(engine.settings(engine.find(), url, home))
    name, content = SIGN_INS[engine.name]
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(json.dumps(content).replace("TOKEN", token_of(machine)))
    if probes.is_file():
        machine.data_dir.mkdir(parents=True, exist_ok=True)
        (machine.data_dir / "probes.json").write_bytes(probes.read_bytes())
    return machine.worker("--config", str(config), env={**ENV, "ASKBACK_SANDBOX": "auto"})


def unpacked(fleet: Fleet, run_id: str, target: Path) -> Path:
    """What the bucket has of the run: one archive."""

    archive = target.with_suffix(".tar.zst")
    address = read_address(fleet.files)
    assert isinstance(address, StoreAddress)
    files = ObjectStoreFiles(address)
    (key,) = [each.key for each in files.list(f"runs/{run_id}/kept/")]
    files.fetch(key, archive)
    target.mkdir()
    with archive.open("rb") as file:
        unpack(file, target, names=FOLDERS)
    return target


def sessions(run: Path, engine: EngineUnderTest) -> list[str]:
    found = (path for pattern in engine.sessions for path in (run / "home").glob(pattern))
    return sorted(path.name for path in found)


def signed_in(machine: Machine, engine: EngineUnderTest, step: Step) -> Step:
    """The step, if the engine that asks for it has the sign-in of this machine."""

    def choose(request: Request) -> Step:
        (copy,) = machine.runs.glob(f"*/home/{SIGN_INS[engine.name][0]}")
        assert token_of(machine) in copy.read_text()
        return step

    return choose


def with_sign_ins(folder: Path, *machines: Machine) -> list[Path]:
    """The files below the folder that have a sign-in of one of the machines."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    return [path for path in files if any(token_of(each).encode() in path.read_bytes() for each in machines)]


@pytest.mark.parametrize("engine", ["codex", "claude"], indirect=True)
@pytest.mark.contract("M-5")
def test_a_real_run_that_asked_on_a_machine_that_is_gone_is_finished_on_another(
    engine: EngineUnderTest, double: ModelDouble, fleet: Fleet, api: httpx.Client, probes: Path, tmp_path: Path
) -> None:
    one, two = fleet.machine("one"), fleet.machine("two")
    seen = probes / f"{engine.name}.json"
    double.play(signed_in(one, engine, say(question())), signed_in(two, engine, say(finish("red"))))
    with worker(one, engine, double.url, seen) as program:
        run_id = start(api, engine=engine.name, options={"turn_timeout_sec": 4 * engine.turn_sec})
        reach(api, run_id, "waiting_user")
        program.kill()
    seen.write_bytes((one.data_dir / "probes.json").read_bytes())
    one.lose_disk()
    asked = unpacked(fleet, run_id, tmp_path / "asked")
    with worker(two, engine, double.url, seen):
        assert reply(api, run_id, "red, please").status_code == 202
        ended = over(api, run_id)
        assert (ended["state"], ended["warnings"]) == ("succeeded", []), ended
        assert api.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "red"}
    # The model saw one conversation.
    last = double.requests[-1]
    assert reply_in("red, please") in heard(last)
    assert sum("Which colour?" in text for text in last.assistant_texts) == 1
    assert set(double.requests[0].user_texts) <= set(last.user_texts)
    assert sessions(asked, engine) == sessions(two.runs / run_id, engine) != []
    # Each machine used its own sign-in, and none of them travelled.
    assert with_sign_ins(asked, one, two) == []
    assert with_sign_ins(unpacked(fleet, run_id, tmp_path / "ended"), one, two) == []
