"""Ways in which an engine can misbehave, for tests: one function each, called with the player and the step.

Processes that they leave running exit after ten minutes, so that no test leaves one behind forever.
"""

# No pathlib: importing it would take a third of the startup time.
# ruff: noqa: PTH110
from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Protocol

    from .input import Input

    Fault = Callable[..., None]

    class Player(Protocol):
        """The interface of `play.Player` that faults use; importing it would be circular."""

        input: Input | None

        def complete(self, end: bytes = b"\n") -> None: ...
        def fail(self, words: str, exit_code: int) -> NoReturn: ...
        def emit(self, kind: str, **fields: Any) -> None: ...
        def write(self, data: bytes) -> None: ...
        def text(self, value: Any) -> str: ...
        def touch(self, path: str) -> None: ...


_LIFE_SEC = 600
_CHUNK = b"x" * 65_535
_SLEEPER = f"""
import os, signal, sys, time
pid_file, daemon, deaf, closed = sys.argv[1], *(word == "1" for word in sys.argv[2:])
if daemon and os.fork():
    os._exit(0)
if daemon:
    os.setsid()
if deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if closed:
    os.closerange(0, 256)
if pid_file:
    with open(pid_file + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(pid_file + ".part", pid_file)
time.sleep({_LIFE_SEC})
"""

_WORDS = {
    "auth": "unexpected status 401 Unauthorized: Incorrect API key provided",
    "rate_limit": "exceeded retry limit, last status: 429 Too Many Requests",
    "unreachable": "connection failed: error sending request for url (http://127.0.0.1:9/v1)",
    "api_error": "unexpected status 500 Internal Server Error: the model broke off",
}


FAULTS: dict[str, Callable[[Player, dict[str, Any]], None]] = {}


def _fault(*names: str) -> Callable[[Fault], Fault]:
    """Register a fault, by the name of its function or by these names."""

    def register(function: Fault) -> Fault:
        FAULTS.update(dict.fromkeys(names or (function.__name__.removeprefix("_"),), function))
        return function

    return register


def misbehave(player: Player, step: dict[str, Any]) -> None:
    FAULTS[str(step["misbehave"])](player, step)


@_fault()
def _exit_zero_without_result(player: Player, step: dict[str, Any]) -> NoReturn:
    os._exit(0)


@_fault()
def _exit_nonzero(player: Player, step: dict[str, Any]) -> NoReturn:
    os._exit(int(step.get("exit_code", 3)))


@_fault()
def _crash(player: Player, step: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@_fault()
def _stop_itself(player: Player, step: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@_fault()
def _ignore_term(player: Player, step: dict[str, Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@_fault()
def _hang(player: Player, step: dict[str, Any]) -> NoReturn:
    _ignore_term(player, step)
    _keep_running()


@_fault()
def _retry_forever(player: Player, step: dict[str, Any]) -> NoReturn:
    """Retry a server that cannot be reached, and never give up."""
    while True:
        player.emit("retry", message="Reconnecting... waiting for network (connection failed: error sending request)")
        time.sleep(0.2)


@_fault()
def _linger(player: Player, step: dict[str, Any]) -> NoReturn:
    """Complete the turn, but keep the process running."""
    player.complete()
    _keep_running()


@_fault()
def _exit_while_waiting(player: Player, step: dict[str, Any]) -> None:
    """Exit during the next wait for input: after `after_ms`, once the file `when` exists, or immediately."""
    when, ends_at = player.text(step.get("when", "")), time.monotonic() + float(step.get("after_ms", 0)) / 1000

    def meanwhile() -> None:
        if time.monotonic() >= ends_at and (not when or os.path.exists(when)):
            os._exit(int(step.get("exit_code", 0)))

    _while_waiting(player, meanwhile)


@_fault()
def _noise_while_waiting(player: Player, step: dict[str, Any]) -> None:
    """While waiting for input, print lines that are not events, events outside a turn, and `mb` (0) MB of junk."""

    def meanwhile() -> None:
        player.write(b"\xff\xfe\n{\nDownloading an update...\n")
        player.emit("message", text="Nobody asked me.")
        player.emit("turn.completed", usage={})
        _print_junk({"mb": step.get("mb", 0)}, b"\n")
        _while_waiting(player, None)
        if "then_touch" in step:
            player.touch(player.text(step["then_touch"]))

    _while_waiting(player, meanwhile)


def _while_waiting(player: Player, meanwhile: Callable[[], None] | None) -> None:
    if player.input is not None:
        player.input.meanwhile = meanwhile


@_fault()
def _close_stdout_and_live(player: Player, step: dict[str, Any]) -> NoReturn:
    os.close(1)
    os.close(2)
    _keep_running()


def _keep_running() -> NoReturn:
    time.sleep(_LIFE_SEC)
    os._exit(1)


@_fault()
def _spawn_child(player: Player, step: dict[str, Any]) -> None:
    _spawn(player, step, daemon=False)


@_fault()
def _spawn_daemon(player: Player, step: dict[str, Any]) -> None:
    _spawn(player, step, daemon=True)


def _spawn(player: Player, step: dict[str, Any], *, daemon: bool) -> None:
    """Start a process that keeps stdout open. Options: `pid_file`, `ignore_term`, `clear_env`, `close_fds`."""
    pid_file = player.text(step.get("pid_file", ""))
    flags = ["1" if flag else "0" for flag in (daemon, step.get("ignore_term"), step.get("close_fds"))]
    argv = [sys.executable, "-I", "-S", "-c", _SLEEPER, pid_file, *flags]
    os.posix_spawn(sys.executable, argv, {} if step.get("clear_env") else dict(os.environ))
    while pid_file and not os.path.exists(pid_file):
        time.sleep(0.002)


@_fault()
def _fork_chain(player: Player, step: dict[str, Any]) -> None:
    """Start a chain of processes with ever new ids: each forks the next in a new session, and exits."""
    if os.fork():
        return
    until = time.monotonic() + _LIFE_SEC
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
        os.setsid()
    os._exit(0)


@_fault()
def _kill_parent(player: Player, step: dict[str, Any]) -> NoReturn:
    """Kill the parent process, and keep running."""
    os.kill(os.getppid(), signal.SIGKILL)
    _keep_running()


@_fault()
def _flood(player: Player, step: dict[str, Any]) -> None:
    _print_junk(step, b"\n")


@_fault()
def _long_line(player: Player, step: dict[str, Any]) -> None:
    _print_junk(step, b"")
    player.write(b"\n")


@_fault()
def _no_newline(player: Player, step: dict[str, Any]) -> NoReturn:
    _print_junk(step, b"")
    os._exit(0)


def _print_junk(step: dict[str, Any], end: bytes) -> None:
    for _ in range(int(float(step.get("mb", 1)) * 16)):
        os.write(1, _CHUNK + (end or b"x"))


@_fault()
def _unfinished_last_line(player: Player, step: dict[str, Any]) -> NoReturn:
    """Print the end-of-turn event without a newline at its end."""
    player.complete(end=b"")
    os._exit(0)


@_fault()
def _invalid_utf8(player: Player, step: dict[str, Any]) -> None:
    player.write(b"\xff\xfe\x80 not text\n")
    player.write(b'{"type": "message", "text": "broken \xc3\x28 characters \xed\xa0\x80"}\n')


@_fault("auth", "rate_limit", "unreachable", "api_error")
def _fail(player: Player, step: dict[str, Any]) -> None:
    """Fail, unless the file `unless` exists."""
    if "unless" in step and os.path.exists(player.text(step["unless"])):
        return
    words = player.text(step.get("message", _WORDS[step["misbehave"]]))
    player.fail(words, exit_code=int(step.get("exit_code", 1)))


@_fault("other_session", "no_session", "no_gate")
def _nothing(player: Player, step: dict[str, Any]) -> None:
    """`play` handles this fault before its first step."""
