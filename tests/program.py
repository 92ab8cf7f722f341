"""Askback as its user starts it: a child program, with or without a terminal, on a world's data folder."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from world import World

T = TypeVar("T")

DEADLINE_SEC = 40.0
ASKBACK = (sys.executable, "-m", "askback")
RUN_ID = re.compile(r"\brun ([0-9a-z]{16})\b")

_CONTROL = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\r")
# A session's leader that opens a terminal gets it as its own: Ctrl-C and a hang-up reach it then.
_ON_TERMINAL = "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"


def environment(world: World, **added: str) -> dict[str, str]:
    """What the program has of its surroundings: nothing of the user who runs the tests."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(world.folder / "home"),
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "ASKBACK_DATA_DIR": str(world.data_dir),
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
    world: World,
    *args: str | bytes,
    stdin: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    program: Sequence[str] = ASKBACK,
) -> Ran:
    """Run a command to its end, without a terminal."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [*program, *args],
        input=data,
        capture_output=True,
        env=environment(world, **(env or {})),
        cwd=cwd or here(world),
        timeout=DEADLINE_SEC,
        check=False,
    )
    return Ran(code=done.returncode, stdout=done.stdout.decode(), stderr=done.stderr.decode())


class Started:
    """A command without a terminal that goes on while the test does; what it prints goes to files."""

    def __init__(
        self, world: World, *args: str, env: Mapping[str, str] | None = None, program: Sequence[str] = ASKBACK
    ) -> None:
        number = len(list(here(world).glob("*.out")))
        self._out, self._err = (here(world) / f"{number}.{name}" for name in ("out", "err"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*program, *args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment(world, **(env or {})),
                cwd=here(world),
            )

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def run_id(self) -> str:
        """The id of its run, once it has said so."""
        return until(lambda: RUN_ID.search(self.stderr), self._alive)[1]

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


class Terminal:
    """A command on a terminal of its own, and the person who sits there. With `stdout`, that goes into a file."""

    def __init__(
        self,
        world: World,
        *args: str,
        stdout: Path | None = None,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = ASKBACK,
    ) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._seen = b""
        self._read_to = 0
        self._out = stdout
        out = slave if stdout is None else os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        launch = (sys.executable, "-I", "-S", "-c", _ON_TERMINAL, os.ttyname(slave))
        self.process = subprocess.Popen(
            [*launch, *program, *args],
            stdin=slave,
            stdout=out,
            stderr=slave,
            env=environment(world, **(env or {})),
            cwd=here(world),
            start_new_session=True,
        )
        for descriptor in {slave, out}:
            os.close(descriptor)

    @property
    def screen(self) -> str:
        """Everything that was shown so far, as lines without control sequences."""
        return _CONTROL.sub(b"", self._seen).decode(errors="replace")

    @property
    def raw(self) -> bytes:
        return self._seen

    def expect(self, text: str) -> str:
        """Wait until this is shown after what was expected before; what was shown up to its end."""
        deadline = time.monotonic() + DEADLINE_SEC
        while (place := self.screen.find(text, self._read_to)) < 0:
            if not self._take(deadline):
                raise AssertionError(f"{text!r} was not shown; the terminal has:\n{self.screen}")
        start, self._read_to = self._read_to, place + len(text)
        return self.screen[start : self._read_to]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def enter(self, text: str = "") -> None:
        self.type(text + "\n")

    def interrupt(self) -> None:
        self.type("\x03")

    def end_input(self) -> None:
        self.type("\x04")

    def hang_up(self) -> int:
        """Close the terminal, as when its window is closed."""
        os.close(self._master)
        self._master = -1
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
        if self._master >= 0:
            os.close(self._master)


def until(look: Callable[[], T], trouble: Callable[[], str | None] = lambda: None) -> T:
    """Wait for what another process does: for something that counts as true. `trouble` ends the wait."""
    deadline = time.monotonic() + DEADLINE_SEC
    while not (found := look()):
        told = trouble() if time.monotonic() < deadline else "it took too long"
        assert told is None, told
        time.sleep(0.005)
    return found
