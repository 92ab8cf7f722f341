"""An installed `askback` that writes down what an MCP client and `askback mcp` say to each other. Runs as a program, too."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from support.data_folder import World
from support.program import DEADLINE_SEC, environment, here

_SCRIPT = """#!{python}
import sys
if sys.argv[1] == "mcp" and "install" not in sys.argv:
    sys.path[:0] = {path!r}
    from mcp_tap import pass_on
    sys.exit(pass_on([sys.executable, "-m", "askback", *sys.argv[1:]], {folder!r}))
from askback.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap:
    """A program called `askback` in a folder, with the two halves of every conversation beside it."""

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> Tap:
        folder.mkdir()
        program = folder / "askback"
        program.write_text(_SCRIPT.format(python=sys.executable, path=sys.path, folder=str(folder)))
        program.chmod(0o755)
        return cls(folder=folder)

    def install(self, world: World, client: str, env: Mapping[str, str], *options: str) -> dict[str, Any]:
        """`askback mcp install CLIENT` as the user of that client."""
        words = ["mcp", *options, "install", client, "--json", "--yes"]
        ran = subprocess.run(
            [self.folder / "askback", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment(world) | dict(env),
            cwd=here(world),
            timeout=DEADLINE_SEC,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr + ran.stdout
        document: dict[str, Any] = json.loads(ran.stdout)
        return document

    @property
    def from_client(self) -> list[dict[str, Any]]:
        return self._messages("from_client")

    @property
    def from_askback(self) -> list[dict[str, Any]]:
        return self._messages("from_askback")

    def _messages(self, half: str) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob(f"{half}-*"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.endswith("}")]


def pass_on(command: Sequence[str], folder: str) -> int:
    """Start the program and pass everything on, in both directions."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    copies = [Path(folder, f"{half}-{child.pid}") for half in ("from_client", "from_askback")]
    inward = threading.Thread(target=_copy, args=(sys.stdin.buffer, child.stdin, copies[0]), daemon=True)
    inward.start()
    _copy(child.stdout, sys.stdout.buffer, copies[1])
    return child.wait()


def _copy(source: IO[bytes], target: IO[bytes], written: Path) -> None:
    with written.open("wb", buffering=0) as copy:
        for line in iter(source.readline, b""):
            copy.write(line)
            target.write(line)
            target.flush()
    target.close()
