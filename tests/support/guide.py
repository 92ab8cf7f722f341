"""A guide as its reader follows it: the files are written and the commands typed, block by block, none left out."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.data_folder import World
from support.program import DEADLINE_SEC, environment, until

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs/guides"
BASH = shutil.which("bash") or "bash"
_BLOCK = re.compile(
    r"^(?:`(?P<path>[\w./~\[\]-]+)`:\n\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    language: str
    text: str
    path: str | None = None
    """Where the page says that the reader saves it."""


def blocks(page: str) -> list[Block]:
    found = _BLOCK.finditer((GUIDES / page).read_text(encoding="utf-8"))
    return [Block(language=each["language"], text=each["text"], path=each["path"]) for each in found]


class Reader:
    """Follows one guide. `swapped` is what the test replaces in every block, such as ports that are taken."""

    def __init__(self, page: str, world: World, swapped: Mapping[str, str] = {}) -> None:
        self.world = world
        self.swapped = dict(swapped)
        self.home = world.folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.cwd = ROOT
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = environment(world, PATH=path, ASKBACK_SKILLS_DIR=str(world.folder / "skills"))
        self._blocks = blocks(page)

    def next(self, language: str = "sh") -> str:
        """The next block of the page, which must be in this language and not be a file."""
        block = self._blocks.pop(0)
        assert (block.language, block.path) == (language, None), block
        return self._swap(block.text)

    def write_next(self) -> Path:
        """The next block is a file; its path on the page is relative to where the reader is."""
        block = self._blocks.pop(0)
        assert block.path is not None, block
        path = self.cwd / block.path.replace("~", str(self.home))
        assert not path.is_relative_to(ROOT), path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._swap(block.text))
        return path

    def type(self, lines: str, swapped: Mapping[str, str] = {}) -> str:
        """Type lines into a terminal that keeps its variables and folder; the text on stdout."""
        for old, new in swapped.items():
            assert lines.count(old) == 1, f"{old!r} is not once in {lines}"
            lines = lines.replace(old, new)
        state = self.world.folder / "shell-state"
        ran = subprocess.run(
            [BASH, "-eu", "-c", f"{lines}\n{{ pwd; env -0; }} > '{state}'"],
            env=self.env,
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SEC,
            check=False,
        )
        assert ran.returncode == 0, f"{lines}\n{ran.stdout}{ran.stderr}"
        folder, _, variables = state.read_text().partition("\n")
        self.cwd = Path(folder)
        self.env = dict(each.partition("=")[::2] for each in variables.split("\0") if each)
        return ran.stdout

    @contextmanager
    def running(self, line: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that the reader leaves running in its own terminal, from when it listens."""
        with (
            (self.world.folder / "running.log").open("wb") as log,
            subprocess.Popen(
                [BASH, "-c", f"exec {line}"], cwd=self.cwd, env=self.env, stdout=log, stderr=subprocess.STDOUT
            ) as process,
        ):
            try:
                until(lambda: _listens(address), lambda: None if process.poll() is None else Path(log.name).read_text())
                yield process
            finally:
                process.kill()

    def finish(self) -> None:
        assert self._blocks == [], "the test leaves out blocks of the page"

    def _swap(self, text: str) -> str:
        for old, new in self.swapped.items():
            text = text.replace(old, new)
        return text


def _listens(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=DEADLINE_SEC).close()
    except ConnectionRefusedError:
        return False
    return True
