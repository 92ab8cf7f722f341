"""Settings: from the command line, the environment, `askback.toml`, and defaults, in that order.

This is the only module that reads the environment; all others receive values. Settings that run, open or weaken
something come from the user's own configuration, `--config` or the environment. Those in the working directory's file
are used only if the user trusts that file.

Two rules follow from the types of the fields (`setting_types`). A `Path`, wherever it is in the model, is resolved against the folder of its
file. `askback trust` shows the value of every setting, except those that are annotated with `trust.Shown`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from askback.core.errors import Invalid, RefusalCode
from askback.core.webhooks import Webhook
from askback.settings import trust
from askback.settings import types as setting_types
from askback.settings.addresses import check_database, check_files, check_runs_dir
from askback.settings.notifications import NotificationSettings, TelegramSettings, WebhookSettings
from askback.settings.sections import (
    MAX_SLOTS,
    TEN_YEARS_SEC,
    EngineSettings,
    FleetSettings,
    Limits,
    LogSettings,
    McpSettings,
    Quotas,
    Retention,
    ServerSettings,
    TelemetrySettings,
    WarmSettings,
    WorkerSettings,
    default_slots,
)
from askback.settings.trust import Shown
from askback.settings.webhooks import webhook_setting_problems, webhooks_of
from askback.text.formatting import nearest

FILE_NAME = trust.FILE_NAME
key_name = trust.key_name
_PREFIX = "ASKBACK_"
COMMON_DATABASE = "DATABASE_URL"

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


def named_folder(variable: str, fallback: str) -> Path:
    """The folder that a variable names; without a whole path in it, the fallback in the home of the user."""
    base = os.environ.get(variable, "")
    return Path(base) if base.startswith("/") else Path.home() / fallback


def _user_folder(variable: str, fallback: str) -> Path:
    return named_folder(variable, fallback) / "askback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What set a value. `name` is the variable or the file."""

    source: Literal["default", "command_line", "environment", "file"]
    name: str | None = None


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, allow_inf_nan=False
    )

    data_dir: Path = Field(
        default_factory=lambda: _user_folder("XDG_DATA_HOME", ".local/share"),
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
        default_factory=default_slots,
        ge=1,
        le=MAX_SLOTS,
        description="How many engine processes may run at a time; default: depends on cores and memory.",
    )
    warm_sec: float = Field(
        0,
        ge=0,
        le=TEN_YEARS_SEC,
        description=(
            "How long the process of a resumable run is kept while the run waits, if its engine allows it, in seconds;"
            " 0: it ends when the run asks. `600` is recommended where people wait for answers. The option of a run"
            " can only shorten it. See [warm waits](../explanation/warm-processes.md#warm-waits)."
        ),
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
    server: ServerSettings = Field(
        default_factory=ServerSettings, description="How `askback serve` listens and admits clients."
    )
    fleet: FleetSettings = Field(
        default_factory=FleetSettings,
        description="How several programs work on one database. See [PostgreSQL](../guides/postgresql.md).",
    )
    worker: WorkerSettings = Field(
        default_factory=WorkerSettings,
        description="What `askback worker` executes and where it reports. See [workers](../guides/workers.md).",
    )
    warm: WarmSettings = Field(
        default_factory=WarmSettings,
        description="How many processes of waiting runs are kept, and how large they may be.",
    )
    limits: Limits = Field(default_factory=Limits, description="Limits on requests, uploads and engines.")
    quotas: Quotas = Field(default_factory=Quotas, description="How much each token may use.")
    engines: dict[str, EngineSettings] = Field(default_factory=dict, description="One section per engine, by name.")
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
    retention: Retention = Field(default_factory=Retention, description="What a server removes, once a day.")
    log: LogSettings = Field(default_factory=LogSettings, description="What a server logs, and how.")
    mcp: McpSettings = Field(default_factory=McpSettings, description="The MCP server at `/mcp`.")
    telemetry: TelemetrySettings = Field(
        default_factory=TelemetrySettings, description="Traces and metrics for an OpenTelemetry collector."
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
        """The unit of a number, where its key does not tell it."""
        return setting_types.unit(Settings, path)

    @model_validator(mode="before")
    @classmethod
    def _no_empty_path(cls, given: Any) -> Any:
        """`Path("")` is the working directory, which `ASKBACK_DATA_DIR=` does not mean."""
        problems: list[str] = []

        def note(key: str, path: Any) -> Any:
            if path == "":
                problems.append(f"{key}: the path is empty")
            return path

        setting_types.with_paths(Settings, given, (), note)
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


_SHAPES = {
    "missing": "given",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "a string, in quotes",
    "path_type": "the path of a folder, in quotes",
    "tuple_type": 'a list, such as ["one", "two"]',
    "dict_type": "a table of keys and values",
    "model_type": "a table of keys and values",
}
"""How an error message names the expected kind of value, by pydantic's error type."""


def load(
    config: Path | None = None,
    *,
    data_dir: Path | None = None,
    on_untrusted: Callable[[trust.Untrusted], None] | None = None,
    engines: Callable[[], Container[str]] | None = None,
) -> Settings:
    """Read the settings. Raises one `Invalid` that lists every mistake with its key.

    `on_untrusted` is called with the ignored keys of an untrusted file in the working directory. `engines` returns the
    known engines; an untrusted file cannot name others.
    """
    if config is not None and not config.is_file():
        raise Invalid(RefusalCode.SETTINGS_INVALID, f"there is no settings file {config}")
    given: dict[str, Any] = {} if data_dir is None else {"data_dir": data_dir}
    layers = _own_layers(on_untrusted or (lambda _: None), engines) if config is None else [_layer(config)]
    origins: dict[tuple[str, ...], Origin] = {}
    try:
        settings = _absolute(_settings_class(layers, origins)(**given), [layer.path.resolve() for layer in layers])
        settings._origins = origins
        problems = list(webhook_setting_problems(settings.webhooks, settings.notifications))
        if not problems:
            return settings
    except ValidationError as error:
        problems = [_problem(each) for each in error.errors()]
    except SettingsError as error:
        problems = [_not_json(str(error))]
    raise _wrong([layer.path for layer in layers], problems)


def _own_layers(
    on_untrusted: Callable[[trust.Untrusted], None], engines: Callable[[], Container[str]] | None
) -> list[trust.Layer]:
    """The working directory's file, without untrusted keys, on top of the one in the user's config folder."""
    own = _user_folder("XDG_CONFIG_HOME", ".config") / FILE_NAME
    local = trust.local_path(Path())
    layers = [_layer(own)] if own.is_file() else []
    if local is None or (layers and local.exists() and local.samefile(own)):
        return layers
    layer, untrusted = _local_layer(local, engines)
    if untrusted is not None:
        on_untrusted(untrusted)
    return [*([layer] if layer else []), *layers]


def _local_layer(
    path: Path, engines: Callable[[], Container[str]] | None
) -> tuple[trust.Layer | None, trust.Untrusted | None]:
    try:
        file = trust.read_local(path)
    except (OSError, ValueError) as error:
        return None, trust.Untrusted(path=path, problem=trust.why_unreadable(error))
    if file is None:
        return None, None
    if trust_ledger().trusts(file):
        return _layer_of(file), None
    try:
        taken, ignored = trust.harmless(file.document(), engines)
    except ValueError as error:
        return None, trust.Untrusted(path=path, problem=trust.why_unreadable(error))
    untrusted = trust.Untrusted(path=path, ignored=ignored) if ignored else None
    return trust.Layer(path=path, document=taken), untrusted


def _layer(path: Path) -> trust.Layer:
    try:
        return _layer_of(trust.LocalFile(path=path, content=path.read_bytes()))
    except OSError as error:
        raise _wrong([path], [f"the file cannot be read: {error}"]) from None


def _layer_of(file: trust.LocalFile) -> trust.Layer:
    try:
        document = file.document()
    except ValueError as error:
        raise _wrong([file.path], [f"the file cannot be read: {error}"]) from None
    return trust.Layer(path=file.path, document=_anchored(document, file.path.resolve().parent))


def webhooks(settings: Settings) -> tuple[Webhook, ...]:
    """The webhooks of every run."""
    return webhooks_of(settings.webhooks, settings.notifications.reminders)


def _wrong(paths: Sequence[Path], problems: Sequence[str]) -> Invalid:
    where = " and ".join([*map(str, paths), "the environment"])
    return Invalid(RefusalCode.SETTINGS_INVALID, f"the settings are wrong (see {where})", problems)


def trust_ledger() -> trust.Ledger:
    """The user's list of trusted files. It does not depend on `data_dir`."""
    return trust.Ledger(
        _user_folder("XDG_DATA_HOME", ".local/share") / "trusted.json", partial(setting_types.shown, Settings)
    )


def ignore_relative_search_path() -> None:
    """Drop relative folders from PATH, so that no program is found in the working directory."""
    if "PATH" in os.environ:
        os.environ["PATH"] = _absolute_folders(os.environ["PATH"])


def _absolute_folders(search: str) -> str:
    return os.pathsep.join(folder for folder in search.split(os.pathsep) if folder.startswith("/"))


def engine_environment(allow: Iterable[str], added: Mapping[str, str]) -> dict[str, str]:
    """The environment of an engine: a few common variables, those in `allow`, and those that the settings add."""
    names = {*_COMMON_ENV, *allow, *(name for name in os.environ if name.startswith("LC_"))}
    taken = {name: os.environ[name] for name in names if name in os.environ}
    if "PATH" in taken:
        taken["PATH"] = _absolute_folders(taken["PATH"])
    return {**taken, **added}


def variables(names: Iterable[str]) -> dict[str, str]:
    """Those of these variables that this program has."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables whose names suggest a secret."""
    return tuple(value for name, value in environment.items() if _SECRET_NAME.search(name))


def user_home() -> Path:
    return Path.home()


_NOT_SETTINGS = re.compile(
    # Of clients; of the processes of a run; of `compose.yaml`; of tests; of Kubernetes, for a service called `askback`.
    r"ASKBACK_(URL|TOKEN|RUN|PUBLIC_URL|TEST_\w+|SERVICE_HOST|SERVICE_PORT\w*|PORT_[0-9]+_\w+)"
)


def unknown_variables() -> list[str]:
    """The variables that look like settings but set nothing, each with a suggestion."""
    given = {name.upper(): value for name, value in os.environ.items() if name.upper().startswith(_PREFIX)}
    unknown = [name for name in given if name.removeprefix(_PREFIX).split("__")[0].lower() not in Settings.model_fields]
    known = ["URL", "TOKEN", *("__".join(path).upper() for path in setting_types.paths(Settings))]
    told = []
    for name in sorted(unknown):
        if _NOT_SETTINGS.fullmatch(name) or (name == "ASKBACK_PORT" and "://" in given[name]):
            continue
        # Without the prefix, which makes all of them alike.
        near = nearest(name.removeprefix(_PREFIX), known)
        told.append(f"{name} is not a setting, and is ignored" + (f"; did you mean {_PREFIX}{near}?" if near else ""))
    return told


def common_database() -> str | None:
    """The address in `DATABASE_URL`, which other programs use, too."""
    return os.environ.get(COMMON_DATABASE)


def client_environment() -> tuple[str | None, str | None]:
    """The server's URL and token for the client commands. An empty variable is as good as none."""
    return os.environ.get("ASKBACK_URL") or None, os.environ.get("ASKBACK_TOKEN") or None


def environment_moves_data() -> bool:
    """Whether the data folder depends on the environment of this program, and may be another one elsewhere."""
    return any(os.environ.get(name) for name in ("ASKBACK_DATA_DIR", "XDG_DATA_HOME"))


def _settings_class(layers: Sequence[trust.Layer], origins: dict[tuple[str, ...], Origin]) -> type[Settings]:
    """The settings with these files as sources. `origins` gets where each value comes from."""

    def note(path: tuple[str, ...], origin: Origin) -> None:
        origins.setdefault(path, origin)

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
            files = [InitSettingsSource(settings_cls, init_kwargs=dict(layer.document)) for layer in layers]
            for path in _leaves(init_settings()):
                note(path, Origin(source="command_line"))
            for path in _leaves(env_settings()):
                note(path, Origin(source="environment", name=_variable(path)))
            for layer in layers:
                for path in _leaves(layer.document):
                    note(path, Origin(source="file", name=str(layer.path.absolute())))
            fallback = _common_database()
            if fallback:
                note(("database",), Origin(source="environment", name=COMMON_DATABASE))
            return (init_settings, env_settings, *files, InitSettingsSource(settings_cls, init_kwargs=fallback))

    return FromFile


def _common_database() -> dict[str, Any]:
    """The database that other programs use as well. An address of another kind is not meant for this one."""
    address = os.environ.get(COMMON_DATABASE, "")
    return {"database": address} if address.startswith(("postgres://", "postgresql://")) else {}


def _leaves(document: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in document.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def process_environment() -> Mapping[str, str]:
    """The variables of this program, for a command that passes some of them on."""
    return os.environ


def _variable(path: Sequence[str]) -> str:
    """The variable that sets this key: its own, or that of a table which contains it."""
    given = {name.upper() for name in os.environ}
    names = ["ASKBACK_" + "__".join(path[:length]).upper() for length in range(len(path), 0, -1)]
    return next((name for name in names if name in given), names[0])


def _anchored(document: dict[str, Any], base: Path) -> dict[str, Any]:
    """The document of a file with its relative paths resolved against `base`, the folder of the file.

    `runs_dir` must not be relative.
    """

    def from_base(key: str, path: Any) -> Any:
        as_given = key == "runs_dir" or not isinstance(path, str) or not path or path.startswith("~")
        return path if as_given else str(base / path)

    anchored: dict[str, Any] = setting_types.with_paths(Settings, document, (), from_base)
    return anchored


def _absolute(settings: Settings, files: Sequence[Path]) -> Settings:
    """Resolve relative paths from the environment against the working directory."""
    base = Path.cwd()
    problems: list[str] = []

    def resolve(key: str, folder: Any) -> Any:
        if not isinstance(folder, Path):
            return folder
        try:
            found = (base / folder.expanduser()).resolve()
            str(found).encode()
        except UnicodeEncodeError:
            problems.append(f"{key}: {str(folder)!r} cannot be a folder: its name is not UTF-8")
        except (OSError, RuntimeError, ValueError) as error:
            problems.append(f"{key}: {str(folder)!r} cannot be a folder: {error}")
        else:
            return found
        return folder

    absolute: Settings = setting_types.with_paths(Settings, settings, (), resolve)
    all_of_it = [key for key in ("sandbox_show", "sandbox_share") if Path("/") in getattr(absolute, key)]
    problems += [f"{key}: '/' would disable the sandbox; name folders below it" for key in all_of_it]
    if problems:
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings are wrong", problems)
    absolute._files = tuple(files)
    return absolute


def _problem(error: Mapping[str, Any]) -> str:
    key = key_name(error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{key}: there is no such setting; {_known(error['loc'])}"
    if shape := _SHAPES.get(error["type"]):
        return f"{key}: must be {shape}"
    if error["type"] == "string_pattern_mismatch" and (example := setting_types.example_at(Settings, error["loc"])):
        return f"{key}: must look like {example}"
    message = str(error["msg"]).replace("Input should be", "must be").removeprefix("Value error, ")
    return f"{key}: {message[0].lower()}{message[1:]}"


def _known(place: Sequence[str | int]) -> str:
    """Suggest a valid key in place of an unknown one: the nearest, or all of its section."""
    names = setting_types.keys_at(Settings, place[:-1])
    near = nearest(str(place[-1]), names)
    return f"did you mean '{near}'?" if near else f"valid settings: {', '.join(names)}"


def _not_json(fault: str) -> str:
    field = re.search(r'field "(\w+)"', fault)
    name = f"ASKBACK_{field[1].upper()}" if field else fault
    return f"{name}: is not JSON; in the environment, lists and tables are written as JSON"
