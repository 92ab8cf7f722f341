"""Settings: from the command line, the environment, `askback.toml`, and defaults, in that order.

The only place that reads the environment. Everyone else is given values.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from askback.core.errors import Invalid, RefusalCode
from askback.core.runs import RunState

FILE_NAME = "askback.toml"
_MB = 1024 * 1024

_COMMON_ENV = (
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Section):
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8765, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    token: str | None = Field(None, min_length=16, description="Made and stored on first start if absent.")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Further names, with port, that requests may be for: `askback.example:8765`."
    )
    unauthenticated_connections: int = Field(
        256, ge=1, description="Connections that have shown no valid token; beyond these the longest idle is dropped."
    )
    grace_sec: float = Field(10, ge=0, description="How long requests in progress may take when the server stops.")


class Limits(_Section):
    body: float = Field(32, gt=0, description="One JSON request that creates a run, in MB; a reply: at most 2.")
    body_values: int = Field(
        200_000, gt=0, description="Values in one JSON request, a number; a list or object in another counts twice."
    )
    body_sec: float = Field(
        30, gt=0, description="How long a client may take to send a body; one second more for each 16 KB that came."
    )
    bundle: float = Field(2048, gt=0, description="The files of one run that are sent as a zip, in MB.")
    upload: float = Field(512, gt=0, description="One file or zip, in MB.")
    zip_total: float = Field(512, gt=0, description="A skill package unpacked, in MB.")
    zip_entries: int = Field(10_000, gt=0, description="Entries of a skill package, a number.")
    line: float = Field(8, gt=0, description="One line of an engine, in MB.")
    output: float = Field(256, gt=0, description="One turn of an engine, in MB.")

    @property
    def body_bytes(self) -> int:
        return int(self.body * _MB)

    @property
    def bundle_bytes(self) -> int:
        return int(self.bundle * _MB)

    @property
    def upload_bytes(self) -> int:
        return int(self.upload * _MB)

    @property
    def zip_total_bytes(self) -> int:
        return int(self.zip_total * _MB)

    @property
    def line_bytes(self) -> int:
        return int(self.line * _MB)

    @property
    def output_bytes(self) -> int:
        return int(self.output * _MB)


class Quota(_Section):
    open_runs: int | None = Field(1000, ge=1, description="Runs of one token that are not over.")
    upload: float | None = Field(4096, gt=0, description="Uploads of one token that are kept, in MB.")
    requests_per_min: int | None = Field(6000, ge=1, description="Requests of one token or link, by the minute.")

    @property
    def upload_bytes(self) -> int | None:
        return None if self.upload is None else int(self.upload * _MB)


class Quotas(Quota):
    tokens: dict[str, Quota] = Field(
        default_factory=dict,
        description="Other quotas for some tokens, by their names. The server's own, `main`, has none unless it is here.",
    )


class EngineSettings(_Section):
    command: tuple[str, ...] | None = Field(
        None, min_length=1, description="How to start it; default: its name on PATH."
    )
    model: str | None = Field(None, description="The model to ask for when a run names none.")
    env: dict[str, str] = Field(
        default_factory=dict, description="Added to the engine's environment, which is otherwise an allow-list."
    )
    home: Path | None = Field(None, description="A folder copied into each run's private HOME before its first turn.")
    extra_args: tuple[str, ...] = Field((), description="Further arguments for every start.")
    slots: int | None = Field(None, ge=1, description="At most this many of `slots` for this engine.")


class WebhookSettings(_Section):
    url: str = Field(max_length=2000, description="Where to post: `https://…`.")
    secret: str | None = Field(
        None, max_length=200, description="`whsec_…`, for the signature; for `ntfy` its access token."
    )
    kind: Literal["standard", "ntfy", "slack"] = Field("standard", description="The form of what is posted.")
    states: tuple[RunState, ...] | None = Field(None, description="Only for these states; default: all.")


class NotificationSettings(_Section):
    allow_private: bool = Field(False, description="Whether webhooks may lead to this machine or its own networks.")
    link: str | None = Field(
        None, max_length=500, description="Where people can see a run, with `{run}` for its id; for `ntfy` and `slack`."
    )


class Retention(_Section):
    days: float | None = Field(None, gt=0, description="How long a run is kept after it is over; default: for ever.")
    max_gb: float | None = Field(
        None, gt=0, description="How much the files of all runs may take; beyond that the oldest that are over go."
    )

    @property
    def max_bytes(self) -> int | None:
        return None if self.max_gb is None else int(self.max_gb * 1024 * _MB)


def _user_folder(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable, "")
    return (Path(base) if base.startswith("/") else Path.home() / fallback) / "askback"


def _default_slots() -> int:
    """Engines are large: two a core, and none without 700 MB of memory for it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        memory = 4096 * _MB
    return max(1, min(2 * cores, memory // (700 * _MB)))


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="ASKBACK_", env_nested_delimiter="__", extra="forbid", frozen=True)

    data_dir: Path = Field(
        default_factory=lambda: _user_folder("XDG_DATA_HOME", ".local/share"),
        description="Where runs, skills and the database live; default: the user's data folder.",
    )
    slots: int = Field(
        default_factory=_default_slots, ge=1, description="Engine processes at a time; default: by cores and memory."
    )
    skills_dir: Annotated[tuple[Path, ...], NoDecode] = Field(
        (), description="Folders that hold skill folders; in the environment joined by `:`, or as JSON."
    )
    default_engine: str | None = Field(
        None, description="When neither run nor skill names one; else the first that is installed."
    )
    sandbox: Literal["auto", "on", "off"] = Field(
        "auto",
        description=(
            "Whether engines run in a bubblewrap sandbox: `auto` where it works (`askback doctor` tells), `on` refuses"
            " to start where it does not, `off` never. What a sandbox hides: [processes](processes.md)."
        ),
    )
    server: ServerSettings = Field(default_factory=ServerSettings, description="What `askback serve` listens on.")
    limits: Limits = Field(default_factory=Limits, description="Caps on what is taken in.")
    quotas: Quotas = Field(default_factory=Quotas, description="How much each token may ask for.")
    engines: dict[str, EngineSettings] = Field(default_factory=dict, description="One section an engine, by its name.")
    webhooks: tuple[WebhookSettings, ...] = Field((), description="Who is told of every run of the server.")
    notifications: NotificationSettings = Field(
        default_factory=NotificationSettings, description="How webhooks are told."
    )
    retention: Retention = Field(default_factory=Retention, description="What a server removes, once a day.")

    @field_validator("skills_dir", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        with suppress(ValueError, RecursionError):
            if isinstance(listed := json.loads(value), list):
                return listed
        return [part for part in value.split(os.pathsep) if part]


_SECTIONS: dict[str, type[_Section]] = {
    "server": ServerSettings,
    "limits": Limits,
    "quotas": Quotas,
    "engines": EngineSettings,
    "webhooks": WebhookSettings,
    "notifications": NotificationSettings,
    "retention": Retention,
}
_SHAPES = {
    "missing": "given",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "a text, in quotes",
    "path_type": "the path of a folder, in quotes",
    "tuple_type": 'a list, such as ["one", "two"]',
    "dict_type": "a table, of keys with their values",
    "model_type": "a table, of keys with their values",
}
"""How a value of the wrong kind is told, by what pydantic calls the mistake."""


def load(config: Path | None = None, *, data_dir: Path | None = None) -> Settings:
    """Read the settings. Every mistake in them is named by its key, all in one `Invalid`."""
    path = config or _find()
    if config is not None and not config.is_file():
        raise Invalid(RefusalCode.SETTINGS_INVALID, f"there is no settings file {config}")
    given: dict[str, Any] = {} if data_dir is None else {"data_dir": data_dir}
    try:
        return _absolute(_settings_class(path)(**given), path)
    except ValidationError as error:
        problems = [_problem(each) for each in error.errors()]
    except SettingsError as error:
        problems = [_not_json(str(error))]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        problems = [f"the file cannot be read: {error}"]
    where = "the environment" if path is None else f"{path} and the environment"
    raise Invalid(RefusalCode.SETTINGS_INVALID, f"the settings are wrong (see {where})", problems)


def engine_environment(allow: Iterable[str], added: Mapping[str, str]) -> dict[str, str]:
    """The environment that an engine may have: a few common variables, its own, and what the settings add."""
    names = {*_COMMON_ENV, *allow, *(name for name in os.environ if name.startswith("LC_"))}
    return {**{name: os.environ[name] for name in names if name in os.environ}, **added}


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values that must not be written down, told by their names."""
    return tuple(value for name, value in environment.items() if _SECRET_NAME.search(name))


def user_home() -> Path:
    return Path.home()


def client_environment() -> tuple[str | None, str | None]:
    """Address and token of a server, as the client commands have them."""
    return os.environ.get("ASKBACK_URL"), os.environ.get("ASKBACK_TOKEN")


def _settings_class(path: Path | None) -> type[Settings]:
    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            above = (init_settings, env_settings)
            return above if path is None else (*above, TomlConfigSettingsSource(settings_cls, path))

    return FromFile


def _find() -> Path | None:
    for folder in (Path.cwd(), _user_folder("XDG_CONFIG_HOME", ".config")):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    return None


def _absolute(settings: Settings, path: Path | None) -> Settings:
    """Relative folders are meant from where the settings file is, else from the working directory."""
    base = Path.cwd() if path is None else path.resolve().parent
    problems: list[str] = []

    def whole(key: str, folder: Path) -> Path:
        try:
            return (base / folder.expanduser()).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            problems.append(f"{key}: {str(folder)!r} cannot be a folder: {error}")
            return folder

    engines = {
        name: engine
        if engine.home is None
        else engine.model_copy(update={"home": whole(f"engines.{name}.home", engine.home)})
        for name, engine in settings.engines.items()
    }
    changed: dict[str, Any] = {
        "data_dir": whole("data_dir", settings.data_dir),
        "skills_dir": tuple(whole("skills_dir", folder) for folder in settings.skills_dir),
        "engines": engines,
    }
    if problems:
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings are wrong", problems)
    return settings.model_copy(update=changed)


def _problem(error: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{key}: there is no such setting; {_known(error['loc'])}"
    if shape := _SHAPES.get(error["type"]):
        return f"{key}: must be {shape}"
    said = str(error["msg"]).replace("Input should be", "must be")
    return f"{key}: {said[0].lower()}{said[1:]}"


def _known(place: Sequence[str | int]) -> str:
    """What may stand where an unknown key stands: the one that is nearest, or all."""
    names = list((Settings if len(place) == 1 else _SECTIONS[str(place[0])]).model_fields)
    near = difflib.get_close_matches(str(place[-1]), names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(names)}"


def _not_json(fault: str) -> str:
    field = re.search(r'field "(\w+)"', fault)
    name = f"ASKBACK_{field[1].upper()}" if field else fault
    return f"{name}: is not JSON, as which lists and tables are written in the environment"
