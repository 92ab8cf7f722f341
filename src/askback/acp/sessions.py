"""A session of the client, and its replay when the client loads it again.

Only the server knows which runs belong to a session, by a label and the token that created them. So any agent with this
token can load it.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from acp.helpers import SessionUpdate

from askback.acp.questions import answer_text, question_text
from askback.acp.updates import EventView, agent_message, closing_text, ending, user_message
from askback.client import AsyncClient, Event, Interaction, Run, ServerFault, ServerUnreachable
from askback.core.events import EventType
from askback.core.interactions import InteractionOutcome
from askback.core.labels import ACP_SESSION

PATIENCE_SEC = 60.0
"""How long a server may be away, for example because it restarts."""
_PAUSE_SEC = 0.5
_ID = re.compile(r"[0-9a-f]{32}")

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Session:
    id: str
    cwd: str
    client: AsyncClient
    runs_dir: Path | None
    """The data folder of the server, if it runs on this machine."""
    work: asyncio.Task[str] | None = None
    """The prompt in progress."""
    canceled: bool = False
    """Whether the client has canceled the prompt in progress."""
    shown: dict[str, int] = field(default_factory=dict)
    """The last event of each run that the client has seen."""
    asked: set[tuple[str, str]] = field(default_factory=set)
    """The run and the interaction of each question that the client has seen. Only these can be answered by a message."""

    @property
    def labels(self) -> dict[str, str]:
        return {ACP_SESSION: self.id}

    def artifact_uri(self, run_id: str) -> str:
        """Where the files of a run are: a folder of this machine, or a URL that needs a token."""
        if self.runs_dir is not None:
            return (self.runs_dir / run_id / "work" / "artifacts").absolute().as_uri()
        return f"{self.client.url.rstrip('/')}/v1/runs/{run_id}/artifacts"

    async def newest_run(self) -> Run | None:
        async for run in self.client.list_runs(labels=self.labels, mine=True, page_size=1):
            return run
        return None

    async def runs(self) -> list[Run]:
        """Oldest first."""
        return [run async for run in self.client.list_runs(labels=self.labels, mine=True)][::-1]


def new_id() -> str:
    return secrets.token_hex(16)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Retry an idempotent call while the server cannot be reached. After `PATIENCE_SEC`, raise the last error."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SEC
    while True:
        try:
            return await call()
        except (ServerUnreachable, ServerFault):
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(_PAUSE_SEC)


# The runs of a session, as the client sees them again when it loads the session.


async def replayed(session: Session) -> AsyncIterator[SessionUpdate]:
    for listed in await session.runs():
        # Only the run itself has its input.
        run = await session.client.get_run(listed.id)
        given = f" {json.dumps(run.input, ensure_ascii=False)}" if run.input else ""
        yield user_message(f"/{run.skill}{given}")
        async for update in _history(session, run):
            yield update
        if run.state.final:
            result = await session.client.result(run.id)
            for update in ending(run, result, session.artifact_uri(run.id)):
                yield update
        elif run.pending_interaction is None:
            yield agent_message(f"Run {run.id} is still in progress; send a message to follow it.")


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
    asked = questions.get(event.data["interaction_id"])
    if asked is None:
        return []
    if event.type == EventType.INTERACTION_ASKED:
        secret = "\n\nThe answer is secret: it is not typed here." if asked.as_core().asks_secrets else ""
        return [agent_message(question_text(asked.as_core()) + secret)]
    if asked.outcome is InteractionOutcome.ANSWERED:
        return [user_message(answer_text(asked))]
    return [agent_message(closing_text(event.data))]
