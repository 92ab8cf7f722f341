"""The sections of the settings, such as `server` and `limits`, with their defaults."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, overload
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator

from askback.core.labels import NAME_PATTERN, label_problems
from askback.settings.trust import Shown
from askback.settings.types import Program, Unit

MAX_SLOTS = 10_000
TEN_YEARS_SEC = 10 * 365.25 * 24 * 3600
_MB = 1024 * 1024

_MIN_TOKEN_CHARS = 24
_MIN_DISTINCT_CHARS = 8
_WEAK_TOKEN = (
    f"must have at least {_MIN_TOKEN_CHARS} characters, {_MIN_DISTINCT_CHARS} of them different: it can be guessed; "
    "create one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))', or leave it out and one is generated"
)


def check_address(url: str | None) -> str | None:
    """The URL. Raises `ValueError` if it has no host, or a port that cannot exist."""
    if url is not None and not (parts := urlsplit(url)).hostname:
        raise ValueError("must have a host")
    if url is not None and parts.port == 0:
        raise ValueError("must have another port")
    return url


@overload
def in_bytes(megabytes: float) -> int: ...
@overload
def in_bytes(megabytes: float | None) -> int | None: ...
def in_bytes(megabytes: float | None) -> int | None:
    """The value of a setting that is in MB, of 1024 * 1024 bytes."""
    return None if megabytes is None else int(megabytes * _MB)


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    if problem := next(iter(label_problems(labels)), None):
        raise ValueError(problem)
    return labels


Labels = Annotated[dict[str, str], AfterValidator(_check_labels)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


_ORIGIN = r"^https?://[a-z0-9.\[\]:-]+$"
"""As browsers send it: no path, no user, no wildcard, in lower case."""


class ServerSettings(Section):
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8765, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    token: Annotated[str | None, Shown.NOTHING] = Field(
        None, description="At least 24 random characters. Generated and stored on first start if absent."
    )
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Additional `Host` values that requests may have, with port: `askback.example:8765`."
    )
    allowed_origins: tuple[Annotated[str, StringConstraints(pattern=_ORIGIN, max_length=300)], ...] = Field(
        (),
        examples=["https://app.example"],
        description="Origins of pages that may call the API with a token (CORS), such as `https://app.example`. Cookies are never accepted from them.",
    )
    public_url: str | None = Field(
        None,
        pattern=r"^https?://[^/?#@\s]+/?$",
        examples=["https://askback.example"],
        description="Where users reach the server from outside, such as `https://askback.example`. Added to `allowed_hosts` and used in links; with `https`, cookies are `Secure`.",
    )
    device_days: float = Field(
        365,
        gt=0,
        le=400,
        description="How long a device that was signed in by an invitation stays signed in, in days. Browsers keep no cookie for longer than 400.",
    )
    device_idle_days: float = Field(
        90, gt=0, le=400, description="After how many days without use such a device is signed out."
    )
    failed_sign_ins: int = Field(
        20, ge=1, description="Failed sign-ins per minute from one address that get 401; more get 429."
    )
    unauthenticated_connections: int = Field(
        256, ge=1, description="Connections without a valid token; beyond this number the oldest is dropped."
    )
    grace_sec: float = Field(
        10, ge=0, description="How long requests in progress may still take when the server stops, in seconds."
    )

    _valid_port = field_validator("public_url")(check_address)

    @field_validator("token")
    @classmethod
    def _not_weak(cls, token: str | None) -> str | None:
        if token is not None and (len(token) < _MIN_TOKEN_CHARS or len(set(token)) < _MIN_DISTINCT_CHARS):
            raise ValueError(_WEAK_TOKEN)
        return token


class FleetSettings(Section):
    lease_sec: float = Field(
        20,
        ge=5,
        le=600,
        description="For several programs on one PostgreSQL database: for how long one counts as alive after it last reached the database, in seconds. After that, others continue its runs; it ends its own engines before.",
    )


class Limits(Section):
    body: Annotated[float, Unit("MB")] = Field(
        32, gt=0, description="Size of a JSON request that creates a run, in MB. A reply may have 2 at most."
    )
    body_values: int = Field(
        200_000, gt=0, description="Number of values in one JSON request; a nested list or object counts twice."
    )
    body_sec: float = Field(
        30,
        gt=0,
        description="How long a client may pause while it sends a body, in seconds, and how far it may be behind 16 KB/s.",
    )
    bundle: Annotated[float, Unit("MB")] = Field(
        2048, gt=0, description="Size of the files of one run that are downloaded as a zip, in MB."
    )
    upload: Annotated[float, Unit("MB")] = Field(512, gt=0, description="Size of one uploaded file or zip, in MB.")
    zip_total: Annotated[float, Unit("MB")] = Field(512, gt=0, description="Size of an unpacked skill package, in MB.")
    zip_entries: int = Field(10_000, gt=0, description="Number of entries in a skill package.")
    line: Annotated[float, Unit("MB")] = Field(8, gt=0, description="Size of one line of an engine's output, in MB.")
    output: Annotated[float, Unit("MB")] = Field(
        256, gt=0, description="Size of an engine's output in one turn, in MB."
    )
    memory: Annotated[float, Unit("MB")] = Field(
        default_factory=lambda: max(1024, _machine_memory() // (2 * _MB)),
        ge=0,
        description="Memory of one engine and its child processes, in MB; default: half of the machine's; 0: no limit.",
    )
    processes: int = Field(
        1024, ge=0, description="Number of processes of one engine; threads: 16 times as many; 0: no limit."
    )
    cpu_sec: float = Field(
        0, ge=0, description="CPU time of one turn (for a sticky run: of all turns), in seconds; 0: no limit."
    )
    turn_sec: float = Field(
        0,
        ge=0,
        description="The time that a turn may take, in seconds: a longer `turn_timeout_sec` of a run or of a skill is "
        "shortened; 0: no limit.",
    )
    disk: Annotated[float, Unit("MB")] = Field(
        10_240, ge=0, description="Disk space of one run (workspace, home and temporary files), in MB; 0: no limit."
    )
    disk_reserve: Annotated[float, Unit("MB")] = Field(
        256,
        ge=0,
        description="If less disk space than this is free, in MB, a run that used as much in its turn is ended.",
    )
    min_free_disk: Annotated[float | None, Unit("MB")] = Field(
        None,
        ge=0,
        description="If less disk space than this is free, in MB, no turns are started; default: a hundredth of the disk, at most 64; 0: whatever is free.",
    )


class EngineLimits(Section):
    """Overrides of `limits` for one engine."""

    memory: Annotated[float | None, Unit("MB")] = Field(None, ge=0, description="As `limits.memory`.")
    processes: int | None = Field(None, ge=0, description="As `limits.processes`.")
    cpu_sec: float | None = Field(None, ge=0, description="As `limits.cpu_sec`.")
    disk: Annotated[float | None, Unit("MB")] = Field(None, ge=0, description="As `limits.disk`.")


class Quota(Section):
    open_runs: int | None = Field(1000, ge=1, description="Unfinished runs of one token.")
    running: int | None = Field(
        None,
        ge=1,
        description=(
            "Slots that the runs of one token may have at a time; default: all slots but one, and all slots for the "
            "server's own token. Of an engine that has fewer slots, a token without its own limit may have all but one, "
            "and at least one. Further runs stay queued. On "
            "several machines, the programs that execute runs need this setting, and those of all machines count together."
        ),
    )
    upload: Annotated[float | None, Unit("MB")] = Field(
        4096, gt=0, description="Size of all stored uploads of one token, in MB."
    )
    requests_per_min: int | None = Field(6000, ge=1, description="Requests of one token or link per minute.")

    @property
    def upload_bytes(self) -> int | None:
        return in_bytes(self.upload)


class Quotas(Quota):
    tokens: dict[str, Quota] = Field(
        default_factory=dict,
        description="Quotas for individual tokens, by name. The server's own token, `main`, has none unless it is listed here.",
    )


class EngineSettings(Section):
    command: Annotated[tuple[str, ...] | None, Program()] = Field(
        None, min_length=1, description="The command that starts the engine; default: its name on PATH."
    )
    protocol: Literal["acp"] | None = Field(
        None,
        description="`acp`: the section makes an engine of the program in `command`, which speaks the Agent Client Protocol. See [bring your own agent](../guides/bring-your-own-agent.md).",
    )
    auth_method: str | None = Field(
        None,
        description="Only for programs that speak ACP, as the next five: the sign-in method to use if the program asks for one.",
    )
    mode: str | None = Field(
        None, description="The mode of its sessions in which the program asks for no permissions; default: `yolo`."
    )
    resume: Literal["auto", "resume", "load", "none"] | None = Field(
        None,
        description="How a session is continued: by `session/resume`, `session/load`, the first of them that the program offers (`auto`, the default), or not at all.",
    )
    config_names: tuple[str, ...] | None = Field(
        None,
        examples=[[".youragent"]],
        description="The names in a working directory that configure the program. No skill may contain them.",
    )
    sign_in_files: tuple[str, ...] | None = Field(
        None,
        examples=[[".youragent/auth.json"]],
        description="The files below your home that hold its sign-in. Each turn gets a copy.",
    )
    caches: tuple[str, ...] | None = Field(
        None, description="Files and folders below its home that it makes again, and that are not kept with a run."
    )
    model: str | None = Field(None, description="The model to use if a run names none.")
    effort: str | None = Field(
        None,
        pattern=r"^[a-z][a-z0-9_-]{0,39}$",
        examples=["high"],
        description="How much the model reasons, in the engine's own word such as `high`, if a run and its skill name none.",
    )
    env: Annotated[dict[str, str], Shown.NAMES] = Field(
        default_factory=dict,
        description="Variables to add to the engine's environment, which is otherwise an allow-list.",
    )
    home: Path | None = Field(None, description="A folder copied into each run's private HOME before its first turn.")
    renew_sign_in: bool = Field(
        True,
        description="Whether tokens that a run renewed are merged into your own sign-in. See [sign-ins](../explanation/engines.md#sign-ins).",
    )
    extra_args: tuple[str, ...] = Field((), description="Additional arguments for every start.")
    slots: int | None = Field(None, ge=1, le=MAX_SLOTS, description="At most this many of `slots` for this engine.")
    warm_sec: float | None = Field(
        None,
        ge=0,
        le=TEN_YEARS_SEC,
        description="As the top-level `warm_sec`, for this engine, whether shorter or longer.",
    )
    prewarm: int = Field(
        0,
        ge=0,
        le=64,
        description="How many processes a server keeps ready for runs that are not submitted yet. Only for engines that can be warm, and only with `warm_sec`. See [warm starts](../explanation/warm-processes.md#warm-starts).",
    )
    ask_tool: bool = Field(
        False,
        description="Whether the engine gets the tool `put_question`, which checks a question when it is asked and, in a process that stays, returns the answer. See [the ask tool](../explanation/ask-tool.md).",
    )
    limits: EngineLimits = Field(
        default_factory=EngineLimits,
        description="Overrides of `memory`, `processes`, `cpu_sec` and `disk` in `limits` for this engine.",
    )
    network: Literal["host", "no-loopback", "none"] | None = Field(
        None, description="What this engine can connect to; default: the top-level `network`."
    )


class WorkerSettings(Section):
    host: str = Field("127.0.0.1", min_length=1, description="Address for `/healthz`, `/readyz` and `/metrics`.")
    port: int = Field(
        8766, ge=0, le=65535, description="Port for them; 0 picks a free one. Each worker of a machine needs its own."
    )
    engines: tuple[str, ...] = Field(
        (),
        examples=[["codex", "claude"]],
        description="The engines that it executes turns of; default: all that are installed.",
    )
    labels: Labels = Field(
        default_factory=dict,
        examples=[{"zone": "eu"}],
        description="Texts by name that the list of workers shows, for people. They do not affect which runs it executes.",
    )
    drain_sec: float = Field(
        60,
        ge=0,
        le=TEN_YEARS_SEC,
        description="How long it waits for turns in progress when it is stopped, in seconds. Then they go back to the queue.",
    )


class WarmSettings(Section):
    max_processes: int = Field(
        default_factory=lambda: default_slots(),
        ge=0,
        le=MAX_SLOTS,
        description="How many processes of waiting runs are kept, besides those with a slot; the oldest is ended for a new one; default: as `slots`; 0: none.",
    )
    max_memory: Annotated[float, Unit("MB")] = Field(
        default_factory=lambda: _machine_memory() // (4 * _MB),
        ge=0,
        description="Memory of all of them, in MB; beyond this the oldest are ended; default: a quarter of the machine's; 0: no limit.",
    )
    min_free_memory: Annotated[float, Unit("MB")] = Field(
        default_factory=lambda: min(1024, _machine_memory() // (8 * _MB)),
        ge=0,
        description="If less memory than this is free, in MB, the oldest are ended; default: an eighth of the machine's, at most 1024; 0: whatever is free.",
    )


class Retention(Section):
    days: float | None = Field(None, gt=0, le=36_500, description="How long a finished run is kept; default: forever.")
    max_gb: float | None = Field(
        None,
        gt=0,
        description="Size of the files of all runs; beyond this, the oldest finished runs are deleted.",
    )

    audit_days: float | None = Field(
        365,
        gt=0,
        le=36_500,
        description="How long an entry of the audit log is kept. Entries outlive their run.",
    )

    questions: int = Field(
        10,
        ge=0,
        description="At how many answered questions a run can be forked: the newest ones. Each keeps the files of the engine's home that changed since the one before, up to 1 GB per run.",
    )

    @property
    def max_bytes(self) -> int | None:
        return None if self.max_gb is None else int(self.max_gb * 1024 * _MB)


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe messages that `askback serve` logs, to standard error."
    )
    format: Literal["text", "json"] = Field(
        "text",
        description="`json`: one object per line, with `time`, `level`, `logger`, `message` and, where there are any, `run`, "
        "`engine`, `path`, `error` and `exception`.",
    )


class McpSettings(Section):
    skill_tools: bool = Field(
        False,
        description="Whether `/mcp` offers each skill as a separate tool, besides `run_skill`. Needs `askback[mcp]`.",
    )


class TelemetrySettings(Section):
    otlp_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*)?$",
        examples=["http://127.0.0.1:4318"],
        max_length=500,
        description="The OpenTelemetry collector that gets traces and metrics, by OTLP over HTTP: `http://127.0.0.1:4318`. `/v1/traces` and `/v1/metrics` are appended. Needs `askback[otel]`; default: nothing is sent.",
    )
    otlp_headers: Annotated[dict[str, str], Shown.NAMES] = Field(
        default_factory=dict,
        description="Headers of the requests to the collector, such as `authorization`.",
        repr=False,
    )
    metrics_sec: float = Field(
        60, ge=1, description="How often metrics are sent to the collector, in seconds. Only a server sends them."
    )
    metric_labels: tuple[Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")], ...] = Field(
        (),
        max_length=8,
        description='Names of run labels that metrics count by: `["customer"]`. Each has at most 100 values; further ones count as `other`.',
    )


def _machine_memory() -> int:
    """In bytes; in a container, its limit."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        memory = 4096 * _MB
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            memory = min(memory, int(Path("/sys/fs/cgroup", name).read_text()))
    return memory


def default_slots() -> int:
    """Engines are large: at most two per core and one per 700 MB of memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(2 * cores, _machine_memory() // (700 * _MB)))
