"""Askback as its user starts it: a child program, with or without a terminal, on a world's data folder."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from askback.cli.terminal.prompt import QUIET_SEC
from askback.core.runs import Run
from askback.process.tree import Tree
from support.data_folder import World, run_async
from support.forked_program import Forked, can_be_forked

T = TypeVar("T")

DEADLINE_SEC = 120.0
ASKBACK = (sys.executable, "-m", "askback")
RUN_ID = re.compile(r"\brun ([0-9a-z]{16})\b")

_CONTROL = re.compile(r"(\x1b\[[0-?]*[ -/]*[@-~]|[\r\n])")
# Whoever runs the tests may have had some signals ignored, which is handed down.
_HEEDING = "import os, signal, sys; [signal.signal(each, 0) for each in (1, 2, 15)]; "
_PLAINLY = _HEEDING + "os.execv(sys.argv[1], sys.argv[1:])"
# A session's leader that opens a terminal gets it as its own: Ctrl-C and a hang-up reach it then.
_ON_TERMINAL = _HEEDING + "os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"


def environment(world: World, **added: str) -> dict[str, str]:
    """What the program has of its surroundings: nothing of the user who runs the tests, nor his engines."""
    return {
        "PATH": os.defpath,
        "HOME": str(world.folder / "home"),
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "ASKBACK_DATA_DIR": str(world.data_dir),
        "ASKBACK_SANDBOX": "off",
        **({} if world.database is None else {"ASKBACK_DATABASE": world.database}),
        **added,
    }


def here(world: World) -> Path:
    """The folder that the program is started in."""
    folder = world.folder / "here"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A program that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one document on stdout; anything else there is a mistake."""
        assert self.stdout.count("\n") == 1, f"not one line: {self.stdout!r}; stderr: {self.stderr}"
        return json.loads(self.stdout)


def askback(
    world: World, *args: str | bytes, stdin: str | bytes = b"", env: Mapping[str, str] | None = None, warm: bool = True
) -> Ran:
    """Run a command to its end, without a terminal. Unless `warm`, in a Python of its own, which takes longer."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("in", "out", "err")]
        for path in files:
            path.write_bytes(data if path.name == "in" else b"")
        words = [os.fsencode(word) for word in args]
        start = _run_warm if warm else _run_cold
        code = start(words, environment(world, **(env or {})), here(world), files)
        return Ran(code=code, stdout=files[1].read_text(), stderr=files[2].read_text())


def _run_warm(words: Sequence[bytes], env: Mapping[str, str], cwd: Path, files: Sequence[Path]) -> int:
    return Forked(words, env=env, cwd=cwd, files=files).wait(DEADLINE_SEC)


def _run_cold(words: Sequence[bytes], env: Mapping[str, str], cwd: Path, files: Sequence[Path]) -> int:
    with files[0].open("rb") as given, files[1].open("wb") as out, files[2].open("wb") as err:
        command = [*map(os.fsencode, ASKBACK), *words]
        return subprocess.run(
            command, stdin=given, stdout=out, stderr=err, env=env, cwd=cwd, timeout=DEADLINE_SEC, check=False
        ).returncode


class Started:
    """A command without a terminal that goes on while the test does; what it prints goes to files.

    Unless `warm`, and with another `program`, it has a Python of its own.
    """

    process: subprocess.Popen[bytes] | Forked

    def __init__(
        self,
        world: World,
        *args: str,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = ASKBACK,
        warm: bool = True,
    ) -> None:
        self._world = world
        unique = secrets.token_hex(4)
        self._out, self._err = (here(world) / f"{unique}.{name}" for name in ("out", "err"))
        surroundings = environment(world, **(env or {}))
        if warm and program is ASKBACK and can_be_forked(surroundings):
            files = (os.devnull, self._out, self._err)
            self.process = Forked(map(os.fsencode, args), env=surroundings, cwd=here(world), files=files)
            return
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PLAINLY, *program, *args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=surroundings,
                cwd=here(world),
            )

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def run_id(self) -> str:
        """The id of its run, once it has said so."""
        return str(until(lambda: RUN_ID.findall(self.stderr), self._alive)[0])

    def ended(self) -> Ran:
        code = self.process.wait(DEADLINE_SEC)
        return Ran(code=code, stdout=self._out.read_text(), stderr=self.stderr)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SEC)

    def _alive(self) -> str | None:
        return None if self.process.poll() is None else f"it has ended: {self.stderr}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        if error is not None:
            _end_engines(self._world)


class Terminal:
    """A command on a terminal of its own, and the person who sits there. With `stdout`, that goes into a file."""

    process: subprocess.Popen[bytes] | Forked

    def __init__(
        self,
        world: World,
        *args: str,
        stdout: Path | None = None,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = ASKBACK,
        columns: int = 160,
        warm: bool = True,
    ) -> None:
        self._world = world
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self._seen = b""
        self._read_to = 0
        self._out = stdout
        if stdout is not None:
            stdout.write_bytes(b"")
        surroundings = environment(world, **(env or {}))
        if warm and program is ASKBACK and can_be_forked(surroundings):
            name = os.ttyname(slave)
            self.process = Forked(
                map(os.fsencode, args),
                env=surroundings,
                cwd=here(world),
                files=(name, stdout or name, name),
                terminal=True,
            )
        else:
            self.process = _on_terminal(slave, [*program, *args], stdout, surroundings, here(world))
        os.close(slave)

    @property
    def screen(self) -> str:
        """Everything that was shown so far, as lines without control sequences."""
        return _shown(self._seen.decode(errors="replace"))

    @property
    def raw(self) -> bytes:
        return self._seen

    @property
    def shows_what_is_typed(self) -> bool:
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def expect(self, text: str) -> str:
        """Wait until this is shown after what was expected before; what was shown up to its end."""
        deadline = time.monotonic() + DEADLINE_SEC
        while (place := self.screen.find(text, self._read_to)) < 0:
            if not self._take(deadline):
                raise AssertionError(f"{text!r} was not shown; the terminal has:\n{self.screen}")
        start, self._read_to = self._read_to, place + len(text)
        return self.screen[start : self._read_to]

    def write(self, text: str) -> None:
        os.write(self._master, text.encode())

    def enter(self, text: str = "") -> None:
        """Type a line. An empty one waits until the program takes it for an answer."""
        if not text:
            time.sleep(QUIET_SEC)
        self.write(text + "\n")

    def paste(self, text: str) -> None:
        """As a terminal does it: in brackets, once the program has asked for them."""
        assert self._seen.rfind(b"\x1b[?2004h") > self._seen.rfind(b"\x1b[?2004l")
        data = b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"
        while data:
            readable, _, _ = select.select([self._master], [self._master], [], DEADLINE_SEC)
            if readable:
                self._take(time.monotonic())
            data = data[os.write(self._master, data[:1024]) :]

    def interrupt(self) -> None:
        self.write("\x03")

    def end_input(self) -> None:
        self.write("\x04")

    def close(self) -> None:
        """As when its window is closed."""
        if self._master >= 0:
            os.close(self._master)
        self._master = -1

    def hang_up(self) -> int:
        self.close()
        return self.process.wait(DEADLINE_SEC)

    def ended(self) -> Ran:
        """Read to the end; `stdout` is the file's content, if it was given one."""
        deadline = time.monotonic() + DEADLINE_SEC
        while self._take(deadline):
            pass
        code = self.process.wait(max(0.1, deadline - time.monotonic()))
        return Ran(code=code, stdout="" if self._out is None else self._out.read_text(), stderr=self.screen)

    def run_id(self) -> str:
        self.expect("· run ")
        self.expect("\n")
        found = RUN_ID.search(self.screen)
        assert found is not None, self.screen
        return found[1]

    def _take(self, deadline: float) -> bool:
        """Read what is there; False at the end, or when it takes far too long."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            chunk = os.read(self._master, 65536)
        except OSError:
            return False
        self._seen += chunk
        return bool(chunk)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.close()
        if error is not None:
            _end_engines(self._world)


def _on_terminal(
    slave: int, command: Sequence[str], stdout: Path | None, env: Mapping[str, str], cwd: Path
) -> subprocess.Popen[bytes]:
    launch = (sys.executable, "-I", "-S", "-c", _ON_TERMINAL, os.ttyname(slave))
    with open(stdout or os.ttyname(slave), "wb", buffering=0) as out:
        return subprocess.Popen(
            [*launch, *command], stdin=slave, stdout=out, stderr=slave, env=env, cwd=cwd, start_new_session=True
        )


def _shown(output: str) -> str:
    """The text without its control sequences, apart from those that edit a line: cursor left, right, erase."""
    lines, line, column = [], "", 0
    for part in _CONTROL.split(output):
        if part == "\n":
            lines.append(line)
            line, column = "", 0
        elif part.startswith("\x1b["):
            steps = int(part[2:-1]) if part[2:-1].isdecimal() else 1
            column = max(0, column + {"C": steps, "D": -steps}.get(part[-1], 0))
            line = line[:column] if part[-1] == "J" else line
        elif part != "\r":
            line = line[:column].ljust(column) + part + line[column + len(part) :]
            column += len(part)
    return "\n".join([*lines, line.ljust(column)])


def stored(world: World, run_id: str) -> Run:
    """The run as it stands in the store."""
    found: list[Run] = []

    async def main() -> None:
        async with world.client() as app:
            found.append(await app.service.store.get(run_id))

    run_async(main)
    return found[0]


def work_folder(world: World, run_id: str) -> Path:
    """Where the run's engine works."""
    return world.data_dir / "runs" / run_id / "work"


def _end_engines(world: World) -> None:
    """A test that failed in the middle leaves nothing running."""
    for folder in (world.data_dir / "runs").glob("*"):
        for pid in Tree(mark=folder.name).members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def until(look: Callable[[], T], trouble: Callable[[], str | None] = lambda: None) -> T:
    """Wait for what another process does: for something that counts as true. `trouble` ends the wait."""
    deadline = time.monotonic() + DEADLINE_SEC
    while not (found := look()):
        told = trouble() if time.monotonic() < deadline else "it took too long"
        assert told is None, told
        time.sleep(0.005)
    return found
