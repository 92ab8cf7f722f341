"""How the program ends: its exit codes, and being ended from outside."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askback.bootstrap import App
from askback.cli import output
from askback.cli.terminal.live import Display, summary
from askback.core.runs import Run, RunState
from askback.process.workspace import ARTIFACTS_DIR
from askback.text.terminal import printable, size
from askback.wire import runs as wire
from askback.wire.base import plain

FAILED = 1
"""The run failed, or this machine cannot do it."""
BAD_INPUT = 2
NO_SERVER = 3
"""No server answers."""
WAITING = 4
"""The run is left waiting for an answer."""
INTERRUPTED = 130


class EndedBySignal(Exception):
    """Somebody ended the program before it was done; the text says what became of its run."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or f"ended by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Told(Exception):
    """What a server said, or that none answers; `code` is the server's own."""

    def __init__(self, code: str, message: str, problems: Sequence[str] = (), *, exit_code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = tuple(problems)
        self.exit_code = exit_code


_SWITCH_SEC = 0.0005


def in_program(main: Callable[[], Awaitable[int]]) -> int:
    """Run it to its exit code. Raises `EndedBySignal`, or what it raised."""

    async def run() -> int:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        ended_by: list[int] = []

        def leave(number: int) -> None:
            ended_by.append(number)
            if this is not None:
                this.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            if heeded(number):
                loop.add_signal_handler(number, leave, number)
        try:
            return await main()
        except asyncio.CancelledError as error:
            # Whoever was in the middle of something has noted on it what became of that.
            notes = "; ".join(getattr(error, "__notes__", ()))
            raise EndedBySignal(ended_by[0] if ended_by else signal.SIGINT, notes) from None

    # The store's threads answer to the loop; Python's own interval would let the loop keep them waiting for long.
    sys.setswitchinterval(_SWITCH_SEC)
    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        raise EndedBySignal(signal.SIGINT) from None
    except ExceptionGroup as group:
        raise _first(group) from None


def heeded(number: signal.Signals) -> bool:
    """A signal that our caller had us ignore stays ignored: `nohup askback run …`, or a job in the background."""
    return signal.getsignal(number) is not signal.SIG_IGN


def _first(error: BaseException) -> BaseException:
    """The tasks of a command fail as a group; its user wants the one reason."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    run: Run
    exit_code: int
    document: dict[str, Any]


async def conclude(app: App, run: Run, display: Display, *, interrupted: bool, kept: bool = True) -> Ending:
    """Tell how the run stands now; the result itself goes to stdout."""
    document = plain(wire.Run.of(run))
    if not run.state.final:
        display.write(f"… {_how_to_go_on(run)}" if kept else "… the run is left here, and nothing of it is kept")
        return Ending(run=run, exit_code=WAITING, document=document)
    result = await app.service.result(run.id)
    folder = app.workspaces.of(run.id).artifacts_path if kept else Path(ARTIFACTS_DIR)
    files = [wire.Artifact(path=each.path, size=each.size) for each in result.artifacts]
    display.write(summary(run))
    for each in result.artifacts:
        display.write(f"  {printable(str(folder / each.path))} ({size(each.size)})")
    document |= plain(wire.Result.of(run, result.data, files))
    code = {RunState.SUCCEEDED: 0, RunState.FAILED: FAILED}.get(run.state, INTERRUPTED if interrupted else FAILED)
    return Ending(run=run, exit_code=code, document=document)


def _how_to_go_on(run: Run) -> str:
    if run.state is not RunState.WAITING_USER:
        return f"run {run.id} is {run.state}; go on with: askback run --continue {run.id}"
    return f"run {run.id} waits for an answer; give it with: askback reply {run.id} TEXT"


def print_result(ending: Ending, *, as_json: bool) -> None:
    """On stdout: with `--json` the whole document, else the checked data of a run that succeeded."""
    if as_json:
        output.print_json(ending.document)
    elif ending.run.state is RunState.SUCCEEDED:
        data = ending.document["data"]
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2)
        print(printable(text) if sys.stdout.isatty() else text)
