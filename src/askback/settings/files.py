"""Reading the settings: from the command line, the environment, `askback.toml`, and defaults, in that order.

Settings that run, open or weaken something come from the user's own configuration, `--config` or the environment. Those in the
working directory's file are used only if the user trusts that file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsError

from askback.core.errors import Invalid, RefusalCode
from askback.settings import environment, trust
from askback.settings import types as setting_types
from askback.settings.model import Origin, Settings
from askback.settings.notifications import webhook_setting_problems
from askback.text.formatting import nearest


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
        field = re.search(r'field "(\w+)"', str(error))
        name = f"ASKBACK_{field[1].upper()}" if field else str(error)
        problems = [f"{name}: is not JSON; in the environment, lists and tables are written as JSON"]
    raise _wrong([layer.path for layer in layers], problems)


def _own_layers(
    on_untrusted: Callable[[trust.Untrusted], None], engines: Callable[[], Container[str]] | None
) -> list[trust.Layer]:
    """The working directory's file, without untrusted keys, on top of the one in the user's config folder."""
    own = environment.named_folder("XDG_CONFIG_HOME", ".config") / "askback" / trust.FILE_NAME
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


def trust_ledger() -> trust.Ledger:
    """The user's list of trusted files. It does not depend on `data_dir`."""
    return trust.Ledger(environment.data_folder() / "trusted.json", partial(setting_types.shown, Settings))


def _settings_class(layers: Sequence[trust.Layer], origins: dict[tuple[str, ...], Origin]) -> type[Settings]:
    """The settings with these files as sources. `origins` gets where each value comes from."""

    def record(path: tuple[str, ...], origin: Origin) -> None:
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
                record(path, Origin(source="command_line"))
            for path in _leaves(env_settings()):
                record(path, Origin(source="environment", name=environment.setting_variable(path)))
            for layer in layers:
                for path in _leaves(layer.document):
                    record(path, Origin(source="file", name=str(layer.path.absolute())))
            fallback: dict[str, Any] = {}
            # The database of other programs. An address of another kind is not meant for this one.
            if (address := environment.common_database() or "").startswith(("postgres://", "postgresql://")):
                fallback["database"] = address
                record(("database",), Origin(source="environment", name=environment.COMMON_DATABASE))
            return (init_settings, env_settings, *files, InitSettingsSource(settings_cls, init_kwargs=fallback))

    return FromFile


def _leaves(document: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in document.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def _anchored(document: dict[str, Any], base: Path) -> dict[str, Any]:
    """The document with its relative paths resolved against `base`, the folder of its file, except `runs_dir`."""

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


def _wrong(paths: Sequence[Path], problems: Sequence[str]) -> Invalid:
    where = " and ".join([*map(str, paths), "the environment"])
    return Invalid(RefusalCode.SETTINGS_INVALID, f"the settings are wrong (see {where})", problems)


def _problem(error: Mapping[str, Any]) -> str:
    key = trust.key_name(error["loc"])
    if error["type"] == "extra_forbidden":
        names = setting_types.keys_at(Settings, error["loc"][:-1])
        near = nearest(str(error["loc"][-1]), names)
        advice = f"did you mean '{near}'?" if near else f"valid settings: {', '.join(names)}"
        return f"{key}: there is no such setting; {advice}"
    if shape := _SHAPES.get(error["type"]):
        return f"{key}: must be {shape}"
    if error["type"] == "string_pattern_mismatch" and (example := setting_types.example_at(Settings, error["loc"])):
        return f"{key}: must look like {example}"
    message = str(error["msg"]).replace("Input should be", "must be").removeprefix("Value error, ")
    return f"{key}: {message[0].lower()}{message[1:]}"


_NOT_SETTINGS = re.compile(
    # Of clients; of the processes of a run; of `compose.yaml`; of tests; of Kubernetes, for a service called `askback`.
    r"ASKBACK_(URL|TOKEN|RUN|PUBLIC_URL|TEST_\w+|SERVICE_HOST|SERVICE_PORT\w*|PORT_[0-9]+_\w+)"
)


def unknown_variables() -> list[str]:
    """The variables that look like settings but set nothing, each with a suggestion."""
    given = {
        name.upper(): value
        for name, value in environment.process_environment().items()
        if name.upper().startswith(environment.PREFIX)
    }
    unknown = [
        name
        for name in given
        if name.removeprefix(environment.PREFIX).split("__")[0].lower() not in Settings.model_fields
    ]
    known = ["URL", "TOKEN", *("__".join(path).upper() for path in setting_types.paths(Settings))]
    found = []
    for name in sorted(unknown):
        if _NOT_SETTINGS.fullmatch(name) or (name == "ASKBACK_PORT" and "://" in given[name]):
            continue
        # Without the prefix, which makes all of them alike.
        near = nearest(name.removeprefix(environment.PREFIX), known)
        found.append(
            f"{name} is not a setting, and is ignored" + (f"; did you mean {environment.PREFIX}{near}?" if near else "")
        )
    return found
