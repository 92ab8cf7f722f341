"""What goes out, for the OpenAPI document: every answer, held against what is really sent by the tests."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from askback.core.errors import ErrorCode, WarningCode
from askback.core.events import EventType
from askback.core.interactions import AnsweredBy, InteractionOutcome
from askback.core.runs import Mode, ProfileKind, RunState
from askback.core.webhooks import WebhookKind

RunId = Annotated[str, Field(description="The run's id.", examples=["1m7gekfsksrgk77s"])]
NextCursor = Annotated[
    str | None, Field(description="Give it as `cursor` to get the next page; null on the last one.", examples=[None])
]
Moment = Annotated[datetime, Field(examples=["2026-03-01T09:30:00.123456Z"])]
Absent = SkipJsonSchema[None]
"""A field that is left out where there is nothing to say."""


class _Out(BaseModel):
    model_config = ConfigDict(extra="forbid")


# Errors.


def _without_default(schema: dict[str, Any]) -> None:
    """A field that may be left out has no value when it is."""
    schema.pop("default")


class Problem(BaseModel):
    """RFC 9457, with our `code`."""

    type: str = Field(description="Always `about:blank`; the `code` tells what it is.", examples=["about:blank"])
    title: str = Field(description="The status in words.", examples=["Conflict"])
    status: int = Field(description="The HTTP status.", examples=[409])
    code: str = Field(description="Stable; what programs go by.", examples=["INTERACTION_NOT_PENDING"])
    detail: str = Field(
        description="For people: what happened and what to do.", examples=["that question has been settled already"]
    )
    problems: list[str] | Absent = Field(
        None,
        description="Every mistake, each by its path; left out where there is none to name.",
        examples=[["input.days: 'x' is not of type integer"]],
        json_schema_extra=_without_default,
    )


# Runs.


class LinkOut(_Out):
    """A link to one question."""

    id: str = Field(description="To revoke it by.", examples=["9f2c01ab"])
    url: str = Field(description="Lets its holder read and answer this question, and nothing else.")
    expires_at: Moment = Field(description="Until when it may be used.")


class KeptLinkOut(_Out):
    """A link to a question, as it is listed: without what opens it."""

    id: str = Field(description="To revoke it by.", examples=["9f2c01ab"])
    interaction_id: str = Field(description="The question.", examples=["pace"])
    token: str = Field(description="The name of the token that it was made with, and ends with.", examples=["main"])
    created_at: Moment = Field(description="When it was made.")
    expires_at: Moment = Field(description="Until when it may be used.")


class LinksOut(_Out):
    """Links to one question."""

    items: list[KeptLinkOut] = Field(description="The links.")
    next_cursor: NextCursor


class SessionOut(_Out):
    """A browser that is signed in."""

    id: str = Field(description="To end it by; opens nothing.", examples=["9f2c01ab"])
    token: str = Field(description="The name of the token that it was made with, and ends with.", examples=["main"])
    browser: str = Field(description="What the browser calls itself, in short.", examples=["Firefox, Linux"])
    host: str = Field(description="The only name that it is valid for.", examples=["askback.example"])
    current: bool = Field(description="Whether the caller uses it now.")
    created_at: Moment = Field(description="When it was made.")
    last_seen_at: Moment = Field(description="When it was last used, to within a few minutes.")
    expires_at: Moment = Field(description="When it ends unless it is used before, at most 30 days after it was made.")


class SessionsOut(_Out):
    """Browsers that are signed in."""

    items: list[SessionOut] = Field(description="The sessions.")
    next_cursor: NextCursor


class ProfileOut(_Out):
    """How an interactive run goes on after a wait."""

    kind: ProfileKind = Field(description="`resumable`: in a new process; `sticky_process`: in the one that waits.")
    reason: str = Field(description="What the probe of the engine saw.", examples=["its --help offers --resume"])
    session_timeout_sec: float = Field(description="How long a wait with a deadline lasts.", examples=[1200.0])


class InteractionOut(_Out):
    """One question to the user, with its reply once there is one."""

    interaction_id: str = Field(description="Unique in its run.", examples=["pace"])
    kind: str = Field(description="`text`, `choice`, `secret`, or what the engine calls it.", examples=["choice"])
    prompt: str = Field(description="The question.", examples=["What pace would you like?"])
    options: list[Any] = Field(
        description="Answers to choose from: texts, or objects with `label` and `value`.",
        examples=[["relaxed", "packed"]],
    )
    default: Any = Field(None, description="What is taken when nobody answers in time.", examples=["relaxed"])
    response_schema: dict[str, Any] | None = Field(
        description="The JSON Schema of the answer: a scalar, or a flat object."
    )
    context: Any = Field(None, description="What the engine says beside the question.")
    attempt_number: int = Field(ge=1, description="The turn that asked.", examples=[1])
    asked_at: Moment = Field(description="When it was asked.")
    outcome: InteractionOutcome = Field(description="How it ended, or `pending`.")
    response: Any = Field(None, description="The answer; of a `secret` question it is never shown.")
    answered_by: AnsweredBy | None = Field(description="Who answered.")
    answered_at: Moment | None = Field(description="When it ended.")


class WarningOut(_Out):
    """Something to know of that did not fail the run."""

    code: WarningCode = Field(description="Stable; what programs go by.")
    message: str = Field(description="For people.")


class ErrorOut(_Out):
    """Why a run failed."""

    code: ErrorCode = Field(description="Stable; what programs go by.")
    message: str = Field(description="For people: what happened and what to do.")
    cause: ErrorCode | Absent = Field(None, description="A finer code, where there is one.")
    detail: str | Absent = Field(None, description="The engine's own words, with secrets taken out.")


class UsageOut(_Out):
    """Tokens that the engine used, in all turns."""

    input_tokens: int = Field(ge=0, description="Tokens sent to the model.", examples=[2210])
    output_tokens: int = Field(ge=0, description="Tokens that the model wrote.", examples=[640])
    cached_tokens: int = Field(ge=0, description="Those of the input that came from a cache.", examples=[1480])
    total_tokens: int = Field(ge=0, description="All tokens as the engine counts them.", examples=[2850])


class HeldProcessOut(_Out):
    """A process that waits with its run."""

    pid: int = Field(description="On the server's machine.", examples=[41877])
    until: Moment | None = Field(description="When the wait ends by itself; null: it is being ended.")


class RunOut(_Out):
    """One execution of a skill. What is not there yet is left out."""

    id: RunId
    state: RunState = Field(description="The last three are final.")
    skill: str = Field(description="The skill's id.", examples=["trip-planner"])
    skill_version: str | Absent = Field(None, description="The version of the skill that is run.", examples=["1.0.0"])
    engine: str = Field(description="The engine that carries it out.", examples=["scripted"])
    mode: Mode = Field(description="Whether the run may ask.")
    attempt_number: int = Field(ge=1, description="The turn that is running, or ran last; from 1.", examples=[1])
    interactive_profile: ProfileOut = Field(description="How it goes on after a wait.")
    queue_reason: Literal["slots", "engine_slots", "starting"] | Absent = Field(
        None, description="Why a queued run is not running: no slot is free, none for its engine, or it is about to."
    )
    pending_interaction: InteractionOut | Absent = Field(None, description="The question that the run waits for.")
    wait_deadline_at: Moment | Absent = Field(
        None, description="When the wait ends by itself: on sticky waits, and on those that are then decided."
    )
    reply_required: bool | Absent = Field(
        None, description="While it waits: whether only a reply ends the wait; else it is decided at the deadline."
    )
    held_process: HeldProcessOut | Absent = Field(
        None, description="On a sticky wait: the engine's process, which is kept with its slot."
    )
    warnings: list[WarningOut] = Field(description="Each once.")
    error: ErrorOut | Absent = Field(
        None, description="Why it failed; on a run that waits: why it fails as soon as its process has ended."
    )
    usage: UsageOut | Absent = Field(None, description="What was used so far.")
    created_at: Moment = Field(description="When it was submitted.")
    updated_at: Moment = Field(description="When it changed last.")
    started_at: Moment | Absent = Field(None, description="When its first turn began.")
    finished_at: Moment | Absent = Field(None, description="When it became final.")


class RunPageOut(_Out):
    """Runs, newest first."""

    items: list[RunOut] = Field(description="At most `limit` of them.")
    next_cursor: NextCursor


class PendingOut(InteractionOut):
    """A pending question with the run that asks it."""

    run_id: RunId
    skill: str = Field(description="The run's skill.", examples=["trip-planner"])
    engine: str = Field(description="The run's engine.", examples=["scripted"])
    interactive_profile: ProfileOut = Field(description="How it goes on, and whether a process is held meanwhile.")
    reply_required: bool = Field(
        description="Whether the run fails at its deadline; else the engine decides then. Without a deadline: neither."
    )
    wait_deadline_at: Moment | Absent = Field(None, description="When the wait ends by itself, if it does.")


class InboxOut(_Out):
    """Pending questions, the oldest first."""

    items: list[PendingOut] = Field(description="At most `limit` of them.")
    next_cursor: NextCursor
    total: int = Field(description="How many are pending in all.", examples=[1])


class InteractionsOut(_Out):
    """All questions of a run, in the order they were asked."""

    items: list[InteractionOut] = Field(description="All of them.")
    next_cursor: NextCursor


class EventOut(_Out):
    """Something that happened to a run."""

    seq: int = Field(ge=1, description="From 1, without gaps.", examples=[2])
    run_id: RunId
    type: EventType = Field(description="What happened.", examples=["run.state"])
    at: Moment = Field(description="When.")
    data: dict[str, Any] = Field(description="By type.", examples=[{"from": "queued", "to": "running"}])


class EventPageOut(_Out):
    """Events in their order."""

    items: list[EventOut] = Field(description="At most `limit` of them.")
    next_cursor: str | None = Field(
        description="Give it as `after` to get the next page; null when there is nothing more for now.", examples=["2"]
    )


class ArtifactOut(_Out):
    """A file that a run left."""

    path: str = Field(description="Below the run's artifacts, with `/` between folders.", examples=["itinerary.md"])
    size: int = Field(ge=0, description="In bytes.", examples=[171])


class ArtifactsOut(_Out):
    """The files that a run has left so far, folder by folder."""

    items: list[ArtifactOut] = Field(description="All of them.")
    next_cursor: NextCursor


class ResultOut(_Out):
    """What a run ended with."""

    status: RunState = Field(description="One of the final states.", examples=["succeeded"])
    data: Any = Field(description="The output, checked by the skill's output schema; null unless it succeeded.")
    warnings: list[WarningOut] = Field(description="What it was warned of.")
    error: ErrorOut | None = Field(description="Why it failed, if it did.")
    artifacts: list[ArtifactOut] = Field(description="The files that it left.")


class UploadOut(_Out):
    """A file that was taken in."""

    upload_id: str = Field(
        description='A run\'s `input`, or a reply, names it as `{"upload_id": …}`.',
        examples=["up-0f3c2a7b9d1e4c5a6b7d8e9f"],
    )
    name: str = Field(description="Its name, as far as it is one on every file system.", examples=["report.pdf"])
    size: int = Field(ge=0, description="In bytes.", examples=[48213])


class DeliveryOut(_Out):
    """One webhook told of one change of state, or still to be told."""

    id: str = Field(
        description="The same for every attempt; the receiver's `webhook-id`.", examples=["msg_1m7gekfsksrgk77s_2_1"]
    )
    run_id: RunId
    url: str = Field(description="Where it goes, without what may be a secret.", examples=["https://example.com/hook"])
    kind: WebhookKind = Field(description="In which form it is posted.")
    event: Literal[EventType.RUN_STATE] = Field(description="What it tells of.")
    seq: int = Field(ge=1, description="The number of that event.", examples=[2])
    to: RunState = Field(description="The state that the run came to.")
    attempts: int = Field(ge=0, description="How often it was tried.", examples=[1])
    last_status: int | None = Field(description="What the receiver answered last.", examples=[204])
    last_error: str | None = Field(description="Why the last attempt failed, if it did.")
    next_attempt_at: Moment | None = Field(description="When it is tried again; null: it is not.")
    delivered_at: Moment | None = Field(description="When it was delivered; null: it is not, or not yet.")


class DeliveriesOut(_Out):
    """Deliveries, newest first."""

    items: list[DeliveryOut] = Field(description="At most `limit` of them.")
    next_cursor: NextCursor


# Skills, engines and the server.


class SkillOut(_Out):
    """A skill that can be named in `POST /v1/runs`."""

    id: str = Field(description="What a run names.", examples=["trip-planner"])
    version: str | None = Field(description="The version that runs take now.", examples=["1.0.0"])
    versions: list[str | None] = Field(description="Every version that was installed, the newest last.")
    name: str | None = Field(description="For people.", examples=["trip-planner"])
    description: str | None = Field(description="What it does.")
    execution_modes: list[Mode] = Field(description="The first is the default.")
    engines: list[str] | None = Field(description="The engines it runs on; null: all.")
    installed: bool = Field(description="False: it lies in one of the server's skill folders.")
    problem: str | None = Field(description="Why it cannot be run, if it cannot.")


class SkillSchemasOut(_Out):
    """The skill's JSON Schemas; null where it has none."""

    input: dict[str, Any] | bool | None = Field(description="Of `input`.")
    parameter: dict[str, Any] | bool | None = Field(description="Of `parameter`.")
    output: dict[str, Any] | bool | None = Field(description="Of the result's `data`.")


class SkillDetailsOut(SkillOut):
    """A skill with its text and schemas."""

    instructions: str = Field(description="The text of its SKILL.md.")
    schemas: SkillSchemasOut = Field(description="What it takes and gives.")


class SkillsOut(_Out):
    """The skills that can be run by their id."""

    items: list[SkillOut] = Field(description="Installed ones first.")
    next_cursor: NextCursor


class EngineProfileOut(_Out):
    """How runs of an engine wait."""

    kind: ProfileKind = Field(description="What `interactive_profile: auto` comes to.")
    reason: str = Field(description="What the probe saw.")


class EngineOut(_Out):
    """A coding-agent CLI."""

    name: str = Field(description="What a run names.", examples=["codex"])
    title: str | None = Field(description="For people.", examples=["Codex"])
    found: bool = Field(description="Whether it is installed here.")
    path: str | None = Field(description="Where its program is.")
    version: str | None = Field(description="As it says itself.", examples=["0.120.0"])
    interactive_profile: EngineProfileOut | None = Field(description="How its runs wait; null when it is not found.")
    profiles: list[ProfileKind] = Field(
        description="Those that an interactive run may ask for.", examples=[["resumable", "sticky_process"]]
    )
    signed_in: bool | None = Field(description="Null where it cannot be told.")
    advice: str | None = Field(description="The one thing that would mend what is missing.")


class EnginesOut(_Out):
    """Every engine that is known."""

    items: list[EngineOut] = Field(description="In the order of their names.")
    next_cursor: NextCursor


class SlotsOut(_Out):
    """Engine processes."""

    total: int = Field(ge=1, description="As many may run at a time.", examples=[4])
    taken: int = Field(ge=0, description="As many run now.", examples=[1])


class EnforcementOut(_Out):
    """By what each limit of an engine is enforced here; an empty list: not at all."""

    memory: list[str] = Field(description="Of the engine and all that it starts.", examples=[["watchdog"]])
    processes: list[str] = Field(description="How many it has.", examples=[["watchdog", "rlimit"]])
    cpu: list[str] = Field(description="CPU time.", examples=[["watchdog", "rlimit"]])
    disk: list[str] = Field(description="The run's folders.", examples=[["watchdog", "rlimit"]])
    oom: list[str] = Field(
        description="Whether the kernel, short of memory, takes engines first.", examples=[["oom_score_adj"]]
    )


class IsolationOut(_Out):
    """What an engine can reach."""

    files: Literal["run", "user"] = Field(
        description=(
            "`run`: the files of its own run, and the system's to read. `user`: everything that the user of the server"
            " can read and change, including the server's token."
        ),
        examples=["run"],
    )
    shares_folders: bool = Field(description="Whether the settings share further folders with all engines.")
    network: Literal["host", "no-loopback", "none"] = Field(
        description="The setting `network`; where engines have different ones, the widest.", examples=["host"]
    )
    message: str = Field(description="What an engine can do without a sandbox; empty with one.", examples=[""])


class HealthOut(_Out):
    """How the server is."""

    status: Literal["ok", "degraded", "failing"] = Field(
        description=(
            "Anything but `ok` comes with status 503. `failing`: the database cannot be read or written, or no turns"
            " are taken. `degraded`: callers wait, see `loop_lag_sec` and `stuck`."
        )
    )
    version: str = Field(description="Askback's version.", examples=["0.1.0"])
    database: str = Field(description="`ok`, or the code of what is wrong.", examples=["ok"])
    disk_free_bytes: int = Field(ge=0, description="Where the data folder is.", examples=[83119443968])
    slots: SlotsOut = Field(description="How many engine processes there are, and may be.")
    oldest_queued_sec: float | None = Field(description="How long the run that is next has been queued.")
    loop_lag_sec: float = Field(ge=0, description="The longest that callers waited for the server itself, lately.")
    stuck: list[str] = Field(description="Kinds of work whose threads do not come to an end.", examples=[[]])
    sandbox: Literal["bubblewrap", "guardian", "none"] = Field(
        description=(
            "How engines are kept in. `bubblewrap`: each sees its own processes and little of the files, and nothing of"
            " it outlives its run. `guardian`: nothing of it outlives its run. `none`: its process group is ended."
        ),
        examples=["bubblewrap"],
    )
    limits: EnforcementOut = Field(
        description=(
            "By what engines are limited. `cgroup v2`: by the kernel, at once. `watchdog`: looked at several times a"
            " second, so a fast program can exceed it for a moment. `rlimit`: by the kernel, for each process."
        )
    )
    isolation: IsolationOut = Field(description="Files and network that engines can reach.")
