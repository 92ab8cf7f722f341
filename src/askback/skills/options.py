"""A run's options: read from a package or a request, typed and bounded, and merged into one set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol

from askback.core.interactions import Json
from askback.core.runs import ProfileChoice, RunOptions, Validation
from askback.skills.mistakes import encodes, short, spell
from askback.skills.problems import MOST_UNKNOWN, Problem, error, unknown_name

TEN_YEARS_SEC = 10 * 365.25 * 24 * 3600
MAX_REPAIR_ATTEMPTS = 10
MAX_MODEL_LENGTH = 30_000
"""Linux takes at most 131,071 bytes as one argument, and a character may have four."""

OPTION_SCHEMAS: dict[str, dict[str, Any]] = {
    "session_timeout_sec": {"type": "number", "exclusiveMinimum": 0, "maximum": TEN_YEARS_SEC},
    "turn_timeout_sec": {"type": "number", "exclusiveMinimum": 0, "maximum": TEN_YEARS_SEC},
    "interactive_require_user_reply": {"type": "boolean"},
    "interactive_profile": {"type": "string", "enum": list(ProfileChoice)},
    "ask_user_validation": {"type": "string", "enum": list(Validation)},
    "repair_attempts": {"type": "integer", "minimum": 0, "maximum": MAX_REPAIR_ATTEMPTS},
    "model": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_MODEL_LENGTH},
}
"""What each option takes, as JSON Schema: for typing the texts of a command line, and for documents."""


class WithOptions(Protocol):
    """A package, as far as options go."""

    @property
    def options(self) -> Mapping[str, Any]: ...


class _Unfit(Exception):
    """The value cannot be taken; the text says why."""


def read_options(raw: Json, where: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Type the options of a request. Every mistake is named by its path: `options.turn_timeout_sec: …`."""
    options, problems = check_options(raw, where)
    return options, tuple(str(problem) for problem in problems)


def check_options(raw: Json, where: str) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    if not isinstance(raw, Mapping):
        return {}, (error(where, f"{short(raw)} is not an object"),)
    options: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in raw.items():
        if len(problems) >= MOST_UNKNOWN:
            problems.append(error(where, f"there are more mistakes in its {len(raw)} options"))
            break
        try:
            options[name] = _read(name, value)
        except _Unfit as unfit:
            problems.append(error(spell(where, [name]), str(unfit)))
    return options, tuple(problems)


def merge_options(package: WithOptions, own: Mapping[str, Any]) -> RunOptions:
    """The package's defaults, and over them the run's own; both as `read_options` gives them."""
    return RunOptions(**{**package.options, **own})


def _read(name: Any, value: Json) -> Any:
    reader = _READERS.get(name) if isinstance(name, str) else None
    if reader is None:
        raise _Unfit(unknown_name(str(name), _READERS))
    return reader(value)


def _seconds(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Unfit(f"{short(value)} is not a number of seconds")
    if not value > 0:
        raise _Unfit(f"{short(value)} is not more than 0")
    if value > TEN_YEARS_SEC:
        raise _Unfit(f"{short(value)} is more than ten years ({TEN_YEARS_SEC:.0f})")
    return value


def _flag(value: Json) -> bool:
    if not isinstance(value, bool):
        raise _Unfit(f"{short(value)} is not true or false")
    return value


def _repairs(value: Json) -> int:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not whole or not 0 <= value <= MAX_REPAIR_ATTEMPTS:
        raise _Unfit(f"{short(value)} is not a whole number from 0 to {MAX_REPAIR_ATTEMPTS}")
    return int(value)


def _one_of(choices: type[StrEnum]) -> Callable[[Json], StrEnum]:
    def read(value: Json) -> StrEnum:
        if not isinstance(value, str) or value not in list(choices):
            raise _Unfit("is not one of " + ", ".join(f'"{choice}"' for choice in choices))
        return choices(value)

    return read


def _model(value: Json) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise _Unfit(f"{short(value)} is not the name of a model")
    if "\0" in value or not encodes(value):
        raise _Unfit(f"{short(value)} holds a character that no program can be given")
    if len(value) > MAX_MODEL_LENGTH:
        raise _Unfit(f"{short(value)} is longer than {MAX_MODEL_LENGTH} characters, which no program can be given")
    return value


_READERS: dict[str, Callable[[Json], Any]] = {
    "session_timeout_sec": _seconds,
    "turn_timeout_sec": _seconds,
    "interactive_require_user_reply": _flag,
    "interactive_profile": _one_of(ProfileChoice),
    "ask_user_validation": _one_of(Validation),
    "repair_attempts": _repairs,
    "model": _model,
}
