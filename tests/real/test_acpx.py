"""`askback acp`, driven by acpx, an ACP client that we did not write: start, question, a killed agent, answer, result."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clis import FOLDER

from askback.client import RunState
from support.data_folder import ASK, FINISH, World
from support.program import ASKBACK, environment, here, until
from support.server import Server

pytestmark = pytest.mark.long
ACPX = FOLDER / "node_modules" / ".bin" / "acpx"
SAY = {"say": "Let me see."}
OWNER_SEC = "600"
"""How long acpx keeps its agent for the next prompt. The test ends it."""
LIMIT_SEC = 240


class Acpx:
    """The program on one session. It starts agents, and keeps them, in the background."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._env = environment(world, PATH=os.environ["PATH"])

    def __call__(self, *words: str) -> str:
        agent = shlex.join([*ASKBACK, "acp"])
        ran = subprocess.run(
            [str(ACPX), "--agent", agent, "--ttl", OWNER_SEC, "--timeout", str(LIMIT_SEC), *words],
            env=self._env,
            cwd=here(self._world),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SEC,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def processes(self, word: str) -> list[int]:
        """Those of this test, with the word among their arguments."""
        home = f"HOME={self._world.folder / 'home'}".encode()
        return [pid for pid, args, env in _running() if word.encode() in args and home in env]

    def end(self, word: str) -> None:
        for pid in self.processes(word):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until(lambda: not self.processes(word))


def _running() -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            args, env = ((folder / name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
        except OSError:
            continue
        yield int(folder.name), args, env


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.skill([SAY, ASK], [{"write": {"path": "artifacts/wall.txt", "text": "painted"}}, FINISH], name="asking")
    return world


@pytest.fixture
def acpx(world: World) -> Iterator[Acpx]:
    if not ACPX.exists() or shutil.which("node") is None or not Path("/proc").is_dir():
        pytest.skip("acpx is not installed: npm install --no-save --prefix tests/real acpx@0.19.1")
    program = Acpx(world)
    try:
        yield program
    finally:
        program.end("__queue-owner")
        program.end("acp")


def test_a_client_of_others_starts_a_run_and_answers_its_question(world: World, acpx: Acpx) -> None:
    with Server(world, env={"ASKBACK_DEFAULT_ENGINE": "scripted"}) as server, server.client() as client:
        session = acpx("sessions", "new").split()[0]
        asked = acpx("prompt", "/asking")
        assert "Let me see." in asked
        assert "Which colour?" in asked
        (run,) = client.list_runs(labels={"acp-session": session})
        acpx.end("__queue-owner")
        acpx.end("acp")
        assert client.get_run(run.id).state is RunState.WAITING_USER
        # Another agent loads the session.
        answered = acpx("prompt", "blue")
        assert "succeeded" in answered
        assert '"colour": "blue"' in answered
        assert [each.id for each in client.list_runs(labels={"acp-session": session})] == [run.id]
        assert client.interactions(run.id)[0].response == "blue"
