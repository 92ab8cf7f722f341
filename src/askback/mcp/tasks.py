"""A run as a task of the Tasks extension: who gets one, and what it looks like. The id of a task is the id of its run.

Nothing about a task is stored, so it survives whatever its run survives.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from pydantic import BaseModel, ValidationError

from askback.client import CallFailed, Conflict, Forbidden, Refused
from askback.core.runs import RunState
from askback.mcp.asking import elicitation_for, is_modern
from askback.mcp.caller import Caller, Remembered
from askback.mcp.elicitation import by_form
from askback.mcp.envelope import STATES, enveloped
from askback.questions.forms import form_of
from askback.wire.questions import Interaction
from askback.wire.runs import Run

TASKS = "io.modelcontextprotocol/tasks"
_POLL_MS = 1000
_STATUS = {
    RunState.QUEUED: "working",
    RunState.RUNNING: "working",
    RunState.WAITING_USER: "working",
    RunState.SUCCEEDED: "completed",
    # `failed` is for errors of the protocol alone.
    RunState.FAILED: "completed",
    RunState.CANCELED: "cancelled",
}


def takes_tasks(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the request itself is of the newer protocol and declares the extension."""
    declared = ctx.session.client_capabilities
    return is_modern(ctx) and declared is not None and TASKS in (declared.extensions or {})


async def created_task(ctx: ServerRequestContext[Any, Any], caller: Caller, run: Run) -> dict[str, Any] | None:
    """The task as the result of the call that started its run. None if the token may not poll it."""
    try:
        run = await caller.client.get_run(run.id)
    except Forbidden:
        return None
    asks_client = run.state is RunState.WAITING_USER and await elicitation_for(ctx, caller, run) is not None
    return {"resultType": "task", **task(run, asks_client=asks_client)}


def task(run: Run, *, asks_client: bool = False, answer_url: str | None = None) -> dict[str, Any]:
    """The task on the wire. `asks_client`: whether the client is to bring the pending question to its user."""
    return {
        "taskId": run.id,
        # `input_required` promises requests for this client. A page that the user has opened is none.
        "status": "input_required" if asks_client and run.state is RunState.WAITING_USER else _STATUS[run.state],
        "statusMessage": _message(run, answer_url),
        "createdAt": run.created_at.isoformat(),
        "lastUpdatedAt": run.updated_at.isoformat(),
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
    }


def _message(run: Run, answer_url: str | None) -> str:
    asked = run.pending_interaction
    if run.state is RunState.WAITING_USER and asked is not None:
        where = "" if answer_url is None else f" Answer at {answer_url}"
        return f"The run asks its user: {asked.prompt}{where}"
    if run.state is RunState.FAILED and run.error is not None:
        return f"The run has failed: {run.error.message}"
    return STATES[run.state]


def request_key(asked: Interaction, url: str | None = None) -> str:
    """Names a question in the input requests of a task: another one each time a skill asks, and for another link."""
    key = f"{asked.interaction_id}-{int(asked.asked_at.timestamp() * 1_000_000):x}"
    return key if url is None else f"{key}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"


Context = ServerRequestContext[Any, Any]
_MAX_REACTIONS = 10_000


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    """The reactions of the user, by the keys of the input requests."""

    input_responses: dict[str, Any]


P = TypeVar("P", bound=TaskParams)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    ctx: Context
    caller: Caller
    reactions: Remembered[bool]
    """How users have reacted to questions at a client, so that it is not asked again. True: they have opened the page."""

    async def get(self, params: TaskParams) -> dict[str, Any]:
        run = await self.caller.client.get_run(params.task_id)
        if run.state is RunState.WAITING_USER and run.pending_interaction is not None:
            return await self._asking(run, run.pending_interaction)
        if run.state in (RunState.SUCCEEDED, RunState.FAILED):
            return await self._completed(run)
        return task(run)

    async def _asking(self, run: Run, asked: Interaction) -> dict[str, Any]:
        """The question for this client. If it cannot bring it to a user, or the user declined, its model gets it."""
        elicitation = await elicitation_for(self.ctx, self.caller, run)
        if elicitation is None:
            return await self._completed(run)
        key = request_key(asked, elicitation.url)
        match self.reactions.find((self.caller.identity, run.id, key)):
            case None:
                return {**task(run, asks_client=True), "inputRequests": {key: _wire(elicitation.request)}}
            case True:
                return task(run, answer_url=elicitation.url)
            case False:
                return await self._completed(run)

    async def _completed(self, run: Run) -> dict[str, Any]:
        result = enveloped(await self.caller.envelope(run))
        return {**task(run), "status": "completed", "result": _wire(result)}

    async def update(self, params: UpdateParams) -> dict[str, Any]:
        run = await self.caller.client.get_run(params.task_id)
        asked = run.pending_interaction
        if run.state is not RunState.WAITING_USER or asked is None:
            # What is not asked any more is ignored.
            return {}
        expected = request_key(asked)
        for key, given in params.input_responses.items():
            if key == expected or key.startswith(f"{expected}-"):
                reaction = types.ElicitResult.model_validate(given)
                await self._react(run, asked, reaction)
                question = (self.caller.identity, run.id, key)
                self.reactions.put(question, reaction.action == "accept")
        return {}

    async def _react(self, run: Run, asked: Interaction, reaction: types.ElicitResult) -> None:
        form = form_of(asked)
        if reaction.action != "accept" or form is None:
            # Without a form, the user has opened the page of the question and answers there.
            return
        answer = by_form(asked, form, reaction.content)
        if answer is None:
            raise MCPError(types.INVALID_PARAMS, "the accepted form has no answer")
        # Somebody else may have been faster.
        with suppress(Conflict):
            await self.caller.reply(run.id, asked.interaction_id, answer)

    async def cancel(self, params: TaskParams) -> dict[str, Any]:
        # A run that is over needs no cancellation.
        with suppress(Conflict):
            await self.caller.cancel(params.task_id)
        return {}


def add_tasks(server: Server[Any], callers: Callable[[Context], Caller], *, call_sec: float) -> None:
    """Offer the extension. Each method serves the newer protocol alone, and clients that declare the extension."""
    reactions = Remembered[bool](_MAX_REACTIONS)

    def add(method: str, shape: type[P], act: Callable[[TaskCall, P], Awaitable[dict[str, Any]]]) -> None:
        async def serve(ctx: Context, params: P) -> dict[str, Any]:
            _admit(ctx, method, params.task_id)
            try:
                async with asyncio.timeout(call_sec):
                    return await act(TaskCall(ctx=ctx, caller=callers(ctx), reactions=reactions), params)
            except CallFailed as error:
                if isinstance(error, Refused) and error.status < 500:
                    data = {"code": error.code, "problems": list(error.problems)}
                    raise MCPError(types.INVALID_PARAMS, error.message, data) from None
                raise MCPError(types.INTERNAL_ERROR, error.message) from None
            except TimeoutError:
                raise MCPError(types.INTERNAL_ERROR, f"the server has not answered within {call_sec:g} s") from None
            except ValidationError:
                raise MCPError(types.INVALID_PARAMS, "an input response is not the result of an elicitation") from None

        server.add_request_handler(method, shape, serve)

    add("tasks/get", TaskParams, TaskCall.get)
    add("tasks/update", UpdateParams, TaskCall.update)
    add("tasks/cancel", TaskParams, TaskCall.cancel)
    server.extensions[TASKS] = {}


def _wire(message: BaseModel) -> dict[str, Any]:
    return message.model_dump(by_alias=True, mode="json", exclude_none=True)


def _admit(ctx: Context, method: str, task_id: str) -> None:
    if not is_modern(ctx):
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found", method)
    if ctx.request is not None and decode_header_value(ctx.request.headers.get(MCP_NAME_HEADER)) != task_id:
        raise MCPError(types.HEADER_MISMATCH, f"the header {MCP_NAME_HEADER} must be the taskId")
    if not takes_tasks(ctx):
        required: dict[str, Any] = {"extensions": {TASKS: {}}}
        message = f"the request must declare the extension {TASKS}"
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message, {"requiredCapabilities": required})
