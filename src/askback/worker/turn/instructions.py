"""What the engine is asked to do in a turn: the prompt, and the answer that it brings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from askback.core.interactions import AnsweredBy
from askback.core.runs import Run, RunRequest, TurnKind
from askback.engines.base import Reply
from askback.runs.secrets import declares_secrets, texts_to_mask
from askback.skills import prompts
from askback.skills.package import SkillPackage
from askback.skills.validation import file_inputs
from askback.text.json_text import is_large
from askback.worker.turn.ask_tool import has_ask_tool
from askback.worker.turn.context import TurnContext
from askback.workspace.layout import SKILL_DIR, Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """What the engine is asked to do in one turn."""

    prompt: str
    reply: Reply | None = None
    """The outcome of the question that this turn answers."""
    secrets: tuple[str, ...] = ()
    """The secrets of the run so far, without its variables."""


async def build_instructions(context: TurnContext, run: Run, package: SkillPackage) -> Instructions:
    """The instructions for the run's next turn. A prompt shows an example that is validated against the schema."""
    store, order, slow = context.store, run.next_turn, not package.checks_quickly()
    in_workdir = run.workdir is not None
    if order.kind is TurnKind.START:
        request = await store.request(run.id)
        first = partial(prompts.first_prompt, _assignment(context, run, package, request))
        prompt = await _render(first, slow or is_large(request.input, request.parameter))
        return Instructions(prompt=prompt, secrets=texts_to_mask(run, package, request, (), {}))
    interactions = await store.interactions(run.id)
    given = await store.request(run.id) if declares_secrets(package) else RunRequest()
    secrets = texts_to_mask(run, package, given, interactions, {})
    match order.kind:
        case TurnKind.REPAIR:
            repair = partial(prompts.repair_prompt, package, order.problems, run.mode)
            return Instructions(prompt=await _render(repair, slow), secrets=secrets)
        case TurnKind.REPLY:
            closed = next(each for each in interactions if each.interaction_id == order.interaction_id)
            large = is_large(closed.response, closed.prompt, closed.context)
            ask_tool = _has_ask_tool(context, run)
            render = partial(prompts.reply_prompt, package, closed, in_workdir=in_workdir, ask_tool=ask_tool)
            prompt = await _render(render, slow or large)
            reply = Reply(response=closed.response, answered=closed.answered_by is AnsweredBy.USER)
            return Instructions(prompt=prompt, reply=reply, secrets=secrets)
        case TurnKind.REBUILD:
            request = await store.request(run.id)
            assignment = _assignment(context, run, package, request)
            rebuilt = partial(prompts.rebuilt_prompt, assignment, interactions, order.problems)
            return Instructions(prompt=await _render(rebuilt, slow=True), secrets=secrets)
        case _:
            assert_never(order.kind)


def _assignment(context: TurnContext, run: Run, package: SkillPackage, request: RunRequest) -> prompts.Assignment:
    workspace = context.workspaces.of(run.id)
    return prompts.Assignment(
        package=package,
        request=_as_seen(run, request, package, workspace),
        mode=run.mode,
        skill_dir=skill_dir(run, workspace),
        origin=run.origin,
        engine=run.engine,
        in_workdir=run.workdir is not None,
        ask_tool=_has_ask_tool(context, run),
    )


def _has_ask_tool(context: TurnContext, run: Run) -> bool:
    return has_ask_tool(context.engines[run.engine], context.setups[run.engine], run.mode)


def _as_seen(run: Run, request: RunRequest, package: SkillPackage, workspace: Workspace) -> RunRequest:
    """The request with the paths of its files as the engine sees them."""
    if run.workdir is None:
        return request
    staged = {key: f"{workspace.cwd}/{request.input[key]}" for key in file_inputs(package) if key in request.input}
    return replace(request, input={**request.input, **staged})


async def _render(prompt: Callable[[], str], slow: bool) -> str:
    return await asyncio.to_thread(prompt) if slow else prompt()


def skill_dir(run: Run, workspace: Workspace) -> str:
    """As the engine sees it from its working directory."""
    return SKILL_DIR if run.workdir is None else str(workspace.cwd / SKILL_DIR)
