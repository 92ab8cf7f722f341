"""The settings as a model: every key with its type, default and description. The sections are in `sections` and `notifications`.

Two rules follow from the types of the fields (`types`). A `Path`, wherever it is in the model, is resolved against the folder
of its file. `askback trust` shows the value of every setting, except those that are annotated with `trust.Shown`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from askback.core.errors import Invalid, RefusalCode
from askback.core.runs import DAY_SEC
from askback.core.webhooks import Webhook
from askback.settings import sections
from askback.settings import types as setting_types
from askback.settings.environment import PREFIX, data_folder
from askback.settings.notifications import NotificationSettings, TelegramSettings, WebhookSettings, webhooks_of
from askback.settings.trust import Shown

_ENCODE = (
    "a special character in its user or password must be percent-encoded (%40 for @, %2F for /, %3A for :, %3F for ?,"
    " %23 for #, %25 for %); or leave the password out, and set PGPASSWORD"
)


def check_database(address: str | None) -> str | None:
    """Raises `ValueError` for special characters in the credentials: a part of the password would be read as a host."""
    if address is None or not address.startswith(("postgres://", "postgresql://")):
        return address
    place, _, options = address.partition("://")[2].partition("?")
    user, at, host = place.partition("@")
    odd_port = not at and "@" in options and not (place.partition(":")[2].partition("/")[0] or "0").isdigit()
    if (at and ("/" in user or "@" in host)) or odd_port or "#" in address or not _is_url(address):
        raise ValueError(_ENCODE)
    return address


def _is_url(address: str) -> bool:
    try:
        urlsplit(address)
    except ValueError:
        return False
    return True


def check_files(address: object) -> object:
    """Raises `ValueError` for a folder that is not the same one everywhere."""
    if isinstance(address, str):
        folder = address.removeprefix("file://")
        if not folder.startswith("/") and (folder != address or "://" not in address):
            raise ValueError("a folder must be absolute, such as /mnt/askback; a bucket looks like s3://bucket/askback")
    return address


def check_runs_dir(path: Path | None) -> Path | None:
    """Raises `ValueError` for a path that depends on the folder of a settings file, or on the working directory."""
    if path is not None and not path.is_absolute() and not str(path).startswith("~"):
        raise ValueError(
            "must be absolute, such as /var/lib/askback/runs: the sessions of engines contain it, and it must be the same"
            " on all machines"
        )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What set a value. `name` is the variable or the file."""

    source: Literal["default", "command_line", "environment", "file"]
    name: str | None = None


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, allow_inf_nan=False
    )

    data_dir: Path = Field(
        default_factory=data_folder,
        description="The folder for runs, skills and the database; default: the user's data folder.",
    )
    database: Annotated[str | None, Shown.NOTHING] = Field(
        None,
        pattern=r"^(sqlite|postgres(ql)?://\S+)$",
        examples=["postgresql://askback@db.example/askback"],
        description=(
            "Where runs are stored: `sqlite`, a file in the data folder, or the address of a PostgreSQL database."
            " Default: `DATABASE_URL` if that is such an address, otherwise `sqlite`."
            " See [PostgreSQL](../guides/postgresql.md)."
        ),
    )
    files: str | None = Field(
        None,
        pattern=r"^((s3|gs|az)://[^\s@#]+|(file://)?/\S.*)$",
        examples=["s3://bucket/askback"],
        description=(
            "Where uploads, skill packages and the files of runs are stored so that every machine can use them: `s3://`,"
            " `gs://`, `az://`, or a folder that the machines share. Default: only in the data folder."
            " Needs `askback[files]`. See [stored files](../guides/files.md)."
        ),
    )
    runs_dir: Path | None = Field(
        None,
        description=(
            "The folder in which engines work, one folder per run; default: `runs` in the data folder. Sessions of engines"
            " contain this path, so it must be absolute, and the same on all machines that share a database."
        ),
    )
    slots: int = Field(
        default_factory=sections.default_slots,
        ge=1,
        le=sections.MAX_SLOTS,
        description="How many engine processes may run at a time; default: depends on cores and memory.",
    )
    warm_sec: float = Field(
        0,
        ge=0,
        le=sections.TEN_YEARS_SEC,
        description=(
            "How long the process of a resumable run is kept while the run waits, if its engine allows it, in seconds;"
            " 0: it ends when the run asks. `600` is recommended where people wait for answers. The option of a run"
            " can only shorten it. See [warm waits](../explanation/warm-processes.md#warm-waits)."
        ),
    )
    on_limit: Literal["fail", "park"] = Field(
        "fail",
        description=(
            "What happens to a run that meets a limit of the model provider, unless the run or its skill says it. `fail`: it"
            " fails. `park`: it is queued, without slot and process, until the limit ends."
            " See [limits](../guides/limits.md)."
        ),
    )
    max_park_sec: float = Field(
        8 * DAY_SEC,
        gt=0,
        le=sections.TEN_YEARS_SEC,
        description="How long a run may be parked in a row, in seconds, unless the run or its skill says it.",
    )
    skills_dir: Annotated[tuple[Path, ...], NoDecode] = Field(
        (), description="Folders that contain skill folders; in the environment separated by `:`, or as JSON."
    )
    default_engine: str | None = Field(
        None,
        description="The engine if neither run nor skill names one; default: an installed one, signed-in ones first.",
    )
    workdirs: Annotated[tuple[Path, ...], NoDecode] = Field(
        (),
        description=(
            "Folders of this machine: a caller of the API may let a run work in one of them, or in a folder below."
            " In the environment separated by `:`, or as JSON. `askback run --workdir` needs no setting."
            " See [work in your own repository](../guides/workdir.md)."
        ),
    )
    permissions: str | dict[str, Any] | None = Field(
        None,
        examples=["careful"],
        description=(
            "The policy for the tool calls of every run: which run, need an approval, or never run. The name of a ready policy"
            " (`careful`, `read-only`, `workspace`), or `rules` and a `default`. Tokens, runs and skills can only restrict more."
            " See [approvals](../guides/approvals.md)."
        ),
    )
    sandbox: Literal["auto", "on", "off"] = Field(
        "auto",
        description=(
            "Whether engines run in a bubblewrap sandbox. `auto`: if it works here (see `askback doctor`). `on`: always;"
            " refuses to start if it does not work. `off`: never. What a sandbox hides:"
            " [processes](../explanation/processes.md)."
        ),
    )
    sandbox_show: tuple[Path, ...] = Field(
        (), description="Additional files and folders that sandboxed engines can read, such as `/mnt/data`."
    )
    sandbox_share: tuple[Path, ...] = Field(
        (),
        description=(
            "Additional folders that sandboxed engines can read and write. This weakens the sandbox: through `/tmp`,"
            " for example, an engine can reach sockets of your other programs."
        ),
    )
    network: Literal["host", "no-loopback", "none"] = Field(
        "host",
        description=(
            "What engines can connect to. `host`: everything that you can, including services on this machine's"
            " loopback. `no-loopback`: other machines, but not this one and no cloud metadata addresses."
            " `none`: nothing."
            " The latter two need a sandbox: [processes](../explanation/processes.md)."
        ),
    )
    server: sections.ServerSettings = Field(
        default_factory=sections.ServerSettings, description="How `askback serve` listens and admits clients."
    )
    fleet: sections.FleetSettings = Field(
        default_factory=sections.FleetSettings,
        description="How several programs work on one database. See [PostgreSQL](../guides/postgresql.md).",
    )
    worker: sections.WorkerSettings = Field(
        default_factory=sections.WorkerSettings,
        description="What `askback worker` executes and where it reports. See [workers](../guides/workers.md).",
    )
    warm: sections.WarmSettings = Field(
        default_factory=sections.WarmSettings,
        description="How many processes of waiting runs are kept, and how large they may be.",
    )
    limits: sections.Limits = Field(
        default_factory=sections.Limits, description="Limits on requests, uploads and engines."
    )
    quotas: sections.Quotas = Field(default_factory=sections.Quotas, description="How much each token may use.")
    engines: dict[str, sections.EngineSettings] = Field(
        default_factory=dict, description="One section per engine, by name."
    )
    webhooks: Annotated[tuple[WebhookSettings, ...], Shown.NOTHING] = Field(
        (), description="Webhooks that are notified of every run on the server."
    )
    notifications: NotificationSettings = Field(
        default_factory=NotificationSettings, description="Where webhooks may point, and what their messages link to."
    )
    telegram: TelegramSettings = Field(
        default_factory=TelegramSettings,
        description="A bot that shows questions in chats and takes answers. See [the guide](../guides/telegram.md).",
    )
    retention: sections.Retention = Field(
        default_factory=sections.Retention, description="What a server removes, once a day."
    )
    log: sections.LogSettings = Field(default_factory=sections.LogSettings, description="What a server logs, and how.")
    mcp: sections.McpSettings = Field(default_factory=sections.McpSettings, description="The MCP server at `/mcp`.")
    telemetry: sections.TelemetrySettings = Field(
        default_factory=sections.TelemetrySettings, description="Traces and metrics for an OpenTelemetry collector."
    )
    _origins: dict[tuple[str, ...], Origin] = PrivateAttr(default_factory=dict)
    _files: tuple[Path, ...] = PrivateAttr(())

    @property
    def runs(self) -> Path:
        """The folder with the folders of the runs."""
        return self.data_dir / "runs" if self.runs_dir is None else self.runs_dir

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files that these settings were read from. They may contain secrets."""
        return self._files

    def origin(self, path: Sequence[str]) -> Origin:
        """Where the value of a key comes from; of an entry in a list, where the list does."""
        keys = (tuple(path[:length]) for length in range(len(path), 0, -1))
        return next((self._origins[key] for key in keys if key in self._origins), Origin(source="default"))

    def unit(self, path: Sequence[str]) -> str | None:
        """The unit of a number, if its key does not name it."""
        return setting_types.unit(Settings, path)

    @model_validator(mode="before")
    @classmethod
    def _no_empty_path(cls, given: Any) -> Any:
        """`Path("")` is the working directory, which `ASKBACK_DATA_DIR=` does not mean."""
        problems: list[str] = []

        def check(key: str, path: Any) -> Any:
            if path == "":
                problems.append(f"{key}: the path is empty")
            return path

        setting_types.with_paths(Settings, given, (), check)
        if problems:
            raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings are wrong", problems)
        return given

    _check_database = field_validator("database")(check_database)
    _check_files = field_validator("files", mode="before")(check_files)
    _check_runs_dir = field_validator("runs_dir")(check_runs_dir)

    @field_validator("skills_dir", "workdirs", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        with suppress(ValueError, RecursionError):
            if isinstance(listed := json.loads(value), list):
                return listed
        return [part for part in value.split(os.pathsep) if part]


def webhooks(settings: Settings) -> tuple[Webhook, ...]:
    return webhooks_of(settings.webhooks, settings.notifications.reminders)
