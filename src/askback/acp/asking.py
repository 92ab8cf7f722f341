"""How the user is asked: by an elicitation where the client has them, otherwise by a message. Only `accept` is a reply."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pydantic import ValidationError

from acp import Client as AcpClient
from acp import RequestError
from acp import schema as protocol
from askback.acp.questions import check_reply, elicitation_of, form_text, question_text
from askback.acp.sessions import Session, patiently
from askback.acp.updates import agent_message
from askback.client import CallFailed, Conflict, Refused, Run, ServerFault, ServerUnreachable
from askback.core.errors import Invalid
from askback.core.interactions import Interaction, Json
from askback.questions.forms import Form, form_of

_LATER = "The run waits. Reply here at any time, on the page, or with: `askback reply {run_id}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    forms: bool = False
    urls: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Asking:
    session: Session
    peer: AcpClient
    reach: Reach
    _opened: dict[str, str] = field(init=False, default_factory=dict)
    """The elicitation with a URL of each question."""
    replied: set[str] = field(init=False, default_factory=set)
    """The questions that were answered here."""

    async def ask(self, run: Run) -> bool:
        """Ask the pending question. Returns whether the run continues, or will: False if it waits for another prompt."""
        assert run.pending_interaction is not None
        question = run.pending_interaction.as_core()
        self.session.asked.add((run.id, question.interaction_id))
        if question.asks_secrets:
            return await self._ask_by_link(run.id, question)
        form = form_of(question, rich=True) if self.reach.forms else None
        schema = None if form is None else elicitation_of(form)
        if form is None or schema is None:
            await self._say(question_text(question))
            return False
        return await self._ask_by_form(run.id, question, form, schema)

    async def reply(self, run_id: str, question: Interaction, response: Json) -> None:
        """Send an answer. If the question was closed in the meantime, the events say by whom."""
        self.replied.add(question.interaction_id)
        send = partial(self.session.client.reply, run_id, question.interaction_id, response)
        try:
            await send()
        except (ServerUnreachable, ServerFault):
            # It may have been stored: then the second one is refused.
            with suppress(Conflict):
                await patiently(send)
        except Conflict:
            self.replied.discard(question.interaction_id)
        except Refused:
            self.replied.discard(question.interaction_id)
            raise

    async def closed(self, interaction_id: str) -> None:
        """Tell the client that a URL is no longer needed."""
        if elicitation_id := self._opened.pop(interaction_id, None):
            await self.peer.complete_elicitation(elicitation_id)

    async def _ask_by_form(
        self, run_id: str, question: Interaction, form: Form, schema: protocol.ElicitationSchema
    ) -> bool:
        mode = protocol.ElicitationFormSessionMode(session_id=self.session.id, requested_schema=schema)
        content = await self._accepted(form_text(question), mode)
        if content is None:
            await self._say(f"{question_text(question)}\n\n{_LATER.format(run_id=run_id)}")
            return False
        try:
            response = form.answer(content)
            check_reply(question, response)
            await self.reply(run_id, question, response)
        except (Invalid, Refused) as error:
            # Not again by a form: a client that answers by itself would do so forever.
            problems = [f"{error.message}:", *(f"- {each}" for each in error.problems)]
            await self._say("\n".join([*problems, "", question_text(question)]))
            return False
        return True

    async def _ask_by_link(self, run_id: str, question: Interaction) -> bool:
        """A secret is not typed into a chat: it is asked on a page."""
        try:
            link = await self.session.client.link(run_id)
        except CallFailed as error:
            await self._say(f"{question_text(question)}\n\n{_secret_text(run_id, None)} ({error.message})")
            return False
        if self.reach.urls:
            elicitation_id = f"{run_id}-{link.id}"
            self._opened[question.interaction_id] = elicitation_id
            mode = protocol.ElicitationUrlSessionMode(
                session_id=self.session.id,
                elicitation_id=elicitation_id,
                url=link.url,
            )
            if await self._accepted(form_text(question), mode) is not None:
                return True
            self._opened.pop(question.interaction_id, None)
        await self._say(f"{question_text(question)}\n\n{_secret_text(run_id, link.url)}")
        return False

    async def _accepted(
        self, message: str, mode: protocol.ElicitationFormSessionMode | protocol.ElicitationUrlSessionMode
    ) -> Mapping[str, Json] | None:
        """What the user has entered; None unless it was accepted."""
        try:
            answer = await self.peer.create_elicitation(message, mode)
        except (RequestError, ValidationError):
            # A client may declare more than it can do.
            return None
        if not isinstance(answer, protocol.AcceptElicitationResponse):
            return None
        return dict(answer.content or {})

    async def _say(self, text: str) -> None:
        await self.peer.session_update(self.session.id, agent_message(text))


def _secret_text(run_id: str, url: str | None) -> str:
    page = "" if url is None else f"Open {url} to answer. "
    return f"The answer is secret: do not type it here. {page}In a terminal: `askback reply {run_id}`"
