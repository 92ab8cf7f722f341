"""Request bodies, queries and headers."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from askback.core.access import TOKEN_NAME_PATTERN, TOKEN_NAME_RULE, AccessScope, Action
from askback.core.interactions import InboxOrder
from askback.core.runs import InheritedFiles, Mode, RunState, UsageKey
from askback.core.webhooks import MAX_REMINDER_SEC, MIN_REQUESTED_SEC, USUAL_MAX_REMINDERS, Reminders, WebhookKind
from askback.wire.base import Moment, Shape, about

_NAME_CHARS = 200
MAX_SEQ = 2**53
_HUNDRED_YEARS_SEC = 3_153_600_000
_Pause = Annotated[float, Meta(ge=MIN_REQUESTED_SEC, le=MAX_REMINDER_SEC)]


class Body(Shape, forbid_unknown_fields=True):
    """A JSON body. Unknown fields are refused."""


class ReminderCreate(Body):
    """When a webhook is notified again of a question that is still open."""

    after_sec: Annotated[
        Annotated[tuple[_Pause, ...], Meta(max_length=USUAL_MAX_REMINDERS)] | None,
        about(
            "So many seconds after the question was asked, at least 60 apart. Default: as in the settings.",
            [3600, 86400],
        ),
    ] = None
    repeat_sec: Annotated[
        _Pause | None,
        about("Then again and again, with so many seconds in between. Default: no more.", 86400),
    ] = None
    max: Annotated[
        Annotated[int, Meta(ge=0, le=USUAL_MAX_REMINDERS)] | None,
        about("At most so many reminders of one question. Default: 10.", 10),
    ] = None
    expiring: Annotated[bool, about("Whether the webhook is notified of a near deadline.")] = True

    @property
    def too_dense(self) -> bool:
        times = sorted(set(self.after_sec or ()))
        return any(later - time < MIN_REQUESTED_SEC for time, later in itertools.pairwise(times))

    def reminders(self, usual: Reminders | None) -> Reminders:
        after_sec = self.after_sec
        if after_sec is None:
            after_sec = () if usual is None else usual.after_sec
        return Reminders.repeated(after_sec, repeat_sec=self.repeat_sec, limit=self.max, expiring=self.expiring)


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
    kind: Annotated[
        WebhookKind, about("The format of the request: `standard`, `ntfy` or `slack`. Others are refused in a request.")
    ] = WebhookKind.STANDARD
    states: Annotated[
        Annotated[tuple[RunState, ...], Meta(max_length=50)] | None,
        about("Only notify about these states. Default: all.", ["waiting_user", "succeeded"]),
    ] = None
    reminders: Annotated[
        bool | ReminderCreate | None,
        about("Whether open questions are notified again, or when. Default: as in the settings; never for `standard`."),
    ] = None


class PushKeys(Body):
    """The keys of a push subscription, as the browser gives them: base64url."""

    p256dh: Annotated[str, about("The public key of the browser.", "BCVxsr7N_eNgVRqvHtD0zTZs…", max_length=200)]
    auth: Annotated[
        str, about("The secret that the browser shares with the server.", "BTBZMqHH6r4Tts7J_aSIgg", max_length=100)
    ]


class PushSubscriptionCreate(Body):
    """A browser that wants pushes: what `PushSubscription.toJSON()` returns there."""

    endpoint: Annotated[
        str, about("The URL of the push service for this browser.", "https://push.example.com/f3a9", max_length=2000)
    ]
    keys: Annotated[PushKeys, about("For the encryption of messages.")]


class SkillUpload(Body):
    """A skill that comes with its run: an uploaded zip of its folder."""

    upload_id: Annotated[str, about("The upload.", "up-0123456789abcdef01234567", max_length=_NAME_CHARS)]


class FromRun(Body):
    """A run to continue, and what to copy from it."""

    run_id: Annotated[str, about("The run. It must be over, or wait without a process.", max_length=_NAME_CHARS)]
    files: Annotated[
        InheritedFiles | None,
        about("`artifacts`: its output files. `workspace`: its whole working directory.", "artifacts"),
    ] = None
    session: Annotated[
        bool,
        about("Whether the engine's session is copied and continued: the model sees the earlier conversation.", False),
    ] = False
    at: Annotated[
        Annotated[str, Meta(max_length=_NAME_CHARS)] | None,
        about(
            "An `interaction_id`: fork at this question. The session is as it was when it was asked, and the new run waits "
            "with the same question. Requires `session`. The new run has the input and parameters of the source.",
            "pace",
        ),
    ] = None
    response: Annotated[Any, about("With `at`: the answer to the question, instead of waiting for it.", "packed")] = (
        None
    )


class RunCreate(Body):
    """A skill to run, with its input."""

    skill: Annotated[
        Annotated[str, Meta(min_length=1, max_length=_NAME_CHARS)] | SkillUpload,
        about(
            'The ID of the skill, or `{"upload_id": "…"}`: an uploaded zip of its folder. It is checked like an installed '
            "skill, used for this run alone, and deleted with it.",
            "trip-planner",
        ),
    ]
    engine: Annotated[
        Annotated[str, Meta(max_length=100)] | None,
        about("Default: the first installed engine that the skill supports, signed-in ones first.", "scripted"),
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
            "`ask_user_validation`, `repair_attempts`, `on_lost_session`, `model`, `effort`, `warm_sec`.",
            {"turn_timeout_sec": 600},
        ),
    ] = msgspec.field(default_factory=dict)
    permissions: Annotated[
        dict[str, Any] | str | None,
        about(
            "Which calls of the engine's tools run, need an approval, or never run: `{rules, default}`, or the name of a ready "
            "policy: `careful`, `read-only`, `workspace`. It only adds to those of the settings, the token and the skill. Needs "
            "an engine with a `gate`.",
            "careful",
        ),
    ] = None
    from_run: Annotated[
        FromRun | None, about("Start with the files or the session of another run. Requires the scope `read` as well.")
    ] = None
    workdir: Annotated[
        Annotated[str, Meta(min_length=1, max_length=4096)] | None,
        about(
            "A folder on the server's machine for the engine to work in, as an absolute path. It must be one of the "
            "`workdirs` of the settings, or below one. No other unfinished run may work there.",
            "/srv/repositories/website",
        ),
    ] = None
    env: Annotated[
        dict[str, str],
        about(
            "Secret variables for the engine's environment, each of 8 characters or more. They are masked in everything "
            "that the run shows, and erased when it is over. Reserved names are refused.",
            {"ZOTERO_API_KEY": "P9NiFoyLeZu2bZNvvuQPDWsd"},
        ),
    ] = msgspec.field(default_factory=dict)
    labels: Annotated[
        dict[str, str] | None,
        about(
            "Short texts by name, at most 16, to find the run again and to restrict tokens to it. A name has up to 63 "
            "letters, digits, `.`, `_` or `-`; a value has up to 200 characters in one line. Default: those of `from_run`, "
            "without `mcp_call` and `acp-session`.",
            {"customer": "4711"},
        ),
    ] = None
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
            'uploaded file as `{"upload_id": "…"}`. For a form, an object with the answers by the ids of its questions.',
            "relaxed",
        ),
    ]


class LinkedReply(Body):
    """An answer to the question of a link."""

    response: Annotated[
        Any,
        about(
            "The value of an option, a value that `response_schema` accepts, or any value if there is none. For a form, "
            "an object with the answers by the ids of its questions.",
            "relaxed",
        ),
    ]


class LinkCreate(Body):
    """Settings of a new link."""

    expires_in_sec: Annotated[int, about("When the link expires, in seconds.", 3600, ge=1, le=31_536_000)] = 86_400
    recipient: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | None,
        about(
            "Who the link is for, on one line of printable characters: the name in `answered_with`. Without it, that of the token that creates the link.",
            "anna",
        ),
    ] = None


class TokenCreate(Body):
    """A token for a person or a program."""

    name: Annotated[
        str,
        about(
            f"Whose token it is. It {TOKEN_NAME_RULE}. Shown with everything that its holder does.",
            "anna",
            # Not checked here, because the message would not say the rule.
            extra_json_schema={"pattern": TOKEN_NAME_PATTERN},
        ),
    ]
    scopes: Annotated[
        tuple[AccessScope, ...],
        about("What it allows; `admin` allows everything.", ["answer"], min_length=1, max_length=5),
    ]
    labels: Annotated[
        dict[str, str],
        about(
            "Restrict the token to runs that have all of these labels. Not with `admin`. Default: all runs.",
            {"customer": "4711"},
        ),
    ] = msgspec.field(default_factory=dict)
    permissions: Annotated[
        dict[str, Any] | str | None,
        about(
            "A policy for the tool calls of the runs that it creates, as in `POST /v1/runs`. Runs can only restrict more.",
            "careful",
        ),
    ] = None
    expires_in_sec: Annotated[
        Annotated[int, Meta(ge=1, le=_HUNDRED_YEARS_SEC)] | None,
        about("When the token expires, in seconds. Default: never.", 2_592_000),
    ] = None


class InvitationCreate(Body):
    """An invitation for one device."""

    token: Annotated[str, about("The name of the token that the device signs in with.", "anna", max_length=_NAME_CHARS)]
    expires_in_sec: Annotated[
        int, about("When the invitation expires if it is not used, in seconds.", 86_400, ge=1, le=2_592_000)
    ] = 86_400


Text = Annotated[str, Meta(max_length=_NAME_CHARS)]
FilePath = Annotated[str, Meta(min_length=1, max_length=4096)]
Limit = Annotated[int, about("The maximum number of items.", 50, ge=1, le=200)]
Cursor = Annotated[Text | None, about("The `next_cursor` of the previous page.")]


LabelTexts = Annotated[
    tuple[Annotated[str, Meta(max_length=300)], ...],
    about(
        "Only runs with this label, as `name:value`; the first colon ends the name. Repeat it for runs that have all of "
        "several labels.",
        ["customer:4711"],
        max_length=16,
    ),
]


class PageQuery(Shape):
    cursor: Cursor = None
    limit: Limit = 50


class LabelledPageQuery(PageQuery):
    label: LabelTexts = ()


class AuditQuery(PageQuery):
    actor: Annotated[Text | None, about("Only what was written under this name.")] = None
    action: Annotated[Action | None, about("Only this action.")] = None
    run_id: Annotated[Text | None, about("Only entries about this run, also if it was deleted.")] = None
    since: Annotated[Moment | None, about("Only entries from this time on.")] = None
    until: Annotated[Moment | None, about("Only entries before this time.")] = None


class InboxQuery(LabelledPageQuery):
    skill: Annotated[Text | None, about("Only questions of this skill.")] = None
    engine: Annotated[Text | None, about("Only questions of runs on this engine.")] = None
    q: Annotated[
        Text | None,
        about("Only questions with all of these words in the skill, the summary, the prompt or the context."),
    ] = None
    order: Annotated[
        InboxOrder,
        about("`oldest` first, or the nearest `deadline` first and then the oldest. A cursor belongs to one order."),
    ] = InboxOrder.OLDEST


class RunQuery(LabelledPageQuery):
    state: Annotated[RunState | None, about("Only runs in this state.")] = None
    skill: Annotated[Text | None, about("Only runs of this skill.")] = None
    engine: Annotated[Text | None, about("Only runs on this engine.")] = None
    mine: Annotated[
        bool,
        about(
            "Only runs that your token created. Anybody may give a run any label, so a label alone does not say whose it is. "
            "Requires `label`.",
            True,
        ),
    ] = False


class StatisticsQuery(Shape):
    days: Annotated[int, about("How many days, today included.", 30, ge=1, le=366)] = 30
    label: LabelTexts = ()


class UsageQuery(StatisticsQuery):
    by: Annotated[UsageKey, about("By what to add up.", "skill")] = UsageKey.DAY


class RunWait(Shape):
    wait: Annotated[
        float,
        about(
            "How long to wait for a change, in seconds. With `If-None-Match`: until the run differs from that `ETag`. "
            "Without: until the run waits for its user or is final.",
            30,
            ge=0,
            le=60,
        ),
    ] = 0.0


class EventQuery(Shape):
    after: Annotated[int, about("Only events after this number.", 0, ge=0, le=MAX_SEQ)] = 0
    limit: Annotated[int, about("The maximum number of events. Not used for a stream.", ge=1, le=1000)] = 1000


class ArtifactQuery(Shape):
    cursor: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9]{1,6}$", max_length=6)] | None,
        about("The `next_cursor` of the previous page."),
    ] = None
    limit: Annotated[int, about("The maximum number of items.", ge=1, le=10_000)] = 10_000


class VersionQuery(Shape):
    path: Annotated[FilePath, about("The path of the artifact, with `/` between folders.", "itinerary.md")]


class DiffQuery(Shape, rename={"from_": "from"}):
    path: Annotated[FilePath, about("The path of the artifact, with `/` between folders.", "itinerary.md")]
    from_: Annotated[int, about("Compare with the end of this turn; 0: before the first turn.", 1, ge=0, le=MAX_SEQ)]
    to: Annotated[
        str,
        about("The turn at whose end the comparison ends, or `now`.", "2", pattern=r"^(now|[0-9]{1,9})$", max_length=9),
    ] = "now"

    @property
    def to_turn(self) -> int | None:
        return None if self.to == "now" else int(self.to)


class RunCreateHeaders(Shape):
    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        about(
            "The same key with the same body, from the same token, returns the same run. With another body it is refused.",
            "order-4711",
        ),
    ] = None
    traceparent: Annotated[
        str | None,
        about(
            "The caller's span (W3C Trace Context): the spans of the run belong to its trace. An invalid value is ignored.",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
    ] = None


class RunHeaders(Shape):
    if_none_match: Annotated[
        Annotated[str, Meta(max_length=1000)] | None,
        about("The `ETag` of an earlier response. If the run is still the same, the response is 304.", 'W/"5"'),
    ] = None


class EventHeaders(Shape):
    last_event_id: Annotated[
        Annotated[str, Meta(max_length=30)] | None,
        about("The last event that was received. Takes precedence over `after`.", "2"),
    ] = None
