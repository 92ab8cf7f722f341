"""Options that several commands share, loading the settings, and parsing values of the command line."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from askback.cli import exit_codes, output
from askback.core.errors import Invalid, RefusalCode
from askback.core.interactions import Json
from askback.fs.paths import is_kind
from askback.text.formatting import one_line

if TYPE_CHECKING:
    from askback.settings.model import Settings
    from askback.settings.trust import Untrusted

_STARTS_ENGINES = {"run", "reply", "serve", "worker"}
"""These commands refuse an untrusted settings file; the others warn and ignore it."""
_MAX_KEYS = 12
_MAX_WARNING = 10_000
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LIFETIME = re.compile(r"([0-9]+)([smhdw])", re.ASCII)
_MAX_DIGITS = 12


class PathName(click.Path):
    """A path that is not empty. `Path("")` is the working directory, which `--workdir "$UNSET"` does not mean."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("the path is empty.", param, ctx)
        return super().convert(value, param, ctx)


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config`, `--data-dir` and `--json`, and pass the loaded `settings`. A group leaves all to its subcommand."""

    @click.option(
        "--config", type=PathName(path_type=Path), metavar="F", help="Settings file to use instead of askback.toml."
    )
    @click.option("--data-dir", type=PathName(path_type=Path), metavar="D", help="Folder with runs and skills.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else.")
    @functools.wraps(function)
    def with_settings(*args: Any, config: Path | None, data_dir: Path | None, as_json: bool, **rest: Any) -> Any:
        context = click.get_current_context()
        if context.invoked_subcommand is not None:
            return 0
        # The same options given before a subcommand: `askback skills --json check …`.
        group: Mapping[str, Any] = {} if context.parent is None else context.parent.params
        settings = _load(config or group.get("config"), data_dir or group.get("data_dir"))
        result = function(*args, settings=settings, as_json=as_json or group.get("as_json", False), **rest)
        return exit_codes.run_async(result) if isinstance(result, Coroutine) else result

    return with_settings


def refuse_json(as_json: bool, protocol: str) -> None:
    """For a command whose stdout belongs to a protocol."""
    if as_json:
        raise click.UsageError(f"--json cannot be used here: stdout carries {protocol}")


def _load(config: Path | None, data_dir: Path | None) -> Settings:
    from askback.engines import registry
    from askback.settings.environment import ignore_relative_search_path
    from askback.settings.files import load

    ignore_relative_search_path()
    if config is not None and not is_kind(config, Path.is_file):
        raise Invalid(RefusalCode.SETTINGS_INVALID, f"there is no settings file {config}; name one with --config")
    # Relative to the working directory, not to the settings file.
    folder = None if data_dir is None else Path.cwd() / path_of(str(data_dir))
    settings = load(config, data_dir=folder, on_untrusted=_report_untrusted, engines=registry.engines)
    if is_kind(settings.data_dir, Path.exists) and not is_kind(settings.data_dir, Path.is_dir):
        message = f"the data folder {settings.data_dir} is a file; name a folder with --data-dir"
        raise Invalid(RefusalCode.SETTINGS_INVALID, message)
    return settings


def _report_untrusted(found: Untrusted) -> None:
    more = len(found.ignored) - _MAX_KEYS
    keys = ", ".join(map(str, found.ignored[:_MAX_KEYS])) + (f" and {more} more" if more > 0 else "")
    unreadable = f"{found.path} cannot be read ({found.problem}); "
    if click.get_current_context().find_root().invoked_subcommand in _STARTS_ENGINES:
        message = f"{unreadable}fix or remove it, or name another file with --config"
        if found.problem is None:
            advice = "read it, then trust it with 'askback trust', or name another file with --config"
            message = f"{found.path} is not trusted, but sets what only a trusted file may set: {keys}; {advice}"
        raise Invalid(RefusalCode.SETTINGS_UNTRUSTED, message)
    warning = f"{unreadable}it is ignored."
    if found.problem is None:
        warning = f"{found.path} is not trusted; ignored: {keys}. Read it, then trust it with 'askback trust'."
    output.to_stderr(f"askback: {one_line(warning, _MAX_WARNING)}")


class RunArgument(click.Argument):
    """The argument RUN. If it is missing, the error says where to find one."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter:
            raise click.UsageError("name a RUN; `askback runs` lists them", ctx) from None


def label(help_text: str) -> Callable[[Any], Any]:
    """The option `--label`, which can be repeated; see `labels_of`."""
    return click.option("--label", multiple=True, metavar="NAME=VALUE", help=help_text)


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    from askback.core.labels import read_labels

    return read_labels([text(each, "--label") for each in texts], "=", "--label")


def pairs(words: Iterable[str], option: str) -> dict[str, str]:
    """Parse `K=V` words. Reports all problems at once."""
    found: dict[str, str] = {}
    problems = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            problems.append(f"{option} {word!r}: write it as NAME=VALUE")
        elif key in found:
            problems.append(f"{option} {key}: given more than once")
        found[key] = value
    if problems:
        raise Invalid(RefusalCode.INPUT_INVALID, f"{option} is invalid", problems)
    return found


def typed_option(word: str) -> Json:
    """Parse numbers, true and false; leave everything else as text."""
    try:
        value = json.loads(word)
    except (ValueError, RecursionError):
        return word
    return value if isinstance(value, bool | int | float) else word


# Lifetimes, texts and files.


def lifetime(text: str, most: timedelta, most_in_words: str) -> timedelta:
    """The value of `--expires-in`. Raises `click.UsageError` unless it is from a second to `most`."""
    found = _LIFETIME.fullmatch(text.strip())
    if found is None:
        raise click.UsageError(f"--expires-in {one_line(text, 40)!r}: write it as 4w, 30d, 12h, 45m or 90s")
    unit = _UNITS[found[2]]
    # A number of many digits is not a timedelta.
    number = int(found[1]) if len(found[1]) <= _MAX_DIGITS else 0
    if not 1 <= number <= most // timedelta(**{unit: 1}):
        raise click.UsageError(f"--expires-in {one_line(text, 40)!r}: must be from 1s to {most_in_words}")
    return timedelta(**{unit: number})


def text(word: str, option: str) -> str:
    """Refuse a word that is not UTF-8: Python decodes its bytes to surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise Invalid(RefusalCode.INPUT_INVALID, f"{option}: not UTF-8 text") from None
    return word


def path_of(name: str) -> Path:
    """Expands `~`, which a shell does not do after `K=@`."""
    with suppress(RuntimeError):
        return Path(name).expanduser()
    return Path(name)


def read_file(name: str, option: str, max_bytes: int) -> str:
    """The text of a file given as `@FILE`, which may be a pipe."""
    try:
        with path_of(name).open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise _unreadable(name, option, error.strerror or str(error)) from None
    if len(content) > max_bytes:
        raise _unreadable(name, option, f"it is larger than {max_bytes:,} bytes (setting: limits.body)")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _unreadable(name, option, "it is not UTF-8 text") from None


def _unreadable(name: str, option: str, reason: str) -> Invalid:
    return Invalid(RefusalCode.INPUT_INVALID, f"{option}: the file {name!r} cannot be read: {reason}")
