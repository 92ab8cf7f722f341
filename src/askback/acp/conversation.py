"""One prompt of a session: it starts a run or answers its question, then follows the run until it asks or ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from acp.helpers import SessionUpdate

from acp import Client as AcpClient
from askback.acp import commands
from askback.acp.asking import Asking, Reach
from askback.acp.questions import is_option, read_reply
from askback.acp.sessions import Session, patiently
from askback.acp.updates import EventView, agent_message, closing_text, ending
from askback.client import CallFailed, Conflict, Event, Refused, Run, RunState, SkillDetails
from askback.client.following import may_settle
from askback.core.errors import AskbackError, RefusalCode
from askback.core.events import EventType
from askback.core.runs import Mode
from askback.text.formatting import nearest

END_TURN = "end_turn"
CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    engine: str | None = None
    in_folder: bool = False
    """Whether the engine works in the folder of the session."""


class Conversation:
    def __init__(self, session: Session, peer: AcpClient, reach: Reach, choices: RunChoices) -> None:
        self._session = session
        self._client = session.client
        self._peer = peer
        self._choices = choices
        self._asking = Asking(session, peer, reach)
        self._asked_id = ""

    async def take(self, text: str) -> str:
        """Carry out a prompt. Returns its stop reason. Every failure is shown to the user."""
        try:
            return await self._take(text)
        except (AskbackError, Refused) as error:
            await self._say("\n".join([f"{error.code}: {error.message}", *(f"- {each}" for each in error.problems)]))
        except CallFailed as error:
            await self._say(f"{error.message}. A run that has started continues; send a message to follow it.")
        return END_TURN

    async def _take(self, text: str) -> str:
        run = await self._session.newest_run()
        if run is None or run.state.final:
            started = await self._start(text)
            return END_TURN if started is None else await self._follow(started.id)
        if commands.read_command(text) == commands.Command(name=commands.CANCEL, rest=""):
            await self.cancel()
        elif run.pending_interaction is not None:
            if not await self._answer(run, text):
                return END_TURN
        else:
            await self._say(f"Run {run.id} is still in progress, so your message was not sent. It is followed here.")
        return await self._follow(run.id)

    async def cancel(self) -> None:
        self._session.canceled = True
        run = await self._session.newest_run()
        if run is not None and not run.state.final:
            with suppress(Conflict):
                await self._client.cancel(run.id)

    async def _start(self, text: str) -> Run | None:
        skill, rest = await self._chosen(text)
        if skill is None:
            return None
        try:
            given = await commands.with_files(self._client, skill, commands.read_input(skill, rest), self._session.cwd)
            run = await self._created(skill, given)
        except (AskbackError, Refused) as error:
            lines = [f"{error.code}: {error.message}", *(f"- {each}" for each in error.problems)]
            # Other input would not help against a missing engine or scope.
            further = ["", commands.usage(skill)] if error.code == RefusalCode.INPUT_INVALID else []
            await self._say("\n".join(lines + further))
            return None
        if self._session.canceled:
            with suppress(Conflict):
                await self._client.cancel(run.id)
        await self._say(f"Run {run.id} of {run.skill} on {run.engine}")
        return run

    async def _created(self, skill: SkillDetails, given: dict[str, object]) -> Run:
        create = partial(
            self._client.create_run,
            skill.id,
            engine=self._choices.engine,
            # Somebody is there to be asked, whatever the skill's default is.
            mode=Mode.INTERACTIVE if Mode.INTERACTIVE in skill.execution_modes else None,
            input=given,
            workdir=self._session.cwd if self._choices.in_folder else None,
            labels=self._session.labels,
            idempotency_key=uuid4().hex,
        )
        return await patiently(create)

    async def _chosen(self, text: str) -> tuple[SkillDetails | None, str]:
        """The skill that the text means, and the rest of the text. If there is none, the user sees why."""
        skills = {skill.id: skill for skill in commands.runnable(await self._client.skills())}
        command = commands.read_command(text)
        if command is not None and command.name in skills:
            return await self._client.skill(command.name), command.rest
        if command is None and len(skills) == 1 and text.strip():
            return await self._client.skill(next(iter(skills))), text.strip()
        if command is not None and command.name == commands.CANCEL:
            await self._say("There is no run to cancel.")
            return None, ""
        lines = [f"- `/{skill.id}`: {commands.about(skill)}" for skill in skills.values()]
        if command is not None:
            near = nearest(command.name, skills)
            lines.insert(0, f"There is no skill {command.name!r}." + (f" Did you mean `/{near}`?" if near else ""))
        heading = "Type the name of a skill and its input:" if skills else "The server has no skill that can be run."
        await self._say("\n".join([heading, "", *lines]))
        return None, ""

    async def _answer(self, run: Run, text: str) -> bool:
        """Send the text as the answer. Returns whether the run continues."""
        assert run.pending_interaction is not None
        question = run.pending_interaction.as_core()
        if question.asks_secrets:
            await self._say("Your message was not sent, because this answer is secret and a chat is kept.")
            return await self._asking.ask(run)
        if (run.id, question.interaction_id) not in self._session.asked:
            await self._say("Your message was not sent, because the run asks something that you have not seen yet.")
            return await self._asking.ask(run)
        command = commands.read_command(text)
        if command is not None and commands.is_skill_id(command.name) and not is_option(question, text):
            await self._say(await self._not_sent(run.id, command.name))
            return False
        await self._asking.reply(run.id, question, read_reply(question, text))
        return True

    async def _not_sent(self, run_id: str, name: str) -> str:
        """Why a command is not an answer."""
        if name == commands.CANCEL or name in {skill.id for skill in await self._client.skills()}:
            first = f"Run {run_id} still waits for an answer."
        else:
            first = (
                f"There is no command `/{name}`, so your message was not sent; run {run_id} still waits for an answer."
            )
        reply = f"If your answer starts with a slash, give it in a terminal: `askback reply {run_id}`"
        return f"{first} Answer it, or cancel it with `/{commands.CANCEL}`, first. {reply}"

    async def _follow(self, run_id: str) -> str:
        """Show what happens until the run is over, or waits for an answer that this prompt cannot bring."""
        events = self._client.follow(run_id, after=self._session.shown.get(run_id, 0))
        view = EventView(run_id)
        asking: asyncio.Task[bool] | None = None
        async with aclosing(events):
            upcoming = asyncio.ensure_future(_next(events))
            try:
                while True:
                    watched = [upcoming] if asking is None else [upcoming, asking]
                    await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                    if asking is not None and asking.done():
                        # Canceled: the question was closed elsewhere.
                        if not asking.cancelled() and not asking.result():
                            return END_TURN
                        asking = None
                    if not upcoming.done():
                        continue
                    event = upcoming.result()
                    upcoming = asyncio.ensure_future(_next(events))
                    if event is None:
                        return await self._conclude(run_id)
                    await self._show(view, event, asking)
                    if (run := await self._waiting(event)) is not None:
                        asking = asyncio.create_task(self._asking.ask(run))
            finally:
                await _end(upcoming, asking)

    async def _show(self, view: EventView, event: Event, asking: asyncio.Task[bool] | None) -> None:
        if event.type == EventType.INTERACTION_ASKED:
            self._asked_id = event.data["interaction_id"]
        if event.type == EventType.INTERACTION_CLOSED:
            await self._asking.closed(event.data["interaction_id"])
            if event.data["interaction_id"] not in self._asking.replied:
                if asking is not None:
                    asking.cancel()
                await self._say(closing_text(event.data))
        for update in view.updates(event):
            await self._send(update)
        self._session.shown[event.run_id] = event.seq

    async def _waiting(self, event: Event) -> Run | None:
        """The run, if it waits for the question of this event now, and not for a later one."""
        if not may_settle(event) or event.data.get("to") != RunState.WAITING_USER:
            return None
        run = await patiently(partial(self._client.get_run, event.run_id))
        pending = run.pending_interaction
        return run if pending is not None and pending.interaction_id == self._asked_id else None

    async def _conclude(self, run_id: str) -> str:
        run = await patiently(partial(self._client.get_run, run_id))
        result = await patiently(partial(self._client.result, run_id))
        for update in ending(run, result, self._session.artifact_uri(run_id)):
            await self._send(update)
        return CANCELLED if run.state is RunState.CANCELED else END_TURN

    async def _say(self, text: str) -> None:
        await self._send(agent_message(text))

    async def _send(self, update: SessionUpdate) -> None:
        await self._peer.session_update(self._session.id, update)


async def _next(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


async def _end(*tasks: asyncio.Future[Any] | None) -> None:
    for task in tasks:
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
