"""The arguments of the tools, and their JSON Schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

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
    """What a tool of one skill takes."""

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
    """What `run_skill` takes."""

    skill: Annotated[str, Meta(min_length=1, description="The id of the skill. list_skills lists them.")]


class GetRun(_Arguments, frozen=True, kw_only=True):
    """What `get_run` takes."""

    run_id: RunId
    wait_sec: Wait = MAX_WAIT_SEC


class AnswerQuestion(_Arguments, frozen=True, kw_only=True):
    """What `answer_question` takes."""

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
    """What `cancel_run` takes."""

    run_id: RunId


class ListQuestions(_Arguments, frozen=True, kw_only=True):
    """What `list_questions` takes."""

    skill: Annotated[str, Meta(description="Only questions of this skill.")] = ""


class Nothing(_Arguments, frozen=True, kw_only=True):
    """For a tool without arguments."""


def schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of arguments: one object, without references. Its own description would only repeat the tool's."""
    (inner,), components = msgspec.json.schema_components([arguments], ref_template="{name}")
    return {key: value for key, value in components[inner["$ref"]].items() if key not in ("title", "description")}
