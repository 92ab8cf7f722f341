"""The tools: what a client lists, and what happens when it calls one."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from askback.client import AsyncClient, CallFailed, NotFound, ServerFault
from askback.core.runs import RunState
from askback.mcp import envelope as given
from askback.mcp.asking import asked_now, elicitation_for, input_required, is_modern, taken_up
from askback.mcp.caller import Caller
from askback.mcp.elicitation import by_tool
from askback.mcp.envelope import Envelope, Question, Questions, Skills, enveloped, output_schema, refused, structured
from askback.mcp.tasks import created_task, takes_tasks
from askback.wire.runs import Run
from askback.wire.server import SkillDetails

Context = ServerRequestContext[Any, Any]
Returned = types.CallToolResult | types.InputRequiredResult | dict[str, Any]
"""A result, a question for the user of the client, or a task."""
S = TypeVar("S", bound=msgspec.Struct)

MAX_NAME = 48
"""Clients put the name of the server before the name of a tool, and allow 64 characters for both."""
_MOST_QUESTIONS = 50
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_SKILL_PREFIX = "skill_"
_IN_HEADER = "x-mcp-header"
"""In a schema: the client also sends the value in a header, for gateways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of an MCP client: its context, caller and arguments."""

    ctx: Context
    caller: Caller
    params: types.CallToolRequestParams
    skills_as_tools: bool = False

    def read(self, shape: type[S]) -> S:
        return msgspec.convert(self.params.arguments or {}, shape)

    @property
    def may_be_task(self) -> bool:
        """Whether the run can be returned as a task. Other tools than those that start a run are quick enough."""
        return takes_tasks(self.ctx) and (self.params.name == "run_skill" or self.params.name not in TOOLS)

    async def progress(self, seconds: float, message: str) -> None:
        await self.ctx.session.report_progress(seconds, message=message)

    async def conclude(
        self, run: Run, wait_sec: float, *, may_ask: bool, found: bool = False, problem: str = ""
    ) -> Returned:
        """Wait for the run, bring its questions to the user of the client, and return the envelope."""
        until = time.monotonic() + wait_sec
        while True:
            run = await self.caller.settled(run, until, self.progress)
            if run.state is not RunState.WAITING_USER or not may_ask or time.monotonic() >= until:
                break
            elicitation = await elicitation_for(self.ctx, self.caller, run)
            if elicitation is None:
                break
            if is_modern(self.ctx):
                return input_required(elicitation)
            asked = await asked_now(self.ctx, self.caller, elicitation, until, self.progress)
            run, may_ask, problem = asked.run, asked.answered, asked.problem
        if (task := await self._task(run, may_ask=may_ask)) is not None:
            return task
        return enveloped(await self.caller.envelope(run, found=found), problem)

    async def _task(self, run: Run, *, may_ask: bool) -> dict[str, Any] | None:
        """The run as a task, if this client takes tasks and one can still bring something to it."""
        if not self.may_be_task or run.state.final:
            return None
        if run.state is RunState.WAITING_USER and (
            not may_ask or await elicitation_for(self.ctx, self.caller, run) is None
        ):
            # Nobody is there who could be asked: the model gets the question.
            return None
        return await created_task(self.ctx, self.caller, run)

    async def resume(self, wait_sec: float) -> Returned:
        """Continue a call that the client repeats with the reaction of its user."""
        asked = await taken_up(self.caller, self.params, time.monotonic() + wait_sec, self.progress)
        left = 0 if self.may_be_task else wait_sec / 2
        return await self.conclude(asked.run, left, may_ask=asked.answered, problem=asked.problem)


Act = Callable[[ToolCall], Awaitable[Returned]]


async def _start(call: ToolCall, wanted: given.RunSkill) -> Returned:
    run, found = await call.caller.submit(wanted)
    # A task is returned at once, unless the caller asks to wait.
    waits = not call.may_be_task or "wait_sec" in (call.params.arguments or {})
    return await call.conclude(run, wanted.wait_sec if waits else 0, may_ask=True, found=found)


async def _get_run(call: ToolCall) -> Returned:
    wanted = call.read(given.GetRun)
    run = await call.caller.client.get_run(wanted.run_id)
    # Looking at a run that waits already must not show the user a form again.
    return await call.conclude(run, wanted.wait_sec, may_ask=not run.settled)


async def _answer_question(call: ToolCall) -> Returned:
    wanted = call.read(given.AnswerQuestion)
    asked = await call.caller.client.interaction(wanted.run_id)
    if asked.interaction_id == wanted.interaction_id and asked.asks_secrets:
        message = "this question asks for a secret, which must not pass through a model: the user answers at answer_url"
        return refused("REPLY_INVALID", message)
    answer = wanted.answer
    if asked.interaction_id == wanted.interaction_id:
        answer = by_tool(asked, answer)
    run = await call.caller.reply(wanted.run_id, wanted.interaction_id, answer)
    return await call.conclude(run, wanted.wait_sec, may_ask=True)


async def _cancel_run(call: ToolCall) -> Returned:
    return enveloped(await call.caller.envelope(await call.caller.cancel(call.read(given.CancelRun).run_id)))


async def _list_questions(call: ToolCall) -> Returned:
    wanted = call.read(given.ListQuestions)
    found: list[dict[str, Any]] = []
    async for asked in call.caller.client.inbox(skill=wanted.skill or None):
        about = {"run_id": asked.run_id, "skill": asked.skill, "summary": asked.summary}
        found.append(about | msgspec.to_builtins(Question.of(asked)))
        if len(found) == _MOST_QUESTIONS:
            break
    return structured(Questions(questions=found))


async def _list_skills(call: ToolCall) -> Returned:
    call.read(given.Nothing)
    shown = []
    for each in await _usable(call.caller.client):
        schemas = {"input_schema": each.schemas.input, "parameter_schema": each.schemas.parameter}
        shown.append({"id": each.id, "description": each.description, "engines": each.engines, **schemas})
    return structured(Skills(skills=shown))


async def _usable(client: AsyncClient) -> list[SkillDetails]:
    """The skills that can be run. One that was removed or damaged since it was listed is left out."""
    found = []
    for each in await client.skills():
        if each.problem is None:
            with suppress(NotFound, ServerFault):
                found.append(await client.skill(each.id))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A tool as it is listed."""

    act: Act
    arguments: type[msgspec.Struct]
    returns: type[msgspec.Struct]
    title: str
    description: str
    reads_only: bool = False
    destroys: bool = False
    executes: bool = False
    """Whether an engine works after it, which asks nobody before it changes a file or calls another server."""

    def tool(self, name: str) -> types.Tool:
        hints = types.ToolAnnotations(
            read_only_hint=self.reads_only,
            destructive_hint=self.destroys or self.executes,
            open_world_hint=self.executes,
        )
        return types.Tool(
            name=name,
            title=self.title,
            description=self.description,
            input_schema=given.schema(self.arguments),
            output_schema=output_schema(self.returns),
            annotations=hints,
        )


TOOLS: dict[str, Declared] = {
    "run_skill": Declared(
        act=lambda call: _start(call, call.read(given.RunSkill)),
        arguments=given.RunSkill,
        returns=Envelope,
        title="Run a skill",
        description="Start a skill of Askback and wait up to 40 seconds. If state is waiting_user, ask the user the question "
        "and call answer_question. If it is queued or running, call get_run with the run_id. The run continues "
        "in any case. The same call again finds the same run.",
        executes=True,
    ),
    "get_run": Declared(
        act=_get_run,
        arguments=given.GetRun,
        returns=Envelope,
        title="Get a run",
        description="The state of a run, its question or its output. Waits up to 40 seconds until the run asks or ends.",
        reads_only=True,
    ),
    "answer_question": Declared(
        act=_answer_question,
        arguments=given.AnswerQuestion,
        returns=Envelope,
        title="Answer a question",
        description="Answer the question of a run with what the user said, and wait for what comes next. Never answer a "
        "question that the user has not answered.",
        executes=True,
    ),
    "cancel_run": Declared(
        act=_cancel_run,
        arguments=given.CancelRun,
        returns=Envelope,
        title="Cancel a run",
        description="Cancel a run for good. Call it only if the user wants that.",
        destroys=True,
    ),
    "list_questions": Declared(
        act=_list_questions,
        arguments=given.ListQuestions,
        returns=Questions,
        title="List questions",
        description="The pending questions of all runs, oldest first.",
        reads_only=True,
    ),
    "list_skills": Declared(
        act=_list_skills,
        arguments=given.Nothing,
        returns=Skills,
        title="List skills",
        description="The skills that run_skill can start, with the schemas of their input.",
        reads_only=True,
    ),
}


async def call_tool(call: ToolCall) -> Returned:
    """Call a tool. Invalid arguments are a result that the model can read and fix; an unknown tool is a fault of the client."""
    name = call.params.name
    try:
        if call.params.request_state is not None:
            return await call.resume(given.MAX_WAIT_SEC / 2)
        if (known := TOOLS.get(name)) is not None:
            return await known.act(call)
        if name.startswith(_SKILL_PREFIX):
            for skill in await call.caller.client.skills():
                if skill_tool_name(skill.id) == name:
                    values = msgspec.structs.asdict(call.read(given.StartSkill))
                    return await _start(call, given.RunSkill(skill=skill.id, **values))
    except msgspec.ValidationError as error:
        return refused("INPUT_INVALID", f"the arguments of {name} are not valid: {error}")
    known_names = ", ".join(await _names(call))
    raise MCPError(types.INVALID_PARAMS, f"there is no tool {name[:80]!r}; the tools are {known_names}")


async def _names(call: ToolCall) -> list[str]:
    """The tools that the client can list."""
    if not call.skills_as_tools:
        return [*TOOLS]
    try:
        usable = [each for each in await call.caller.client.skills() if each.problem is None]
    except CallFailed:
        return [*TOOLS]
    return [*TOOLS, *(skill_tool_name(each.id) for each in usable)]


# A separate tool for each skill.


def skill_tool_name(skill_id: str) -> str:
    """Unique, and short enough for every client."""
    name = _SKILL_PREFIX + _UNFIT.sub("_", skill_id)
    if len(name) <= MAX_NAME and name == _SKILL_PREFIX + skill_id:
        return name
    return f"{name[: MAX_NAME - 9]}_{hashlib.sha256(skill_id.encode()).hexdigest()[:8]}"


async def skill_tools(find: Callable[[], Caller]) -> list[types.Tool]:
    """A tool for each skill that can be run. Empty without a server, or if the token may not read skills."""
    try:
        return [_skill_tool(each) for each in await _usable(find().client)]
    except CallFailed:
        return []


def _skill_tool(skill: SkillDetails) -> types.Tool:
    schema = given.schema(given.StartSkill)
    for name, known in (("input", skill.schemas.input), ("parameter", skill.schemas.parameter)):
        if isinstance(known, dict):
            schema["properties"][name] = _without_headers(known)
            if known.get("required"):
                schema["required"] = [*schema.get("required", ()), name]
    declared = TOOLS["run_skill"]
    listed = declared.tool(skill_tool_name(skill.id))
    description = f"{skill.description or skill.id}\n\n{declared.description}"
    return listed.model_copy(
        update={"title": skill.name or skill.id, "description": description, "input_schema": schema}
    )


def _without_headers(schema: Any) -> Any:
    """A schema whose values are sent in the body alone. A property may have the name of the annotation."""
    match schema:
        case dict():
            kept = {key: value for key, value in schema.items() if key != _IN_HEADER or not isinstance(value, str)}
            return {key: _without_headers(value) for key, value in kept.items()}
        case list():
            return [_without_headers(each) for each in schema]
        case _:
            return schema
