"""Following one run in this program: showing what happens, asking its user, and ending it properly on Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

from askback.bootstrap import App
from askback.cli.exit_codes import Ending, conclude, heeded
from askback.cli.terminal import question
from askback.cli.terminal.live import Display
from askback.cli.terminal.prompt import ANSWER_NEEDED, Abandoned
from askback.core.errors import Conflict
from askback.core.events import Event, EventType
from askback.core.interactions import Interaction, InteractionOutcome, Json
from askback.core.runs import Run
from askback.process.tree import Tree
from askback.text.terminal import count, printable

_SETTLED = {
    InteractionOutcome.ANSWERED: "  (answered elsewhere)",
    InteractionOutcome.AUTO_DECIDED: "  (the time is up: decided without an answer)",
    InteractionOutcome.EXPIRED: "  (the time is up)",
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
    """Carry the run on in this program until it is over, or waits with nobody here to answer; tell how it stands.

    `opening` is shown first. `kept` is False where the data folder goes with the program.
    """
    conversation = Conversation(app, run.id, answers=answers, display=display, can_ask=can_ask)
    if run.state.final:
        conversation.open(opening)
    else:
        try:
            async with app.working():
                run = await conversation.hold(opening, after)
        except asyncio.CancelledError as left:
            if kept:
                left.add_note(f"run {run.id} was left; go on with: askback run --continue {run.id}")
            raise
        # A process that was held ends with this program, and its run with it.
        run = await app.service.store.get(run.id)
        conversation.tell_unused()
    display.pause()
    return await conclude(app, run, display, interrupted=conversation.interrupts > 0, kept=kept)


class Conversation:
    """One run and its user. `answers` are given in advance; after them the terminal is asked, if there is one."""

    def __init__(self, app: App, run_id: str, *, answers: Iterable[str], display: Display, can_ask: bool) -> None:
        self._app = app
        self._run_id = run_id
        self._answers = deque(answers)
        self._display = display
        self._can_ask = can_ask
        self.interrupts = 0

    def open(self, opening: str | None) -> None:
        if opening is not None:
            self._display.write(opening)

    async def hold(self, opening: str | None, after: int) -> Run:
        """Until the run is over, or waits with nobody here to answer."""
        service = self._app.service
        async with self._heeding_interrupts():
            # Whoever sees that it runs may press Ctrl-C at once.
            self.open(opening)
            async for event in service.follow(self._run_id, after):
                self._display.event(event)
                if event.type is EventType.INTERACTION_ASKED and not await self._settle(event):
                    break
        return await service.store.get(self._run_id)

    def tell_unused(self) -> None:
        if self._answers:
            self._display.write(f"  ! {count(len(self._answers), 'answer')} given in advance had no question")

    # Questions.

    async def _settle(self, asked: Event) -> bool:
        """See a question answered; False when it is left waiting."""
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
            await self._tell_settled(pending.interaction_id)
            return True
        try:
            await self._app.service.reply(self._run_id, response, pending.interaction_id)
        except Conflict as error:
            self._display.write(f"  {error.message}")
        return True

    def _leave_to_others(self, run: Run) -> bool:
        """A process that waits with its run is held for whoever answers; any other run can be left."""
        if run.sticky and run.wait_deadline_at is not None:
            until = run.wait_deadline_at.astimezone().strftime("%H:%M:%S")
            self._display.write(
                f"  the engine's process is held until {until}; answer with: askback reply {run.id} TEXT"
            )
        return run.sticky

    async def _answer(self, pending: Interaction) -> Json:
        if self._answers:
            response = question.read_answer(pending, self._answers.popleft())
            question.show(pending, self._display.write)
            shown = "(not shown)" if pending.secret else printable(str(response))
            self._display.write(f"  > {shown}")
            if response != "":
                return response
            self._display.write(f"    {ANSWER_NEEDED}")
        elif not self._can_ask:
            question.show(pending, self._display.write)
        if not self._can_ask:
            raise _NobodyHere
        service = self._app.service
        self._display.pause()
        try:
            return await question.ask(
                pending, self._display.write, lambda: service.settled(self._run_id, pending.interaction_id)
            )
        finally:
            self._display.resume()

    async def _tell_settled(self, interaction_id: str) -> None:
        for interaction in await self._app.service.store.interactions(self._run_id):
            if interaction.interaction_id == interaction_id and interaction.outcome in _SETTLED:
                self._display.write(_SETTLED[interaction.outcome])

    # Ctrl-C.

    @asynccontextmanager
    async def _heeding_interrupts(self) -> AsyncIterator[None]:
        """Once cancels the run and waits for its end; twice does not let the engine end by itself; then we leave."""
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        tasks: set[asyncio.Task[None]] = set()

        def begin(work: Coroutine[Any, Any, None]) -> None:
            tasks.add(loop.create_task(work))

        def interrupt() -> None:
            self.interrupts += 1
            if self.interrupts == 1:
                self._display.write("  canceling the run … (Ctrl-C again ends it at once)")
                begin(self._cancel())
            elif self.interrupts == 2:
                begin(self._kill())
            elif this is not None:
                this.cancel()

        if heeded(signal.SIGINT):
            loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            await asyncio.gather(*tasks)
            loop.remove_signal_handler(signal.SIGINT)

    async def _cancel(self) -> None:
        try:
            await self._app.service.cancel(self._run_id)
        except Conflict as error:
            self._display.write(f"  {error.message}")

    async def _kill(self) -> None:
        await Tree(mark=self._run_id).end(grace_sec=0)


class _NobodyHere(Exception):
    """There is no terminal to ask on and no answer left."""
