"""What several commands have in common: where the settings are, and how `K=V` is read."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from askback.core.errors import Invalid, RefusalCode
from askback.core.interactions import Json


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--config`, `--data-dir` and `--json`, which every command has. The command gets loaded `settings`."""

    @click.option(
        "--config", type=click.Path(path_type=Path), metavar="F", help="Settings file instead of askback.toml."
    )
    @click.option("--data-dir", type=click.Path(path_type=Path), metavar="D", help="Where runs and skills live.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout and nothing else.")
    @functools.wraps(function)
    def with_settings(*args: Any, config: Path | None, data_dir: Path | None, **rest: Any) -> Any:
        from askback.settings import load

        return function(*args, settings=load(config, data_dir=data_dir), **rest)

    return with_settings


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`K=V` texts as a mapping; every mistake is named at once."""
    found: dict[str, str] = {}
    problems = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            problems.append(f"{option} {text!r}: write it as NAME=VALUE")
        elif key in found:
            problems.append(f"{option} {key}: given twice")
        found[key] = value
    if problems:
        raise Invalid(RefusalCode.INPUT_INVALID, f"{option} cannot be read", problems)
    return found


def read_file(name: str, option: str) -> str:
    try:
        return Path(name).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise Invalid(RefusalCode.INPUT_INVALID, f"{option}: the file {name} cannot be read: {reason}") from None


def typed_options(texts: Mapping[str, str]) -> dict[str, Json]:
    """Run options from the command line: numbers and true/false as such, everything else as text."""
    return {key: _typed(value) for key, value in texts.items()}


def _typed(text: str) -> Json:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
