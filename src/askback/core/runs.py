"""A run: one execution of a skill, as it is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from askback.core.actors import Actor
from askback.core.approvals import RunPermissions
from askback.core.errors import Limit, NotFound, RefusalCode, RunError, RunWarning
from askback.core.interactions import Closing, Interaction

SHARED = ""
"""The owner of a run that any server on the data folder may execute."""
_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}", re.ASCII)
"""Ids become names of folders and files, and parts of keys: nothing else is ever joined to a path."""


def is_run_id(text: str) -> bool:
    return _RUN_ID.fullmatch(text) is not None


def parse_run_id(text: str) -> str:
    """The id. Raises `NotFound` for any other text: no run can have it."""
    if not is_run_id(text):
        raise NotFound(RefusalCode.RUN_NOT_FOUND, f"there is no run {text[:80]!r}; `askback runs` lists all runs")
    return text


def require_run_id(text: str) -> None:
    """Raises `ValueError` for a text that no run can have as its id, as decoders of documents expect it."""
    if not is_run_id(text):
        raise ValueError(f"{text[:80]!r} is not the id of a run")


class RunState(StrEnum):
    """The state of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_USER = "waiting_user"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED)


class Mode(StrEnum):
    """Whether a run may ask."""

    AUTO = "auto"
    INTERACTIVE = "interactive"


class ProfileKind(StrEnum):
    """How an interactive run waits: without a process, or with one."""

    RESUMABLE = "resumable"
    STICKY_PROCESS = "sticky_process"


class ProfileChoice(StrEnum):
    """The profile that a caller wants; `auto`: the best that the engine has."""

    AUTO = "auto"
    RESUMABLE = "resumable"
    STICKY_PROCESS = "sticky_process"


class Validation(StrEnum):
    """Whether a malformed question of an engine fails the run."""

    LENIENT = "lenient"
    STRICT = "strict"


class OnLostSession(StrEnum):
    """What happens if the engine no longer has the session that a turn resumes."""

    FAIL = "fail"
    REBUILD = "rebuild"
    """A new session starts, with the questions and answers so far."""


class OnLimit(StrEnum):
    """What happens if a turn meets a limit of the model provider."""

    FAIL = "fail"
    PARK = "park"
    """The run is queued until the limit ends."""


DAY_SEC = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How an interactive run waits (`EngineInteractiveProfile`); `reason` says what the probe saw."""

    kind: ProfileKind
    reason: str
    session_timeout_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """What an engine needs to resume a session (`EngineSessionHandle`). Only the engine's module reads the value."""

    engine: str
    handle_type: str
    handle_value: str
    created_at_turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    session_timeout_sec: float = 1200
    turn_timeout_sec: float = 1200
    interactive_require_user_reply: bool = True
    interactive_profile: ProfileChoice = ProfileChoice.AUTO
    ask_user_validation: Validation = Validation.LENIENT
    repair_attempts: int = 1
    on_lost_session: OnLostSession = OnLostSession.FAIL
    on_limit: OnLimit = OnLimit.FAIL
    max_park_sec: float = 8 * DAY_SEC
    """How long it may be parked in a row. The longest windows of providers are a week."""
    model: str | None = None
    effort: str | None = None
    warm_sec: float | None = None
    """How long its process may be kept while it waits, if it is resumable; 0: not at all; None: as the settings say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRef:
    """Which package a run executes; the digest identifies its exact content."""

    id: str
    version: str | None
    digest: str
    uploaded: bool = False
    """Whether the package came with the run, and is in the run's folder."""


class TurnKind(StrEnum):
    """What a turn is for."""

    START = "start"
    REPLY = "reply"
    REPAIR = "repair"
    REBUILD = "rebuild"
    """A new session, because the engine has lost the run's session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOrder:
    """What the next turn is for. The answer is in the interaction; a repair has the problems of the output."""

    kind: TurnKind
    attempt_number: int
    interaction_id: str | None = None
    problems: tuple[str, ...] = ()

    @property
    def continues(self) -> bool:
        """Whether it asks for nothing new, but continues the work that a limit has cut off: a repair of nothing."""
        return self.kind is TurnKind.REPAIR and not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Parking:
    """Why and how long a run is not executed: a limit of the model provider.

    It stays with the run until a turn has ended without a limit, so that `since` and `times` are of all in a row.
    """

    limit: Limit
    until: datetime
    """When the limit should be over: as the engine said, or estimated."""
    not_before: datetime | None
    """When the turn is executed again, some time after `until`. None: the run is not parked any more."""
    since: datetime
    times: int = 0
    """How often its own turns met a limit. 0: only another run has."""
    forced: bool = False
    """Somebody wants it to be tried, whatever is known of the limit."""


class InheritedFiles(StrEnum):
    """What a run copies of another run's files."""

    ARTIFACTS = "artifacts"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The run that another one continues (`from_run`), and what is copied from it."""

    run_id: str
    files: InheritedFiles | None = None
    session: bool = False
    """Whether the engine's session is copied and continued."""
    at: str | None = None
    """A question: the session is copied as it was when that question was asked, and the run starts with it."""

    def __post_init__(self) -> None:
        require_run_id(self.run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workdir:
    """A folder of the user that the engine works in, instead of the run's own folder."""

    path: str
    """Absolute and without links."""
    by_user: bool = False
    """Whether a user of this machine named it. Otherwise the settings must allow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """Identifies a process permanently: a pid alone may be reused."""

    pid: int
    start_ticks: int
    boot_id: str


class UsageKey(StrEnum):
    """By what usage is added up."""

    DAY = "day"
    ENGINE = "engine"
    MODEL = "model"
    SKILL = "skill"
    TOKEN = "token"
    LABEL = "label"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What one model has used. None: the engine does not report it."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
            model=self.model,
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cost_usd=_sum(self.cost_usd, other.cost_usd),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens in one form for every engine, and what it reports beyond that: None if it does not.

    The output includes reasoning tokens, and the input cached ones.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = 0
    total_tokens: int = 0
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    by_model: tuple[ModelUsage, ...] = ()

    def __add__(self, other: Usage) -> Usage:
        models = {each.model: each for each in self.by_model}
        for each in other.by_model:
            models[each.model] = models[each.model] + each if each.model in models else each
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            total_tokens=self.total_tokens + other.total_tokens,
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cost_usd=_sum(self.cost_usd, other.cost_usd),
            by_model=tuple(models.values()),
        )

    def beyond(self, earlier: Usage) -> Usage:
        """The usage since `earlier`, for engines that count the whole session. Without models."""
        return Usage(
            input_tokens=max(self.input_tokens - earlier.input_tokens, 0),
            output_tokens=max(self.output_tokens - earlier.output_tokens, 0),
            cached_tokens=_beyond(self.cached_tokens, earlier.cached_tokens),
            total_tokens=max(self.total_tokens - earlier.total_tokens, 0),
            reasoning_tokens=_beyond(self.reasoning_tokens, earlier.reasoning_tokens),
            cost_usd=_beyond(self.cost_usd, earlier.cost_usd),
        )

    def of_model(self, model: str | None) -> ModelUsage:
        return ModelUsage(
            model=model,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            reasoning_tokens=self.reasoning_tokens,
            cost_usd=self.cost_usd,
        )


N = TypeVar("N", int, float)


def _sum(one: N | None, other: N | None) -> N | None:
    """None if neither is known."""
    return one if other is None else other if one is None else one + other


def _beyond(now: N | None, earlier: N | None) -> N | None:
    return None if now is None else max(now - (earlier or 0), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`version` guards every change; `epoch` counts claims, so that a worker that lost the run cannot write.

    `owner` is the instance that may execute the run (`SHARED`: any server); `worker` is the one that executes it now.
    """

    id: str
    state: RunState
    skill: SkillRef
    engine: str
    mode: Mode
    profile: Profile
    options: RunOptions
    next_turn: TurnOrder
    created_at: datetime
    updated_at: datetime
    owner: str = SHARED
    created_by: str | None = None
    """The name of the token that created it."""
    summary: str | None = None
    """Its input in one line, for people."""
    labels: dict[str, str] = field(default_factory=dict)
    """Short texts by name, which its caller has chosen; see `core/labels.py`."""
    env_names: tuple[str, ...] = ()
    """The names of its secret variables."""
    secret_inputs: tuple[str, ...] | None = None
    """The names of the inputs that must not be shown; None if the input is not shown at all."""
    inherited_secrets: tuple[str, ...] = field(default=(), repr=False)
    """The secret texts in the input and parameters of the runs that it continues: it may meet them in what it took over."""
    origin: Origin | None = None
    """The run that it continues."""
    trace_parent: str | None = None
    """The caller's span, as a W3C `traceparent`."""
    workdir: Workdir | None = None
    """The user's folder that its engine works in. None: the run's own folder."""
    permissions: RunPermissions | None = None
    """Which calls of tools run, which need an approval, and which never run. None: every call runs."""
    usage_before: Usage | None = None
    """What its session had used before the run, if it continues one."""
    usage_lost: Usage | None = None
    """What it used in sessions that were lost."""
    version: int = 1
    epoch: int = 0
    attempt_number: int = 1
    max_attempt: int | None = None
    restarts: int = 0
    repairs: int = 0
    rebuilds: int = 0
    """How often its session was rebuilt since it last waited."""
    worker: str | None = None
    process: ProcessIdentity | None = None
    handle: Handle | None = None
    kept: str | None = None
    """The key of the archive with its files as its last turn left them, in the store of `files`. None: only on its machine."""
    pending_interaction: Interaction | None = None
    interaction_ids: tuple[str, ...] = ()
    wait_deadline_at: datetime | None = None
    closed_interaction: Closing | None = None
    """How its last closed question was closed. None if there is none, or if an earlier version closed it."""
    parking: Parking | None = None
    """The limit that it waits for, or that its last turn has met."""
    expiring_interaction_id: str | None = None
    """The question whose deadline was announced, by the event `interaction.expiring`."""
    cancel_requested_at: datetime | None = None
    canceled_by: Actor | None = None
    warnings: tuple[RunWarning, ...] = ()
    error: RunError | None = None
    usage: Usage | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    newer: Mapping[str, str] | None = None
    """The fields of its document that only newer versions know: JSON by name. Last: see `store.sql.rows.stored`."""

    def __post_init__(self) -> None:
        require_run_id(self.id)

    def evolve(self, **changes: Any) -> Run:
        return replace(self, **changes)

    @property
    def sticky(self) -> bool:
        """Whether it keeps its process from turn to turn. An `auto` run never does: it cannot wait."""
        return self.mode is Mode.INTERACTIVE and self.profile.kind is ProfileKind.STICKY_PROCESS

    @property
    def bound_to_process(self) -> bool:
        """Whether its next turn can only happen in the process of its last one."""
        return self.sticky and self.next_turn.kind is not TurnKind.START

    @property
    def settled(self) -> bool:
        """Whether it is final, or waits for its user."""
        return self.state.final or self.state is RunState.WAITING_USER

    @property
    def ended_unstored(self) -> bool:
        """Whether it is final, and no turn of it ended with the setting `files`."""
        return self.state.final and self.epoch > 0 and self.kept is None

    @property
    def process_profile(self) -> ProfileKind:
        """How its processes are started, which is not its profile if it never asks."""
        return ProfileKind.STICKY_PROCESS if self.sticky else ProfileKind.RESUMABLE

    @property
    def handle_before_turn(self) -> Handle | None:
        """Its handle if its turn is executed again from before it: one that was named in the turn is dropped."""
        named_here = self.handle is not None and self.handle.created_at_turn == self.attempt_number
        return None if named_here else self.handle

    @property
    def not_before(self) -> datetime | None:
        """When a parked run is executed again. None: it is not parked."""
        return None if self.parking is None or self.state is not RunState.QUEUED else self.parking.not_before

    @property
    def in_queue(self) -> bool:
        """Whether a worker may take it."""
        return self.state is RunState.QUEUED and self.not_before is None

    @property
    def starts_session(self) -> bool:
        """Whether its next turn starts a new session, in a new home."""
        kind = self.next_turn.kind
        return kind is TurnKind.REBUILD or (kind is TurnKind.START and not self.continues_session)

    @property
    def continues_session(self) -> bool:
        """Whether it began with the session of another run."""
        return self.origin is not None and self.origin.session

    @property
    def session_usage(self) -> Usage:
        """What its session has used so far, also before the run."""
        return (self.usage_before or Usage()) + (self.usage or Usage()).beyond(self.usage_lost or Usage())

    @property
    def expired(self) -> bool:
        """Whether its deadline has passed. It fails as soon as its process tree has ended."""
        return self.error is not None and not self.state.final

    @property
    def answerable(self) -> bool:
        """Whether it has a question that still takes an answer."""
        return self.pending_interaction is not None and not self.cancel_requested

    @property
    def expiring(self) -> bool:
        """Whether the deadline of its pending question was announced."""
        pending = self.pending_interaction
        return pending is not None and pending.interaction_id == self.expiring_interaction_id

    @property
    def cancel_requested(self) -> bool:
        return self.cancel_requested_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The input and parameters of a run; stored once."""

    input: dict[str, Any] = field(default_factory=dict)
    parameter: dict[str, Any] = field(default_factory=dict)
    env: str | None = None
    """The secret variables, sealed. None once the run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedQuestion:
    """A question that is no longer pending, with the run that asked it."""

    run_id: str
    skill: str
    engine: str
    state: RunState
    summary: str | None
    interaction: Interaction
    labels: dict[str, str] = field(default_factory=dict)
