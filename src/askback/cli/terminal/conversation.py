"""A run that this program executes: shows its events, asks its questions, handles Ctrl-C, prints its result."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from askback.app import App
from askback.cli import exit_codes, output
from askback.cli.connection import system_user
from askback.cli.terminal import question
from askback.cli.terminal.forms import format_answer
from askback.cli.terminal.live import Display
from askback.cli.terminal.prompt import ANSWER_NEEDED, Abandoned, Settled, unless_left
from askback.cli.terminal.render import MAX_FILES, changes_lines, ending, who
from askback.core.errors import Conflict
from askback.core.events import Event, EventType
from askback.core.interactions import Interaction, InteractionOutcome, Json
from askback.core.runs import Run, RunState
from askback.process.tree import Tree
from askback.questions.typed_answers import read_answer, refusal
from askback.text.formatting import count, printable, size
from askback.wire import runs as wire
from askback.wire.base import plain
from askback.workspace.artifacts import ARTIFACTS_DIR

_SETTLED = {
    InteractionOutcome.AUTO_DECIDED: "  (time is up: the engine decides without an answer)",
    InteractionOutcome.EXPIRED: "  (time is up)",
    InteractionOutcome.ABANDONED: "  (the run ended without an answer)",
}


async def converse(
    app: App,
    run: Run,
    display: Display,
    *,
    answers: Iterable[str] = (),
    can_ask: bool,
    opening: str | None = None,
    after: int = 0,
    kept: bool = True,
) -> Ending:
    """Execute the run until it is over, or waits and nobody here can answer.

    `opening` is shown first. `kept` is False if the data folder is removed at the end.
    """
    # The process of a sticky run ends with this program.
    can_leave = kept and not run.sticky
    conversation = Conversation(app, run.id, answers=answers, display=display, can_ask=can_ask, can_leave=can_leave)
    if run.state.final and opening is not None:
        display.write(opening)
    if not run.state.final:
        if advice := app.service.engines.missing_sign_in(run.engine):
            display.write(f"! {run.engine} is not signed in; {advice}")
        try:
            async with app.working():
                run = await conversation.hold(opening, after)
        except asyncio.CancelledError as left:
            if kept:
                left.add_note(f"run {run.id} was interrupted; continue it with: askback run --continue {run.id}")
            raise
        # A resident process ends with this program, and its run with it.
        run = await app.service.store.get(run.id)
        conversation.warn_of_unused_answers()
    display.pause()
    return await conclude(app, run, display, interrupted=conversation.interrupts > 0, kept=kept)


class Conversation:
    """One run and its user. Uses `answers` first; after them it asks on the terminal, if there is one."""

    def __init__(
        self, app: App, run_id: str, *, answers: Iterable[str], display: Display, can_ask: bool, can_leave: bool
    ) -> None:
        self._app = app
        self._run_id = run_id
        self._answers = deque(answers)
        self._display = display
        self._can_ask = can_ask
        self._can_leave = can_leave
        self._left: asyncio.Future[None] | None = None
        """Set while a question is at the prompt that can be answered later. Done: the user left it."""
        self.interrupts = 0

    async def hold(self, opening: str | None, after: int) -> Run:
        """Returns when the run is over, or waits and nobody here can answer."""
        service = self._app.service
        async with self._canceling_on_interrupt():
            # The user may press Ctrl-C as soon as this is shown.
            if opening is not None:
                self._display.write(opening)
            async for event in service.follow(self._run_id, after):
                is_expiring, asked = event.type is EventType.INTERACTION_EXPIRING, event.data.get("interaction_id")
                # A question may have been answered at the prompt since its deadline was announced.
                if not is_expiring or await self._pending_id() == asked:
                    self._display.event(event)
                if event.type is EventType.INTERACTION_ASKED and not await self._settle(event):
                    break
        return await service.store.get(self._run_id)

    async def _pending_id(self) -> str | None:
        pending = (await self._app.service.store.get(self._run_id)).pending_interaction
        return None if pending is None else pending.interaction_id

    def warn_of_unused_answers(self) -> None:
        if self._answers:
            self._display.write(f"  ! {count(len(self._answers), 'answer')} given in advance had no question")

    async def _settle(self, asked: Event) -> bool:
        """Get a question answered. False if it is left waiting."""
        run = await self._app.service.store.get(self._run_id)
        pending = run.pending_interaction
        if pending is None or pending.interaction_id != asked.data["interaction_id"]:
            return True
        try:
            response = await self._answer(pending)
        except _NobodyHere:
            return self._leave_to_others(run)
        except Abandoned:
            return False
        if response is None:
            await self._show_settled(pending.interaction_id)
            return True
        try:
            await self._app.service.reply(self._run_id, response, pending.interaction_id, by=system_user())
        except Conflict as error:
            self._display.write(f"  {printable(error.message)}")
        return True

    def _leave_to_others(self, run: Run) -> bool:
        """True for a sticky run: this program keeps its process until somebody else answers."""
        if run.sticky and run.wait_deadline_at is not None:
            until = run.wait_deadline_at.astimezone().strftime("%H:%M:%S")
            command = question.reply_command(run.id, run.pending_interaction)
            self._display.write(f"  the engine's process waits until {until}; answer with: {command}")
            self._display.wait_until(run.wait_deadline_at)
        return run.sticky

    async def _answer(self, pending: Interaction) -> Json:
        if self._answers:
            line = self._answers.popleft()
            response = read_answer(pending, line)
            question.show(pending, self._display.write)
            self._display.write(f"  > {printable(format_answer(pending, response))}")
            why_not = refusal(pending, line) if response != "" else ANSWER_NEEDED
            if why_not is None:
                return response
            self._display.write(f"    {why_not}")
        elif not self._can_ask:
            question.show(pending, self._display.write)
        if not self._can_ask:
            raise _NobodyHere
        return await self._ask(pending)

    async def _ask(self, pending: Interaction) -> Json:
        settled: Settled = partial(self._app.service.settled, self._run_id, pending.interaction_id)
        if self._can_leave:
            self._left = asyncio.get_running_loop().create_future()
            settled = unless_left(settled, self._left)
        self._display.pause()
        try:
            response = await question.ask(pending, self._display.write, settled, can_leave=self._can_leave)
            self._left = None
            return response
        finally:
            self._display.resume()

    async def _show_settled(self, interaction_id: str) -> None:
        for interaction in await self._app.service.store.interactions(self._run_id):
            if interaction.interaction_id != interaction_id:
                continue
            if interaction.outcome is InteractionOutcome.ANSWERED:
                by = interaction.answered_with
                self._display.write(f"  (answered by {who(by)})" if by else "  (answered elsewhere)")
            elif interaction.outcome in _SETTLED:
                self._display.write(_SETTLED[interaction.outcome])

    @asynccontextmanager
    async def _canceling_on_interrupt(self) -> AsyncIterator[None]:
        """Ctrl-C leaves a question waiting; otherwise it cancels the run, then kills its engine, then leaves at once."""
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        tasks: set[asyncio.Task[object]] = set()

        def start(work: Coroutine[Any, Any, object]) -> None:
            tasks.add(loop.create_task(work))

        def interrupt() -> None:
            if self._left is not None:
                # A second Ctrl-C at a question means the same.
                if not self._left.done():
                    self._left.set_result(None)
                return
            self.interrupts += 1
            if self.interrupts == 1:
                self._display.write("  canceling the run … (Ctrl-C again kills the engine)")
                start(self._cancel())
            elif self.interrupts == 2:
                start(Tree(mark=self._run_id).end(grace_sec=0))
            elif this is not None:
                this.cancel()

        if not exit_codes.is_ignored(signal.SIGINT):
            loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            await asyncio.gather(*tasks)
            loop.remove_signal_handler(signal.SIGINT)

    async def _cancel(self) -> None:
        try:
            await self._app.service.cancel(self._run_id, by=system_user())
        except Conflict as error:
            self._display.write(f"  {error.message}")


class _NobodyHere(Exception):
    """There is no terminal to ask on, and no answer left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    run: Run
    exit_code: int
    document: dict[str, Any]


async def conclude(app: App, run: Run, display: Display, *, interrupted: bool, kept: bool = True) -> Ending:
    """Show the state that the run is left in, and its files."""
    shown = wire.Run.of(run)
    document = plain(shown)
    if not run.state.final:
        step = f"run {run.id} is {run.state}; continue it with: askback run --continue {run.id}"
        if not kept:
            step = "the run was not finished, and its files are not kept"
        elif run.state is RunState.WAITING_USER:
            step = question.how_to_answer(run.id, run.pending_interaction)
        display.write(f"… {step}")
        return Ending(run=run, exit_code=exit_codes.WAITING, document=document)
    result = wire.Result.of(await app.service.result(run.id))
    folder = app.workspaces.of(run.id).engine_cwd(run.workdir) / ARTIFACTS_DIR if kept else Path(ARTIFACTS_DIR)
    display.write("\n".join(ending(shown)))
    for each in result.artifacts[:MAX_FILES]:
        display.write(f"  {printable(str(folder / each.path))} ({size(each.size)})")
    if len(result.artifacts) > MAX_FILES:
        display.write(f"  … more than {MAX_FILES} files; all are in {printable(str(folder))}")
    for line in changes_lines(shown.workdir, result.changes):
        display.write(f"  {line}")
    document |= plain(result)
    canceled = exit_codes.INTERRUPTED if interrupted else exit_codes.FAILED
    code = {RunState.SUCCEEDED: 0, RunState.FAILED: exit_codes.FAILED}.get(run.state, canceled)
    return Ending(run=run, exit_code=code, document=document)


def print_result(ending: Ending, *, as_json: bool) -> None:
    """With `--json` the whole document, otherwise the output of a run that succeeded."""
    if as_json:
        output.print_json(ending.document)
    elif ending.run.state is RunState.SUCCEEDED:
        output.print_output(ending.document["data"])
