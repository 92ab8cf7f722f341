"""A run as a task of the Tasks extension: who gets one, and what it looks like. The id of a task is the id of its run.

Nothing about a task is stored, so it survives whatever its run survives.
"""

from __future__ import annotations

import hashlib
from typing import Any, assert_never

from mcp.server.context import ServerRequestContext

from askback.client import Forbidden
from askback.core.runs import RunState
from askback.mcp.asking import elicitation_for, is_modern
from askback.mcp.caller import Caller
from askback.mcp.envelope import state_text
from askback.wire.questions import Interaction
from askback.wire.runs import Run

TASKS = "io.modelcontextprotocol/tasks"
_POLL_MS = 1000


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
        "status": _status(run.state, asks_client=asks_client),
        "statusMessage": _message(run, answer_url),
        "createdAt": run.created_at.isoformat(),
        "lastUpdatedAt": run.updated_at.isoformat(),
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
    }


def _status(state: RunState, *, asks_client: bool) -> str:
    match state:
        case RunState.QUEUED | RunState.RUNNING:
            return "working"
        case RunState.WAITING_USER:
            # `input_required` promises requests for this client. A page that the user has opened is none.
            return "input_required" if asks_client else "working"
        case RunState.SUCCEEDED | RunState.FAILED:
            # `failed` is for errors of the protocol alone.
            return "completed"
        case RunState.CANCELED:
            return "cancelled"
        case _:
            assert_never(state)


def _message(run: Run, answer_url: str | None) -> str:
    asked = run.pending_interaction
    if run.state is RunState.WAITING_USER and asked is not None:
        where = "" if answer_url is None else f" Answer at {answer_url}"
        return f"The run asks its user: {asked.prompt}{where}"
    if run.state is RunState.FAILED and run.error is not None:
        return f"The run has failed: {run.error.message}"
    return state_text(run.state)


def request_key(asked: Interaction, url: str | None = None) -> str:
    """Names a question in the input requests of a task: another one each time a skill asks, and for another link."""
    key = f"{asked.interaction_id}-{int(asked.asked_at.timestamp() * 1_000_000):x}"
    return key if url is None else f"{key}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
