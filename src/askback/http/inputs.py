"""What comes in: the body of every call, checked before anything is done with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from askback.core.runs import Mode, RunState
from askback.http.problems import MOST_PROBLEMS

_LONGEST_NAME = 200


class _In(BaseModel):
    """What comes in: no names that are not known, and no guessing of types."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few_unknown(cls, given: Any) -> Any:
        """Each unknown name is an error of its own, which costs far more than the name. Too many are one error."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields) + MOST_PROBLEMS:
            unknown = len(given) - len(given.keys() & cls.model_fields.keys())
            text = "{unknown} fields are unknown; the known ones are {known}"
            raise PydanticCustomError(
                "unknown_fields", text, {"unknown": unknown, "known": ", ".join(cls.model_fields)}
            )
        return given


class WebhookIn(_In):
    """An address that is told of a run's changes."""

    url: str = Field(max_length=2000, description="Where to post.", examples=["https://example.com/hook"])
    secret: str | None = Field(
        None,
        max_length=200,
        description="For the Standard Webhooks signature.",
        examples=["whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="],
    )
    kind: Literal["standard", "ntfy", "slack"] = Field("standard", description="The form of what is posted.")
    states: list[Annotated[RunState, Field(strict=False)]] | None = Field(
        None,
        max_length=50,
        description="Only for these states; default: all.",
        examples=[["waiting_user", "succeeded"]],
    )


class RunCreate(_In):
    """A skill to be run, and what with."""

    skill: str = Field(
        min_length=1, max_length=_LONGEST_NAME, description="The id of a skill.", examples=["trip-planner"]
    )
    engine: str | None = Field(
        None,
        max_length=100,
        description="Default: the skill's first engine that is installed.",
        examples=["scripted"],
    )
    mode: Mode | None = Field(
        None,
        strict=False,
        description="Default: the first of the skill's `execution_modes`.",
        examples=["interactive"],
    )
    input: dict[str, Any] = Field(
        default_factory=dict,
        description='Checked by the skill\'s input schema. A file is named by its upload: `{"upload_id": "…"}`.',
        examples=[{"destination": "Lisbon", "days": 3}],
    )
    parameter: dict[str, Any] = Field(
        default_factory=dict, description="Checked by the skill's parameter schema.", examples=[{"language": "English"}]
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="`session_timeout_sec`, `turn_timeout_sec`, `interactive_require_user_reply`, "
        "`interactive_profile`, `ask_user_validation`, `repair_attempts`, `model`.",
        examples=[{"turn_timeout_sec": 600}],
    )
    webhooks: list[WebhookIn] = Field(default_factory=list, max_length=8, description="Told of this run's changes.")


class ReplyIn(_In):
    """An answer to one question."""

    interaction_id: str = Field(
        max_length=_LONGEST_NAME, description="The question that is answered.", examples=["pace"]
    )
    response: Any = Field(
        description="An option's value, a value that fits `response_schema`, any value without a schema, or a file as "
        '`{"upload_id": "…"}`.',
        examples=["relaxed"],
    )


class LinkedReplyIn(_In):
    """An answer to the question that the link is for."""

    response: Any = Field(
        description="An option's value, a value that fits `response_schema`, or any value without a schema.",
        examples=["relaxed"],
    )


class LinkIn(_In):
    """How long a link shall last."""

    expires_in_sec: int = Field(
        86_400, ge=1, le=31_536_000, description="For how many seconds the link may be used.", examples=[3600]
    )
