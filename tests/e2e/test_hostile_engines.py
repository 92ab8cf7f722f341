"""Engines at their worst, all at once on one server: canceled, out of time, or their server killed. Seen in `/proc`."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from storm.processes import bearing, told

from askback.client import Client, Run
from askback.process.guardian import client as guardian
from support.data_folder import World
from support.program import until, work_folder
from support.server import Server

pytestmark = pytest.mark.skipif(not guardian.available(), reason="no guardian on this system")

SURVIVAL_SEC = 5.0
MOST_RSS_MB = 200
LIVE = {"sleep_sec": 600}
DAEMON = {"misbehave": "spawn_daemon", "pid_file": "daemon", "clear_env": True, "close_fds": True, "ignore_term": True}
HOSTILE: Mapping[str, list[dict[str, Any]]] = {
    "ignores-term": [{"misbehave": "hang"}],
    "leaves-a-daemon": [DAEMON, LIVE],
    "leaves-a-daemon-and-ends": [DAEMON, {"misbehave": "exit_zero_without_result"}],
    "floods": [{"misbehave": "flood", "mb": 2000}, LIVE],
    "long-line": [{"misbehave": "long_line", "mb": 50}, LIVE],
    "no-newline": [{"misbehave": "no_newline", "mb": 20}],
    "no-text": [{"misbehave": "invalid_utf8"}, LIVE],
    "closes-its-output": [{"misbehave": "close_stdout_and_live"}],
    "exits-without-a-result": [{"misbehave": "exit_zero_without_result"}],
    "stops-itself": [{"misbehave": "stop_itself"}, LIVE],
}
LASTING = frozenset({"ignores-term", "leaves-a-daemon", "long-line", "no-text", "closes-its-output", "stops-itself"})
"""Those that live until they are ended."""
ENDING = frozenset({"leaves-a-daemon-and-ends", "no-newline", "exits-without-a-result"})


class Stage:
    """A server and a run of every hostile engine on it."""

    def __init__(self, folder: Path, sandbox: str, **options: Any) -> None:
        self._world = World(folder)
        self._mark = f"hostile-{secrets.token_hex(8)}"
        for name, steps in HOSTILE.items():
            self._world.skill([{"touch": "started"}, *steps], name=name)
        self._world.settings(f'slots = 20\n[engines.scripted]\nextra_args = ["--model={self._mark}"]\n')
        config = str(folder / "askback.toml")
        self.server = Server(self._world, "--config", config, env={"ASKBACK_SANDBOX": sandbox})
        self.client = self.server.client()
        self.runs = {name: self._start(self.client, name, options) for name in HOSTILE}

    def _start(self, client: Client, name: str, options: dict[str, Any]) -> str:
        return client.create_run(name, engine="scripted", mode="auto", options=options).id

    def wait_until_all_are_at_it(self) -> None:
        for run_id in self.runs.values():
            until((work_folder(self._world, run_id) / "started").exists)

    def states(self) -> dict[str, str]:
        """How each run ended, by its error's code where it has one."""
        ended = {name: until(partial(self._ended, run_id)) for name, run_id in self.runs.items()}
        return {name: run.error.code if run.error else str(run.state) for name, run in ended.items()}

    def _ended(self, run_id: str) -> Run | None:
        run = self.client.get_run(run_id)
        return run if run.state.final else None

    def survivors(self) -> list[str]:
        """Of the runs and of what they left: by the mark in their command lines, and by the runs' own."""
        marks = [f"ASKBACK_RUN={run_id}" for run_id in self.runs.values()]
        return [told(process) for process in bearing(self._mark, *marks)]

    def peak_rss_mb(self) -> float:
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        (peak_kb,) = re.findall(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        print(f"the server took at most {int(peak_kb) // 1024} MB")
        return int(peak_kb) / 1024

    def close(self) -> None:
        self.client.close()
        if self.server.process.poll() is None:
            self.server.kill()


@pytest.fixture
def stages() -> Iterator[list[Stage]]:
    made: list[Stage] = []
    yield made
    for stage in made:
        stage.close()


@pytest.mark.contract("B-2", "B-3")
@pytest.mark.parametrize("sandbox", [pytest.param("off", marks=pytest.mark.long), "auto"])
def test_nothing_lives_of_a_hostile_engine_that_is_canceled(tmp_path: Path, stages: list[Stage], sandbox: str) -> None:
    stages.append(stage := Stage(tmp_path, sandbox))
    stage.wait_until_all_are_at_it()
    for name in LASTING:
        stage.client.cancel(stage.runs[name])
    ended = stage.states()
    assert stage.survivors() == []
    assert {name: ended[name] for name in LASTING} == dict.fromkeys(LASTING, "canceled")
    assert ended["floods"] == "OUTPUT_LIMIT_EXCEEDED"
    assert {ended[name] for name in ENDING} == {"ENGINE_CRASHED"}
    assert stage.peak_rss_mb() < MOST_RSS_MB


@pytest.mark.contract("B-3")
def test_nothing_lives_of_a_hostile_engine_whose_time_is_up(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := Stage(tmp_path, "off", turn_timeout_sec=3))
    ended = stage.states()
    assert stage.survivors() == []
    assert {name: ended[name] for name in LASTING} == dict.fromkeys(LASTING, "TURN_TIMEOUT")
    assert set(ended.values()) <= {"TURN_TIMEOUT", "OUTPUT_LIMIT_EXCEEDED", "ENGINE_CRASHED"}
    assert stage.peak_rss_mb() < MOST_RSS_MB


@pytest.mark.contract("B-3")
@pytest.mark.parametrize("sandbox", ["off", pytest.param("auto", marks=pytest.mark.long)])
def test_nothing_lives_of_a_hostile_engine_whose_server_is_killed(
    tmp_path: Path, stages: list[Stage], sandbox: str
) -> None:
    stages.append(stage := Stage(tmp_path, sandbox))
    stage.wait_until_all_are_at_it()
    assert stage.survivors() != []
    stage.server.kill()
    deadline = time.monotonic() + SURVIVAL_SEC
    while (left := stage.survivors()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
