"""The tutorial works as it is printed: its files are written, its commands typed and its questions answered, in order."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.data_folder import World
from support.program import DEADLINE_SEC, Ran, Terminal, environment, until
from support.server import Server

PAGE = Path(__file__).resolve().parent.parent / "docs/tutorial/first-skill.md"
BLOCK = re.compile(r"^(?:`(?P<path>[\w./-]+)`:\n\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"Your answer.*?: (.+)$", re.MULTILINE)
DURATION = re.compile(r"\(\d+ s, ")
BASH = shutil.which("bash") or "bash"
ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


class Reader:
    """Somebody who follows the tutorial, one step after the other, in the folder that it says."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        (folder / "home").mkdir()
        self._steps = dict(re.findall(r"^## (\d)\. .*?\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE))

    @property
    def folder(self) -> Path:
        return self.world.folder / "home/first-skill"

    def blocks(self, step: int, language: str) -> list[str]:
        found = BLOCK.finditer(self._steps[str(step)])
        return [block["text"] for block in found if block["language"] == language and not block["path"]]

    def write_files(self, step: int) -> None:
        for block in BLOCK.finditer(self._steps[str(step)]):
            if block["path"]:
                (self.folder / block["path"]).write_text(block["text"])

    def enter(self, lines: str, stdin: str = "", **known: str) -> Ran:
        """The lines of a block, in a shell without a terminal."""
        ran = subprocess.run(
            [BASH, "-u", "-c", lines],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment(self.world, **ENVIRONMENT, **known),
            cwd=self.folder if self.folder.exists() else self.world.folder,
            timeout=DEADLINE_SEC,
            check=False,
        )
        return Ran(code=ran.returncode, stdout=ran.stdout, stderr=ran.stderr)

    def terminal(self, lines: str) -> Terminal:
        command = (BASH, "-u", "-c", f"cd {self.folder}\n{lines}")
        return Terminal(self.world, env=ENVIRONMENT, program=command)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """At the end of step 3: the skill is written and checked."""
    reader = Reader(tmp_path)
    set_up, folder = reader.blocks(1, "sh")
    assert set_up == "make demo\n. .venv/bin/activate\n"
    assert reader.enter(folder).code == 0
    for step in (2, 3):
        reader.write_files(step)
    (check,) = reader.blocks(3, "sh")
    checked = reader.enter(check)
    assert (checked.code, checked.stderr) == (0, ""), checked.stdout
    return reader


def test_step_4_shows_what_the_tutorial_shows(reader: Reader) -> None:
    run, in_advance, refused = reader.blocks(4, "sh")
    (shown,) = reader.blocks(4, "text")
    with reader.terminal(run) as terminal:
        for answer in TYPED.findall(shown):
            terminal.expect("Your answer")
            terminal.expect(": ")
            terminal.enter(answer)
        assert terminal.ended().code == 0
    screen = DURATION.sub("(", terminal.screen)
    for line in filter(None, map(str.strip, DURATION.sub("(", shown).splitlines())):
        assert line in screen
        screen = screen.partition(line)[2]

    assert reader.enter(in_advance).code == 0
    assert json.loads((reader.folder / "note.json").read_text())["headline"] == "Search in a blink"
    ran = reader.enter(refused)
    assert ran.code == 2
    assert "input.change: is required" in ran.stderr


def test_steps_5_and_6_leave_a_question_and_answer_it_in_the_inbox(reader: Reader) -> None:
    (run,) = reader.blocks(5, "sh")
    with reader.terminal(run) as terminal:
        terminal.expect("Your answer")
        terminal.end_input()
        ended = terminal.ended()
    assert ended.code == 4
    assert "askback reply " in ended.stderr
    assert reader.blocks(6, "sh") == ["askback serve\n"]
    with Server(reader.world) as server, server.client() as client:
        for answer in ("developers", "Hello, dark mode"):
            (asked,) = until(lambda: list(client.inbox()))
            client.reply(asked.run_id, asked.interaction_id, answer)
        assert client.wait(asked.run_id).state == "succeeded"
        data = client.result(asked.run_id).data
    assert data == {"headline": "Hello, dark mode", "file": "artifacts/release-note.md"}


def test_step_7_leads_to_a_result_by_curl_and_by_the_client(reader: Reader) -> None:
    known, *curl, desk = reader.blocks(7, "sh")
    assert known == "export ASKBACK_URL=http://127.0.0.1:8765 ASKBACK_TOKEN=…\n"
    reader.write_files(7)
    with Server(reader.world) as server:
        address = {"ASKBACK_URL": server.url, "ASKBACK_TOKEN": server.token}
        ran = reader.enter("\n".join(["set -e", *curl]), **address)
        assert (ran.code, ran.stderr) == (0, ""), ran.stdout
        assert '"data":{"headline":"Undo it","file":"artifacts/release-note.md"}' in ran.stdout
        assert ran.stdout.endswith("# Version 2.6\n\nFor users: Undo.\n")
        ran = reader.enter(desk, stdin="developers\nTabs at last\n", **address)
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Who reads the note? ")
    assert ran.stdout.endswith("{'headline': 'Tabs at last', 'file': 'artifacts/release-note.md'}\n")
