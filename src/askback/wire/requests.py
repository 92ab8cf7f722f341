"""What a request may contain: JSON bodies, query parameters and headers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from askback.core.runs import Mode, RunState
from askback.core.webhooks import WebhookKind
from askback.wire.base import Shape, about

_NAME_CHARS = 200
MAX_SEQ = 2**53


class Body(Shape, forbid_unknown_fields=True):
    """A JSON body. Unknown fields are refused."""


class WebhookCreate(Body):
    """A URL that is notified when the run changes its state."""

    url: Annotated[str, about("Where to send the notification.", "https://example.com/hook", max_length=2000)]
    secret: Annotated[
        Annotated[str, Meta(max_length=200)] | None,
        about(
            "`standard`: the key of the Standard Webhooks signature. `ntfy`: the access token.",
            "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=",
        ),
    ] = None
    kind: Annotated[WebhookKind, about("The format of the request.")] = WebhookKind.STANDARD
    states: Annotated[
        Annotated[tuple[RunState, ...], Meta(max_length=50)] | None,
        about("Only notify about these states. Default: all.", ["waiting_user", "succeeded"]),
    ] = None


class RunCreate(Body):
    """A skill to run, with its input."""

    skill: Annotated[str, about("The ID of the skill.", "trip-planner", min_length=1, max_length=_NAME_CHARS)]
    engine: Annotated[
        Annotated[str, Meta(max_length=100)] | None,
        about("Default: the first installed engine that the skill supports.", "scripted"),
    ] = None
    mode: Annotated[Mode | None, about("Default: the first of the skill's `execution_modes`.", "interactive")] = None
    input: Annotated[
        dict[str, Any],
        about(
            'Validated against the skill\'s input schema. Name an uploaded file as `{"upload_id": "…"}`.',
            {"destination": "Lisbon", "days": 3},
        ),
    ] = msgspec.field(default_factory=dict)
    parameter: Annotated[
        dict[str, Any], about("Validated against the skill's parameter schema.", {"language": "English"})
    ] = msgspec.field(default_factory=dict)
    options: Annotated[
        dict[str, Any],
        about(
            "`session_timeout_sec`, `turn_timeout_sec`, `interactive_require_user_reply`, `interactive_profile`, "
            "`ask_user_validation`, `repair_attempts`, `model`.",
            {"turn_timeout_sec": 600},
        ),
    ] = msgspec.field(default_factory=dict)
    webhooks: Annotated[
        tuple[WebhookCreate, ...], about("Notified when this run changes its state.", max_length=8)
    ] = ()


class Reply(Body):
    """An answer to the pending question."""

    interaction_id: Annotated[str, about("The question.", "pace", max_length=_NAME_CHARS)]
    response: Annotated[
        Any,
        about(
            "The value of an option, a value that `response_schema` accepts, any value if there is no schema, or an "
            'uploaded file as `{"upload_id": "…"}`.',
            "relaxed",
        ),
    ]


class LinkedReply(Body):
    """An answer to the question of a link."""

    response: Annotated[
        Any,
        about(
            "The value of an option, a value that `response_schema` accepts, or any value if there is none.", "relaxed"
        ),
    ]


class LinkCreate(Body):
    """Settings of a new link."""

    expires_in_sec: Annotated[int, about("When the link expires, in seconds.", 3600, ge=1, le=31_536_000)] = 86_400


# Query parameters and headers.

Text = Annotated[str, Meta(max_length=_NAME_CHARS)]
Limit = Annotated[int, about("The maximum number of items.", 50, ge=1, le=200)]
Cursor = Annotated[Text | None, about("The `next_cursor` of the previous page.")]


class PageQuery(Shape):
    cursor: Cursor = None
    limit: Limit = 50


class RunQuery(Shape):
    state: Annotated[RunState | None, about("Only runs in this state.")] = None
    skill: Annotated[Text | None, about("Only runs of this skill.")] = None
    engine: Annotated[Text | None, about("Only runs on this engine.")] = None
    cursor: Cursor = None
    limit: Limit = 50


class EventQuery(Shape):
    after: Annotated[int, about("Only events after this number.", 0, ge=0, le=MAX_SEQ)] = 0
    limit: Annotated[int, about("The maximum number of events. Not used for a stream.", ge=1, le=1000)] = 1000


class RunCreateHeaders(Shape):
    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        about("The same key with the same body returns the same run. With another body it is refused.", "order-4711"),
    ] = None


class EventHeaders(Shape):
    last_event_id: Annotated[
        Annotated[str, Meta(max_length=30)] | None,
        about("The last event that was received. Takes precedence over `after`.", "2"),
    ] = None
