"""`askback config` shows the settings in effect, and where each value comes from. `askback trust` lists whose files are used.

Secrets are masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from askback.cli import options, output
from askback.cli.help import Command
from askback.core.errors import Invalid, RefusalCode
from askback.core.webhooks import MAILTO
from askback.text.formatting import nearest, one_line, printable
from askback.text.redaction import MASK

if TYPE_CHECKING:
    from askback.settings.model import Settings

Key = tuple[str, ...]

_SECRET_WORD = re.compile(r"(?i)(key|token|secret|password|passwd|credential)")
_MAX_PATH = 4096
_EMPTY: tuple[Any, ...] = (None, [], {})


@click.command(
    "config",
    cls=Command,
    examples=("askback config", "askback config server", "askback config engines.codex --json"),
    short_help="Show the settings, and where each value comes from.",
)
@click.argument("key", required=False)
@options.common
def config_command(settings: Settings, as_json: bool, key: str | None) -> int:
    """Show the settings in effect, and where each value comes from.

    KEY shows one setting or one section, such as server or engines.codex. Tokens, webhook secrets and the values of
    variables are masked.
    """
    settings = _with_engine(settings, key or "")
    every = {".".join(path): (path, value) for path, value in _values(settings)}
    shown = {name: each for name, each in every.items() if key is None or f"{name}.".startswith(f"{key}.")}
    if not shown:
        known = {".".join(path[:length]) for path, _ in every.values() for length in range(1, len(path) + 1)}
        near = nearest(key or "", sorted(known))
        advice = f"did you mean '{near}'?" if near else "'askback config' lists all"
        raise Invalid(RefusalCode.SETTINGS_INVALID, f"there is no setting '{key}'; {advice}")
    if as_json:
        origins = {name: settings.origin(path) for name, (path, _) in shown.items()}
        listed = [
            {"key": name, "value": value, "source": origins[name].source, "name": origins[name].name}
            for name, (_, value) in shown.items()
        ]
        output.print_json({"files": [str(path) for path in settings.sources], "settings": listed})
        return 0
    import json

    width = max(map(len, shown))
    for name, (path, value) in shown.items():
        text = "-" if value is None else json.dumps(value, ensure_ascii=False)
        if value is not None and (unit := settings.unit(path)):
            text = f"{text.removesuffix('.0')} {unit}"
        origin = settings.origin(path)
        where = origin.name or origin.source.replace("_", " ")
        output.print_line(f"{printable(name):<{width}}  {printable(text)}  · {printable(where)}")
    return 0


def _with_engine(settings: Settings, key: str) -> Settings:
    """The settings with a section for the engine in the key. An engine without settings has the defaults."""
    from askback.engines import registry
    from askback.settings.sections import EngineSettings

    section, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    if section != "engines" or not name or name in settings.engines:
        return settings
    known = list(registry.engines())
    if name not in known:
        message = f"there is no engine '{name}'; known: {', '.join(known)}"
        raise Invalid(RefusalCode.SETTINGS_INVALID, message)
    return settings.model_copy(update={"engines": {**settings.engines, name: EngineSettings()}})


def _values(settings: Settings) -> Iterator[tuple[Key, Any]]:
    """Every setting with its masked value. Entries of lists of tables have their place as a key."""
    document = settings.model_dump(mode="json")
    for path, value in _leaves(document, ()):
        yield path, _masked(path, value)


def _leaves(document: dict[str, Any], path: Key) -> Iterator[tuple[Key, Any]]:
    for key, value in document.items():
        match value:
            case dict() if value:
                yield from _leaves(value, (*path, key))
            case [dict(), *_]:
                yield from _leaves({str(place): each for place, each in enumerate(value)}, (*path, key))
            case _:
                yield (*path, key), value


def _masked(path: Key, value: Any) -> Any:
    if value in _EMPTY:
        return value
    match path:
        case (
            ("server" | "telegram", "token")
            | ("webhooks", _, "secret")
            | ("notifications", "email", "password")
            | ("engines", _, "env", _)
            | ("telemetry", "otlp_headers", _)
        ):
            return MASK
        case ("database",):
            return _masked_address(str(value))
        case ("webhooks", _, "url") if not str(value).startswith(MAILTO):
            # The path of such a URL is often the secret.
            parts = urlsplit(str(value))
            return f"{parts.scheme}://{parts.hostname}/…"
        case ("engines", _, "command" | "extra_args"):
            return _masked_words(value)
        case _:
            return value


def _masked_address(address: str) -> str:
    """The address of a database: the password before the host, and those among the options."""
    hidden = re.sub(r"(?<=://)([^/@:]*):[^@]*@", rf"\1:{MASK}@", address)
    return re.sub(r"(?i)((?:pass\w*|sslpassword)=)[^&]*", rf"\1{MASK}", hidden)


def _masked_words(words: list[str]) -> list[str]:
    """Words of a command line: the value of `--api-key=…`, and the word after `--api-key`."""
    masked, follows = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        secret = _SECRET_WORD.search(name) is not None
        masked.append(MASK if follows else f"{name}={MASK}" if equals and secret else word)
        follows = secret and not equals and word.startswith("-")
    return masked


@click.command(
    "trust",
    cls=Command,
    examples=(
        "askback trust",
        "askback trust --list",
        "askback trust ../project --revoke",
    ),
)
@click.argument("folder", required=False, default=".", type=options.PathName(path_type=Path))
@click.option("--revoke", is_flag=True, help="Stop trusting it.")
@click.option("--list", "listing", is_flag=True, help="List the trusted files.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else.")
def trust_command(folder: Path, revoke: bool, listing: bool, as_json: bool) -> int:
    """Trust the askback.toml in FOLDER (default: the working directory), so that all its settings are used.

    Settings can start programs and turn off the sandbox, so read the file first. Trust covers the file as it is now:
    after a change, trust it again. Of an untrusted file, only `default_engine` and the engines' `model` are used.
    """
    if revoke and listing:
        raise click.UsageError("--revoke and --list cannot be combined")
    if listing:
        return _list_trusted(as_json=as_json)
    return _revoke(folder, as_json=as_json) if revoke else _trust(folder, as_json=as_json)


def _trust(folder: Path, *, as_json: bool) -> int:
    from askback.settings.files import trust_ledger

    path, settings = trust_ledger().add_folder(folder)
    lines = [f"    {key}" if value is None else f"    {key}: {value}" for key, value in settings]
    message = f"✔ {one_line(str(path), _MAX_PATH)} is trusted as it is now; it sets:"
    document = {"path": str(path), "trusted": True, "keys": [key for key, _ in settings]}
    return output.print_done(document, message, *lines, as_json=as_json)


def _revoke(folder: Path, *, as_json: bool) -> int:
    from askback.settings.files import trust_ledger

    path, was_trusted = trust_ledger().remove_folder(folder)
    done = "is no longer trusted" if was_trusted else "was not trusted"
    message = f"✔ {one_line(str(path), _MAX_PATH)} {done}"
    return output.print_done({"path": str(path), "trusted": False}, message, as_json=as_json)


def _list_trusted(*, as_json: bool) -> int:
    from askback.settings.files import trust_ledger

    ledger = trust_ledger()
    return output.print_list(
        [(path, ledger.is_valid(path)) for path in ledger.all()],
        lambda each: f"{one_line(str(each[0]), _MAX_PATH)}{'' if each[1] else '  (changed or missing: not used)'}",
        as_json=as_json,
        document=lambda each: {"path": str(each[0]), "valid": each[1]},
        indent=None,
        empty="no settings file is trusted",
    )
