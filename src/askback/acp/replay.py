"""The runs of a session, as the client sees them again when it loads the session."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from acp.helpers import SessionUpdate

from askback.acp.questions import answer_text, question_text, stored
from askback.acp.sessions import Session
from askback.acp.updates import EventView, closing_text, ending, said, typed
from askback.client import Event, Interaction, Run
from askback.core.events import EventType
from askback.core.interactions import InteractionOutcome


async def replayed(session: Session) -> AsyncIterator[SessionUpdate]:
    for listed in await session.runs():
        # Only the run itself has its input.
        run = await session.client.get_run(listed.id)
        yield typed(_command(run))
        async for update in _history(session, run):
            yield update
        if run.state.final:
            result = await session.client.result(run.id)
            for update in ending(run, result, session.artifact_uri(run.id)):
                yield update
        elif run.pending_interaction is None:
            yield said(f"Run {run.id} is still in progress; send a message to follow it.")


async def _history(session: Session, run: Run) -> AsyncIterator[SessionUpdate]:
    view = EventView(run.id)
    questions: dict[str, Interaction] = {}
    async for event in session.client.events(run.id):
        if event.type in (EventType.INTERACTION_ASKED, EventType.INTERACTION_CLOSED):
            questions = questions or {each.interaction_id: each for each in await session.client.interactions(run.id)}
            for update in _exchange(event, questions):
                yield update
            session.asked |= {(run.id, each) for each in questions if each == event.data["interaction_id"]}
        for update in view.updates(event):
            yield update
        session.shown[run.id] = event.seq


def _exchange(event: Event, questions: dict[str, Interaction]) -> list[SessionUpdate]:
    """A question, or how it was closed."""
    asked = questions.get(event.data["interaction_id"])
    if asked is None:
        return []
    if event.type == EventType.INTERACTION_ASKED:
        secret = "\n\nThe answer is secret: it is not typed here." if stored(asked).asks_secrets else ""
        return [said(question_text(stored(asked)) + secret)]
    if asked.outcome is InteractionOutcome.ANSWERED:
        return [typed(answer_text(asked))]
    return [said(closing_text(event.data))]


def _command(run: Run) -> str:
    given = f" {json.dumps(run.input, ensure_ascii=False)}" if run.input else ""
    return f"/{run.skill}{given}"
