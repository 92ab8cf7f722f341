"""A fake engine that tries to escape from its sandbox, and records what it reached.

It attacks first and then plays its script as the engine `scripted` does, so that its run succeeds.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from askback.engines.scripted import Scripted
from support.data_folder import World, over, run_async, submit, until

PROGRAM = r"""
import ctypes, fcntl, json, os, socket, subprocess, sys
plan = json.load(open(sys.argv[1]))
command = json.loads(sys.argv[2])

def tried(act, *words):
    try:
        return act(*words)
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"

def read(path):
    if os.path.isdir(path):
        return "listed" if os.listdir(path) else "refused: empty"
    return "read" if open(path, "rb").read() else "refused: empty"

def write(path):
    with open(path, "a") as file:
        file.write("intruder")
    return "written"

def open_to_write(path):
    # Only opened: these files configure this machine's kernel.
    os.close(os.open(path, os.O_WRONLY))
    return "opened"

def connect(address):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as line:
        line.settimeout(10)
        line.connect(address if isinstance(address, str) else tuple(address))
        line.sendall(b"intruder")
    return "connected"

def run(argv):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return "done" if done.returncode == 0 else "refused: " + done.stderr

def call(number):
    libc = ctypes.CDLL(None, use_errno=True)
    # KEYCTL_GET_KEYRING_ID of the session keyring; other calls fail for their arguments, but not with EPERM.
    if libc.syscall(number, 0, -3, 0, 0, 0) < 0:
        return "refused: " + os.strerror(ctypes.get_errno())
    return "called"

ACTS = {"read": read, "open to write": open_to_write, "write": write, "connect": connect, "run": run, "call": call}

if os.path.basename(os.getcwd()) == "work":
    report = {name: tried(ACTS[kind], what) for name, (kind, what) in plan.items() if kind in ACTS}
    report["tty"] = tried(os.open, "/dev/tty", os.O_RDWR)
    for name, (kind, port) in plan.items():
        if kind == "listen":
            # Until the test has searched for it from outside.
            listener = socket.create_server(("0.0.0.0", port))
            listener.settimeout(0.05)
            open("listening", "w").close()
            while not os.path.exists("looked"):
                try:
                    listener.accept()[0].sendall(b"intruder")
                except TimeoutError:
                    pass
    with open("report.json", "w") as file:
        json.dump(report, file)
os.execv(command[0], [*command, *sys.argv[3:]])
"""

Plan = Mapping[str, tuple[str, Any]]
"""Attempts by name: the action and its target."""


class Intrusion:
    """A run of the fake engine, and its report."""

    def __init__(
        self, world: World, sandbox: str, plan: Plan, *, settings: str = "", program: Path | None = None
    ) -> None:
        self._world = world
        folder = world.folder / "tools"
        folder.mkdir(exist_ok=True)
        self._program = program or folder / "intruder.py"
        self._program.write_text(PROGRAM)
        (folder / "plan.json").write_text(json.dumps(plan))
        words = [sys.executable, "-I", "-S", str(self._program), str(folder / "plan.json")]
        command = json.dumps([*words, json.dumps(Scripted.default_command)])
        self.config = f'sandbox = "{sandbox}"\n{settings}\n[engines.scripted]\ncommand = {command}\n'

    def report(self, look: Callable[[], None] | None = None) -> dict[str, str]:
        """Its report; a refused attempt says so. `look` is called while it listens."""
        found: dict[str, str] = {}

        async def main() -> None:
            async with self._world.working(self.config, serving=True) as app:
                run = await submit(app, self._world.skill([{"finish": {"colour": "red"}}]))
                if look is not None:
                    await until((self._work(run.id) / "listening").exists)
                    await asyncio.to_thread(look)
                    (self._work(run.id) / "looked").touch()
                run = await over(app, run.id)
                assert run.error is None, run.error
                found.update(json.loads((app.workspaces.of(run.id).cwd / "report.json").read_text()))

        run_async(main)
        return found

    def _work(self, run_id: str) -> Path:
        return self._world.data_dir / "runs" / run_id / "work"


def got(report: Mapping[str, str]) -> list[str]:
    """The attempts that succeeded."""
    return sorted(name for name, result in report.items() if not str(result).startswith("refused"))


@contextmanager
def counting(address: str | tuple[str, int]) -> Iterator[list[bytes]]:
    """A server that stores what its clients send, like an agent or a database on this machine."""
    said: list[bytes] = []
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as server:
        server.bind(address)
        server.listen()
        server.settimeout(0.05)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                with suppress(TimeoutError), server.accept()[0] as visitor:
                    visitor.settimeout(10)
                    said.append(visitor.recv(100))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield said
        finally:
            ended.set()
            thread.join()
            if isinstance(address, str) and not address.startswith("\0"):
                Path(address).unlink()
