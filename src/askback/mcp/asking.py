"""Bringing a question to the user of a client that declares elicitation.

Only `accept` is an answer. A client without a user declines at once: the run keeps waiting, and the model gets the question.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from askback.client import CallFailed, Forbidden, Refused
from askback.core.errors import RefusalCode
from askback.mcp.caller import Caller, Progress
from askback.mcp.elicitation import by_form, message_of
from askback.mcp.envelope import error_text
from askback.questions.forms import Form, form_of
from askback.wire.questions import Interaction
from askback.wire.runs import Run

log = logging.getLogger(__name__)

_LATE_SEC = 3600.0
"""How long an answer still counts after the call has returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How the user of the client reacted."""

    run: Run
    answered: bool
    problem: str = ""
    """Why an accepted form was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitation:
    """One question for the user of a client."""

    run: Run
    question: Interaction
    form: Form | None
    url: str | None

    @property
    def message(self) -> str:
        return message_of(self.run, self.question)

    @property
    def request(self) -> types.ElicitRequest:
        if self.form is not None:
            form = types.ElicitRequestFormParams(message=self.message, requested_schema=self.form.schema)
            return types.ElicitRequest(params=form)
        assert self.url is not None
        return types.ElicitRequest(params=types.ElicitRequestURLParams(message=self.message, url=self.url))

    @property
    def state(self) -> str:
        """What a client returns with the user's reaction, so that it finds the run. Sealed by the SDK."""
        return json.dumps([self.run.id, self.question.interaction_id])


async def elicitation_for(ctx: ServerRequestContext[Any, Any], caller: Caller, run: Run) -> Elicitation | None:
    """How to bring the pending question to the user; None if this client cannot."""
    asked, declared = run.pending_interaction, ctx.session.client_capabilities
    able = None if declared is None else declared.elicitation
    if asked is None or able is None:
        return None
    form = form_of(asked)
    if form is not None and (able.form is not None or able.url is None):
        return Elicitation(run=run, question=asked, form=form, url=None)
    if form is None and able.url is not None and (url := await caller.answer_url(run.id, asked)) is not None:
        return Elicitation(run=run, question=asked, form=None, url=url)
    return None


def is_modern(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether a question is returned as the result of the call, and not sent as a request."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def input_required(elicitation: Elicitation) -> types.InputRequiredResult:
    requests = {elicitation.question.interaction_id: elicitation.request}
    return types.InputRequiredResult(input_requests=requests, request_state=elicitation.state)


async def taken_up(caller: Caller, params: types.CallToolRequestParams, until: float, progress: Progress) -> Asked:
    """The run of a call that a client repeats with the reaction of its user. It is never started again."""
    run_id, interaction_id = json.loads(params.request_state or "")
    run = await caller.client.get_run(run_id)
    reaction = (params.input_responses or {}).get(interaction_id)
    asked = run.pending_interaction
    if asked is None or asked.interaction_id != interaction_id:
        # Somebody else has answered in the meantime.
        return Asked(run=run, answered=True)
    if not isinstance(reaction, types.ElicitResult):
        return Asked(run=run, answered=False)
    return await _reacted(caller, run, asked, reaction, until, progress)


async def asked_now(
    ctx: ServerRequestContext[Any, Any], caller: Caller, elicitation: Elicitation, until: float, progress: Progress
) -> Asked:
    """Ask the user by a request to the client. An answer that comes after the call has returned still counts.

    If the same question is asked again in the meantime, this form is closed and the call returns unanswered.
    """
    task = asyncio.ensure_future(_elicit(ctx, caller, elicitation, until, progress))
    caller.forms.add(caller.key_of(elicitation.run.id, elicitation.question), task)
    began = time.monotonic()
    while (left := until - time.monotonic()) > 0:
        done, _ = await asyncio.wait([task], timeout=min(left, 10.0))
        if task.cancelled():
            break
        if done:
            return task.result()
        await progress(time.monotonic() - began, f"run {elicitation.run.id} waits for its user")
    return Asked(run=elicitation.run, answered=False)


async def _elicit(
    ctx: ServerRequestContext[Any, Any], caller: Caller, elicitation: Elicitation, until: float, progress: Progress
) -> Asked:
    unanswered = Asked(run=elicitation.run, answered=False)
    try:
        async with asyncio.timeout(_LATE_SEC):
            reaction = await _sent(ctx, elicitation)
        return await _reacted(caller, elicitation.run, elicitation.question, reaction, until, progress)
    except (MCPError, ValueError, TimeoutError) as error:
        log.info("a client did not bring a question of run %s to its user: %s", elicitation.run.id, error)
        return unanswered
    except CallFailed as error:
        if time.monotonic() < until:
            raise
        log.info("a late answer to run %s was refused: %s", elicitation.run.id, error.message)
        return unanswered


async def _sent(ctx: ServerRequestContext[Any, Any], elicitation: Elicitation) -> types.ElicitResult:
    if elicitation.form is not None:
        shown = elicitation.form.schema
        return await ctx.session.elicit_form(elicitation.message, shown, related_request_id=ctx.request_id)
    assert elicitation.url is not None
    name = f"{elicitation.run.id}-{elicitation.question.interaction_id}"
    return await ctx.session.elicit_url(elicitation.message, elicitation.url, name, related_request_id=ctx.request_id)


async def _reacted(
    caller: Caller, run: Run, asked: Interaction, reaction: types.ElicitResult, until: float, progress: Progress
) -> Asked:
    if reaction.action != "accept":
        return Asked(run=run, answered=False)
    form = form_of(asked)
    if form is None:
        # The user has opened the page of the question.
        return Asked(run=await caller.closed(run, asked.interaction_id, until, progress), answered=True)
    try:
        answer = by_form(asked, form, reaction.content)
        if answer is None:
            return Asked(run=run, answered=False)
        return Asked(run=await caller.reply(run.id, asked.interaction_id, answer), answered=True)
    except Refused as error:
        if error.code != RefusalCode.REPLY_INVALID and not isinstance(error, Forbidden):
            raise
        # The run waits. Its caller needs to know the question, to ask again.
        log.info("an answer to run %s was refused: %s", run.id, error.message)
        return Asked(run=run, answered=False, problem=error_text(error))
