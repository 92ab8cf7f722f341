"""What the tools take and return: their arguments, and one envelope for every state of a run."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

import mcp_types as types
import msgspec
from msgspec import Meta

from askback.client import CallFailed, Refused, ServerUnreachable
from askback.core.runs import RunState
from askback.questions.typed_answers import YES_OR_NO, is_confirmation
from askback.wire.artifacts import Artifact
from askback.wire.questions import Interaction
from askback.wire.runs import Result, Run

ARTIFACTS = "askback://runs/"
"""The start of the URI of an artifact."""
_CANNOT_READ = (
    "This token lacks the scope `read`, so no tool can wait for the run or show its output. The user can follow it with "
    "another token, or on the page of the server."
)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The pending question of a run."""

    interaction_id: Annotated[str, Meta(description="For answer_question.")]
    kind: str
    prompt: Annotated[str, Meta(description="Ask the user this, word by word.")]
    context: Annotated[Any, Meta(description="What the question is about, for the user. Null if there is nothing.")]
    options: Annotated[list[Any], Meta(description="The answers to choose from; empty if the user is free.")]
    default: Annotated[Any, Meta(description="The suggested answer.")]
    response_schema: Annotated[dict[str, Any] | None, Meta(description="The JSON Schema of the answer.")]
    secret: Annotated[bool, Meta(description="If true, the answer is given at answer_url, never by a tool.")]

    @classmethod
    def of(cls, asked: Interaction) -> Self:
        return cls(
            interaction_id=asked.interaction_id,
            kind=asked.kind,
            prompt=asked.prompt,
            context=asked.context,
            options=list(YES_OR_NO.values()) if is_confirmation(asked) else list(asked.options),
            default=asked.default,
            response_schema=asked.response_schema,
            secret=asked.asks_secrets,
        )


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed."""

    code: str
    message: str


class File(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact of a run."""

    path: str
    uri: Annotated[str, Meta(description="Read it with resources/read.")]
    size: int


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The run, and what it needs or has produced."""

    run_id: str
    state: Annotated[RunState, Meta(description="succeeded, failed and canceled are final.")]
    question: Annotated[Question | None, Meta(description="What the run asks, if it waits for its user.")] = None
    answer_url: Annotated[str | None, Meta(description="A page where the user can answer this question.")] = None
    data: Annotated[Any, Meta(description="The output, if the run has succeeded.")] = None
    error: Failure | None = None
    artifacts: list[File] = []
    message: Annotated[str, Meta(description="What to do next.")] = ""


class Questions(msgspec.Struct, frozen=True, kw_only=True):
    """The pending questions of all runs."""

    questions: list[dict[str, Any]]


class Skills(msgspec.Struct, frozen=True, kw_only=True):
    """The skills that run_skill can start."""

    skills: list[dict[str, Any]]


def output_schema(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a result, with its definitions inside."""
    document = msgspec.json.schema(shape)
    definitions = document["$defs"]
    whole = definitions.pop(document["$ref"].rpartition("/")[2])
    return {**whole, **({"$defs": definitions} if definitions else {})}


def artifact_uri(run_id: str, path: str) -> str:
    from urllib.parse import quote

    return f"{ARTIFACTS}{run_id}/artifacts/{quote(path)}"


def envelope_of(
    run: Run, result: Result | None, *, answer_url: str | None, found: bool = False, may_read: bool = True
) -> Envelope:
    """The envelope of a run, with its result if it is over. `may_read`: whether the token has the scope `read`."""
    asked = run.pending_interaction if run.state is RunState.WAITING_USER else None
    error = run.error if run.state is RunState.FAILED else None
    files: tuple[Artifact, ...] = () if result is None else result.artifacts
    earlier = "This is the run that the same call has started before. " if found else ""
    message = _next_step(run, answer_url) if may_read else f"{STATES[run.state]} {_CANNOT_READ}"
    return Envelope(
        run_id=run.id,
        state=run.state,
        question=None if asked is None else Question.of(asked),
        answer_url=answer_url,
        data=None if result is None else result.data,
        error=None if error is None else Failure(code=error.code, message=error.message),
        artifacts=[File(path=each.path, uri=artifact_uri(run.id, each.path), size=each.size) for each in files],
        message=earlier + message,
    )


def _next_step(run: Run, answer_url: str | None) -> str:
    asked = run.pending_interaction
    match run.state:
        case RunState.WAITING_USER if asked is not None and asked.asks_secrets:
            where = "at answer_url" if answer_url else "on the page of the server or with: askback reply"
            return f"The run asks for a secret. Tell the user to answer {where}; then call get_run."
        case RunState.WAITING_USER:
            by_page = " The user can also answer at answer_url." if answer_url else ""
            return f"The run asks its user. Ask the user, then call answer_question.{by_page}"
        case RunState.SUCCEEDED:
            return "The run has succeeded: data is its output."
        case RunState.FAILED | RunState.CANCELED:
            return STATES[run.state]
        case _:
            return "The run continues. Call get_run to wait for it."


STATES = {
    RunState.QUEUED: "The run will start soon.",
    RunState.RUNNING: "The run is working.",
    RunState.WAITING_USER: "The run waits for its user.",
    RunState.SUCCEEDED: "The run has succeeded.",
    RunState.FAILED: "The run has failed.",
    RunState.CANCELED: "The run was canceled.",
}


def enveloped(envelope: Envelope, problem: str = "") -> types.CallToolResult:
    """The envelope, with its artifacts as resource links. A failed run is an error of the call, as is a refused answer."""
    if problem:
        envelope = msgspec.structs.replace(envelope, message=f"{problem}\n{envelope.message}")
    links = [
        types.ResourceLink(name=each.path, uri=each.uri, size=each.size)
        for each in envelope.artifacts
        if each.uri.startswith(ARTIFACTS)
    ]
    return structured(envelope, links, failed=bool(problem) or envelope.state is RunState.FAILED)


def structured(
    document: msgspec.Struct, links: list[types.ResourceLink] | None = None, *, failed: bool = False
) -> types.CallToolResult:
    value = msgspec.to_builtins(document)
    text = types.TextContent(text=json.dumps(value, ensure_ascii=False))
    return types.CallToolResult(content=[text, *(links or [])], structured_content=value, is_error=failed)


def error_text(error: Refused) -> str:
    """A refusal as the model reads it."""
    return "\n- ".join((f"{error.code}: {error.message}", *error.problems))


def failed(error: CallFailed) -> types.CallToolResult:
    """The result of a call that the server refused, or that did not reach it."""
    match error:
        case Refused():
            return _failure(error_text(error))
        case ServerUnreachable():
            return refused("SERVER_UNREACHABLE", f"{error.message}; start a server with: askback serve")
        case _:
            return refused("ANSWER_UNREADABLE", error.message)


def refused(code: str, message: str) -> types.CallToolResult:
    """A refusal as text: a client may take JSON for the structured result, and replace it."""
    return _failure(f"{code}: {message}")


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


CALL_SEC = 44.0
"""How long a call may take in all, also if the server does not answer. Some clients give up after 60."""
MAX_WAIT_SEC = 40.0
"""How long a call may wait for a run. The rest is for the calls of the API."""
Wait = Annotated[
    float,
    Meta(
        ge=0,
        le=MAX_WAIT_SEC,
        description="How long to wait until the run asks or ends, in seconds. The run continues afterwards: call get_run.",
    ),
]
RunId = Annotated[str, Meta(min_length=1, max_length=64, description="The run_id that run_skill returned.")]


class _Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unknown arguments are refused, so that a model sees its mistake."""


class StartSkill(_Arguments, frozen=True, kw_only=True):
    input: Annotated[dict[str, Any], Meta(description="The input of the skill, as its input schema describes it.")] = {}
    parameter: Annotated[dict[str, Any], Meta(description="The parameters of the skill, if it has any.")] = {}
    engine: Annotated[str, Meta(description="The engine that carries the skill out. Default: the server chooses.")] = ""
    mode: Annotated[
        Literal["interactive", "auto", ""],
        Meta(
            description="interactive: the skill may ask its user. auto: it decides itself. Default: interactive if it can."
        ),
    ] = ""
    idempotency_key: Annotated[
        str,
        Meta(
            max_length=200,
            description="The same key finds the same run. Without a key, the same call finds its run until ten minutes "
            "after its end. Pass a new key to run the same skill with the same input again.",
        ),
    ] = ""
    wait_sec: Wait = MAX_WAIT_SEC


class RunSkill(StartSkill, frozen=True, kw_only=True):
    skill: Annotated[str, Meta(min_length=1, description="The id of the skill. list_skills lists them.")]


class GetRun(_Arguments, frozen=True, kw_only=True):
    run_id: RunId
    wait_sec: Wait = MAX_WAIT_SEC


class AnswerQuestion(_Arguments, frozen=True, kw_only=True):
    run_id: RunId
    interaction_id: Annotated[str, Meta(min_length=1, description="The interaction_id of the question.")]
    answer: Annotated[
        Any,
        Meta(
            description="The user's answer: a text, the value of an option, or what the response_schema of the question asks for. "
            "Null or an empty text: the default, if the question has one."
        ),
    ]
    wait_sec: Wait = MAX_WAIT_SEC


class CancelRun(_Arguments, frozen=True, kw_only=True):
    run_id: RunId


class ListQuestions(_Arguments, frozen=True, kw_only=True):
    skill: Annotated[str, Meta(description="Only questions of this skill.")] = ""


class Nothing(_Arguments, frozen=True, kw_only=True):
    """For a tool without arguments."""


def schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of arguments: one object, without references. Its own description would only repeat the tool's."""
    (inner,), components = msgspec.json.schema_components([arguments], ref_template="{name}")
    return {key: value for key, value in components[inner["$ref"]].items() if key not in ("title", "description")}
