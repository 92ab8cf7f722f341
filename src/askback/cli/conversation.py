"""Following one run in this program: showing what happens, asking its user, and ending it properly on Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from askback.bootstrap import App
from askback.cli import asking
from askback.cli.live import Display, summary
from askback.cli.text import printable, size
from askback.core.errors import Conflict
from askback.core.events import Event, EventType
from askback.core.interactions import Interaction, Json
from askback.core.runs import Run, RunState
from askback.core.views import result_view, run_view

WAITING = 4
"""Exit code of a command that leaves its run waiting for an answer."""
INTERRUPTED = 130


class Conversation:
    """One run and its user. `answers` are given in advance; after them the terminal is asked, if there is one."""

    def __init__(self, app: App, run_id: str, *, answers: Iterable[str], display: Display, can_ask: bool) -> None:
        self._app = app
        self._run_id = run_id
        self._answers = deque(answers)
        self._display = display
        self._can_ask = can_ask
        self.interrupted = False

    async def hold(self, after: int = 0) -> Run:
        """Until the run is over, or waits with nobody here to answer."""
        service = self._app.service
        async with self._canceling_on_interrupt():
            async for event in service.follow(self._run_id, after):
                self._display.event(event)
                if event.type is EventType.INTERACTION_ASKED and not await self._settle(event):
                    break
        return await service.get(self._run_id)

    async def _settle(self, asked: Event) -> bool:
        """See a question answered; False when it is left waiting."""
        run = await self._app.service.get(self._run_id)
        pending = run.pending_interaction
        if pending is None or pending.interaction_id != asked.data["interaction_id"]:
            return True
        try:
            response = await self._answer(pending)
        except (asking.Abandoned, _NobodyHere):
            return False
        if response is None:
            self._display.write("  (settled elsewhere)")
            return True
        try:
            await self._app.service.reply(self._run_id, response, pending.interaction_id)
        except Conflict as error:
            self._display.write(f"  {error.message}")
        return True

    async def _answer(self, pending: Interaction) -> Json:
        if self._answers:
            response = asking.read_answer(pending, self._answers.popleft())
            asking.show(pending, self._display.write)
            shown = "(not shown)" if pending.secret else printable(str(response))
            self._display.write(f"  > {shown}")
            return response
        if not self._can_ask:
            asking.show(pending, self._display.write)
            raise _NobodyHere
        service = self._app.service
        self._display.pause()
        try:
            return await asking.ask(
                pending, self._display.write, lambda: service.settled(self._run_id, pending.interaction_id)
            )
        finally:
            self._display.resume()

    @asynccontextmanager
    async def _canceling_on_interrupt(self) -> AsyncIterator[None]:
        """Ctrl-C once cancels the run and waits for its end; twice leaves at once."""
        loop = asyncio.get_running_loop()
        this = asyncio.current_task()
        cancels: set[asyncio.Task[None]] = set()

        def interrupt() -> None:
            if self.interrupted and this is not None:
                this.cancel()
                return
            self.interrupted = True
            self._display.write("  canceling the run … (Ctrl-C again leaves at once)")
            cancels.add(loop.create_task(self._cancel()))

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await asyncio.gather(*cancels)

    async def _cancel(self) -> None:
        try:
            await self._app.service.cancel(self._run_id)
        except Conflict as error:
            self._display.write(f"  {error.message}")


class _NobodyHere(Exception):
    """There is no terminal to ask on and no answer left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ends, and what it prints for scripts."""

    run: Run
    exit_code: int
    document: dict[str, Any]


async def conclude(app: App, run: Run, display: Display, *, interrupted: bool) -> Ending:
    """Tell how the run stands now; the result itself goes to stdout."""
    document = run_view(run)
    if not run.state.final:
        display.write(_left_waiting(run))
        return Ending(run=run, exit_code=WAITING, document=document)
    result = await app.service.result(run.id)
    folder = app.workspaces.of(run.id).artifacts_path
    files = [{"path": each.path, "size": each.size} for each in result.artifacts]
    display.write(summary(run))
    for each in result.artifacts:
        display.write(f"  {folder / each.path} ({size(each.size)})")
    document |= result_view(run, result.data, files)
    code = {RunState.SUCCEEDED: 0, RunState.FAILED: 1}.get(run.state, INTERRUPTED if interrupted else 1)
    return Ending(run=run, exit_code=code, document=document)


def _left_waiting(run: Run) -> str:
    if run.state is not RunState.WAITING_USER:
        return f"… run {run.id} is {run.state}; go on with: askback run --continue {run.id}"
    return f"… run {run.id} waits for an answer; give it with: askback reply {run.id} TEXT"


def print_result(ending: Ending, *, as_json: bool) -> None:
    """On stdout: with `--json` the whole document, else the checked data of a run that succeeded."""
    if as_json:
        print(json.dumps(ending.document, ensure_ascii=False))
    elif ending.run.state is RunState.SUCCEEDED:
        data = ending.document["data"]
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2)
        print(printable(text) if sys.stdout.isatty() else text)


def in_program(main: Callable[[], Awaitable[int]]) -> int:
    """Run a command's asynchronous part. A terminal that closes, or a TERM, ends it in good order."""

    async def run() -> int:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        ended_by: list[int] = []

        def leave(number: int) -> None:
            ended_by.append(number)
            if this is not None:
                this.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, leave, number)
        try:
            return await main()
        except asyncio.CancelledError:
            return 128 + ended_by[0] if ended_by else INTERRUPTED

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return INTERRUPTED
    except ExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    """The tasks of a command fail as a group; its user wants the one reason."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
