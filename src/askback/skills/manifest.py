"""`runner.json`: what a package says about how it is to be run.

Packages written for Skill-Runner are read as they are: what Askback does not use is passed over with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from askback.core.interactions import Json
from askback.core.runs import Mode, ProfileChoice, RunOptions, Validation
from askback.skills.diagnostics import MOST_UNKNOWN, Problem, error, unknown_name, warning
from askback.skills.schema_errors import encodes, short, spell

PLACES = ("assets/runner.json", "runner.json")
"""Where it may lie; the first that exists counts."""

SCHEMA_KEYS = ("input", "parameter", "output")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_VERSION = 64

_KNOWN = (
    "id",
    "version",
    "execution_modes",
    "engines",
    "unsupported_engines",
    "max_attempt",
    "ask_user_validation",
    "options",
    "schemas",
)
_UNUSED = frozenset(
    {"name", "description", "entrypoint", "runtime", "artifacts", "engine_configs", "effective_engines", "mcp"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What holds where nothing is said: both modes, any engine, no bound on attempts."""

    id: str | None = None
    version: str | None = None
    execution_modes: tuple[Mode, ...] = (Mode.AUTO, Mode.INTERACTIVE)
    engines: tuple[str, ...] | None = None
    unsupported_engines: tuple[str, ...] = ()
    max_attempt: int | None = None
    ask_user_validation: Validation | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)


def read_manifest(document: Json, where: str) -> tuple[Manifest, tuple[Problem, ...]]:
    if not isinstance(document, dict):
        mend = 'write {"id": …, "version": …, "execution_modes": […]}'
        return Manifest(), (error(where, "is not an object", mend),)
    reading = _Reading(document, where)
    manifest = Manifest(
        id=reading.id(),
        version=reading.version(),
        execution_modes=reading.execution_modes(),
        engines=reading.engines(),
        unsupported_engines=reading.names("unsupported_engines") or (),
        max_attempt=reading.max_attempt(),
        ask_user_validation=reading.ask_user_validation(),
        options=reading.options(),
        schemas=reading.schemas(),
    )
    return manifest, (*reading.problems, *_unknown_keys(document, where))


def _unknown_keys(document: Mapping[str, Any], where: str) -> list[Problem]:
    problems = []
    for key in document:
        place = f"{where}: {short(key, quoted=False)}"
        if key in _UNUSED:
            problems.append(warning(place, "is not used by Askback"))
        elif key not in _KNOWN:
            problems.append(warning(place, unknown_name(key, _KNOWN)))
    return problems


class _Reading:
    """One pass over the document; each mistake is noted and the default taken, so that all are told at once."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self._document = document
        self._where = where
        self.problems: list[Problem] = []

    def _wrong(self, key: str, message: str, mend: str) -> None:
        self.problems.append(error(f"{self._where}: {key}", message, mend))

    def id(self) -> str | None:
        value = self._document.get("id")
        if value is None or (isinstance(value, str) and ID.fullmatch(value)):
            return value
        mend = "use letters, digits, `-`, `_` and `.`, at most 64, beginning with a letter or digit"
        self._wrong("id", f"{short(value)} is not a proper id", mend)
        return None

    def version(self) -> str | None:
        value = self._document.get("version")
        if value is None:
            return None
        if isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_VERSION:
            return value
        self._wrong("version", f"{short(value)} is not a version", 'write a short text such as "1.0.0"')
        return None

    def execution_modes(self) -> tuple[Mode, ...]:
        given = self.names("execution_modes")
        if given is None:
            return Manifest().execution_modes
        unknown = [name for name in given if name not in list(Mode)]
        if unknown:
            wrong = ", ".join(short(name) for name in unknown)
            self._wrong("execution_modes", f"{wrong} is not a mode", 'use "auto", "interactive", or both')
        return tuple(Mode(name) for name in given if name not in unknown) or Manifest().execution_modes

    def engines(self) -> tuple[str, ...] | None:
        wanted, refused = self.names("engines"), self.names("unsupported_engines", tell=False) or ()
        if wanted is None:
            return None
        left = tuple(name for name in wanted if name not in refused)
        if not left:
            self._wrong("engines", "unsupported_engines leaves none of them", "name an engine that is supported")
        return left

    def names(self, key: str, *, tell: bool = True) -> tuple[str, ...] | None:
        """A list of texts, each once; None if it is not given or not proper."""
        value = self._document.get(key)
        if value is None:
            return None
        if isinstance(value, list) and value and all(isinstance(name, str) and name.strip() for name in value):
            return tuple(dict.fromkeys(name.strip() for name in value))
        if tell:
            self._wrong(key, f"{short(value)} is not a list of names", "write at least one text in a list")
        return None

    def max_attempt(self) -> int | None:
        value = self._document.get("max_attempt")
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31):
            return value
        self._wrong(
            "max_attempt", f"{short(value)} is not a whole number from 1", "write how many turns a run may take"
        )
        return None

    def ask_user_validation(self) -> Validation | None:
        value = self._document.get("ask_user_validation")
        if value is None:
            return None
        if isinstance(value, str) and value in list(Validation):
            return Validation(value)
        self._wrong("ask_user_validation", f"{short(value)} is unknown", 'use "lenient" or "strict"')
        return None

    def options(self) -> dict[str, Any]:
        value = self._document.get("options")
        options, problems = check_options({} if value is None else value, f"{self._where}: options")
        self.problems.extend(problems)
        return options

    def schemas(self) -> dict[str, str]:
        value = self._document.get("schemas")
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._wrong("schemas", f"{short(value)} is not an object", 'write {"input": "assets/input.schema.json", …}')
            return {}
        return {key: path for key, path in value.items() if self._is_schema(key, path)}

    def _is_schema(self, key: str, path: Json) -> bool:
        if key not in SCHEMA_KEYS:
            place = f"{self._where}: schemas.{short(key, quoted=False)}"
            self.problems.append(warning(place, unknown_name(key, SCHEMA_KEYS)))
            return False
        if path is None:
            return False
        if not isinstance(path, str) or not path:
            self._wrong(f"schemas.{key}", f"{short(path)} is not a path", "name a file of the package")
            return False
        return True


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
