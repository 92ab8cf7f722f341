"""What a server answers, as values. Codes and event types are texts: a newer server may have more of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from askback.core.interactions import Interaction
from askback.core.runs import Mode, Profile, RunState, Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A part of a list; `next_cursor` leads to the next one."""

    items: tuple[T, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWarning:
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """Why a run failed: `message` for people, `cause` a finer code, `detail` the engine's own words."""

    code: str
    message: str
    cause: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldProcess:
    """The engine's process that waits with its run; `until` is None while it is being ended."""

    pid: int
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    id: str
    state: RunState
    skill: str
    engine: str
    mode: Mode
    attempt_number: int
    interactive_profile: Profile
    created_at: datetime
    updated_at: datetime
    skill_version: str | None = None
    queue_reason: str | None = None
    pending_interaction: Interaction | None = None
    wait_deadline_at: datetime | None = None
    reply_required: bool | None = None
    held_process: HeldProcess | None = None
    warnings: tuple[RunWarning, ...] = ()
    error: RunError | None = None
    usage: Usage | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def settled(self) -> bool:
        """It is over, or it asks."""
        return self.state.final or self.state is RunState.WAITING_USER


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingQuestion(Interaction):
    """A question in the inbox, with the run that asks it."""

    run_id: str
    skill: str
    engine: str
    wait_deadline_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a run; `seq` counts from 1 without gaps."""

    seq: int
    run_id: str
    type: str
    at: datetime
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    path: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    status: RunState
    data: Any
    warnings: tuple[RunWarning, ...] = ()
    error: RunError | None = None
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    upload_id: str
    name: str
    size: int

    @property
    def reference(self) -> dict[str, str]:
        """How a run's input, or a reply, names it."""
        return {"upload_id": self.upload_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Lets its holder read and answer one question, and nothing else."""

    id: str
    url: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One webhook told of one change of state, or still to be told."""

    id: str
    run_id: str
    url: str
    kind: str
    event: str
    seq: int
    to: RunState
    attempts: int
    last_status: int | None = None
    last_error: str | None = None
    next_attempt_at: datetime | None = None
    delivered_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    id: str
    version: str | None = None
    versions: tuple[str | None, ...] = ()
    name: str | None = None
    description: str | None = None
    execution_modes: tuple[Mode, ...] = ()
    engines: tuple[str, ...] | None = None
    installed: bool = True
    problem: str | None = None
    instructions: str | None = None
    schemas: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    name: str
    found: bool
    title: str | None = None
    path: str | None = None
    version: str | None = None
    interactive_profile: EngineProfile | None = None
    profiles: tuple[str, ...] = ()
    signed_in: bool | None = None
    advice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    total: int
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """`files` is `run` in a sandbox and `user` without one; `network` is as the setting says."""

    files: str
    network: str
    shares_folders: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`status` is `ok` or `failing`; `database` says what is wrong there."""

    status: str
    version: str
    database: str
    disk_free_bytes: int
    slots: Slots
    oldest_queued_sec: float | None = None
    sandbox: str = ""
    limits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By what engines are limited: memory, processes, cpu, disk, oom."""
    isolation: Isolation | None = None
