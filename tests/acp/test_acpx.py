"""`askback acp`, driven by acpx, an ACP client that we did not write: start, question, a killed agent, answer, result."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from askback.client import RunState
from support.data_folder import ASK, FINISH, World
from support.peers import peer, peer_env
from support.program import ASKBACK, environment, here, until
from support.server import Server

SAY = {"say": "Let me see."}
OWNER_SEC = "600"
"""How long acpx keeps its agent for the next prompt. The test ends it."""
OWNER, AGENT = "__queue-owner", "acp"
LIMIT_SEC = 120


class Acpx:
    """The program on one session. It starts an agent, and keeps it, in the background."""

    def __init__(self, world: World) -> None:
        self._program = peer("acpx")
        self._world = world
        self._env = peer_env(environment(world))

    def __call__(self, *words: str) -> str:
        agent = shlex.join([*ASKBACK, "acp"])
        ran = subprocess.run(
            [self._program, "--agent", agent, "--ttl", OWNER_SEC, "--timeout", str(LIMIT_SEC), *words],
            env=self._env,
            cwd=here(self._world),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SEC,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def processes(self, word: str | None = None) -> list[int]:
        """Those of this test, or those of them with the word among their arguments."""
        home = f"HOME={self._world.folder / 'home'}".encode()
        found = [(pid, args) for pid, args, env in _running() if home in env]
        return [pid for pid, args in found if word is None or word.encode() in args]

    def end(self, word: str | None = None) -> None:
        """End them, and what they start in the meantime."""

        def ended() -> bool:
            left = self.processes(word)
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        until(ended)


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
    if not Path("/proc").is_dir():
        pytest.skip("/proc is not there: the processes of acpx cannot be found")
    program = Acpx(world)
    try:
        yield program
    finally:
        program.end()


def test_a_client_of_others_starts_a_run_and_answers_its_question(world: World, acpx: Acpx) -> None:
    with Server(world, env={"ASKBACK_DEFAULT_ENGINE": "scripted"}) as server, server.client() as client:
        session = acpx("sessions", "new").split()[0]
        asked = acpx("prompt", "/asking")
        assert "Let me see." in asked
        assert "Which colour?" in asked
        (run,) = client.list_runs(labels={"acp-session": session})
        acpx.end(OWNER)
        acpx.end(AGENT)
        assert client.get_run(run.id).state is RunState.WAITING_USER
        # Another agent loads the session.
        answered = acpx("prompt", "blue")
        assert "succeeded" in answered
        assert '"colour": "blue"' in answered
        assert [each.id for each in client.list_runs(labels={"acp-session": session})] == [run.id]
        assert client.interactions(run.id)[0].response == "blue"
