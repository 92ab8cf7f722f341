"""`runner.json`: how a package wants to be run, and the options of a run.

Packages written for Skill-Runner are accepted as they are. A default or a prompt that cannot be used is ignored
with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from askback.core.errors import FieldProblem
from askback.core.interactions import Json
from askback.core.permissions import Policy, read_policy
from askback.core.runs import Mode, OnLimit, OnLostSession, ProfileChoice, RunOptions, Validation
from askback.skills.diagnostics import (
    MAX_UNKNOWN,
    Problem,
    error,
    format_path,
    problem_at,
    short,
    unknown_name,
    warning,
)
from askback.skills.front_matter import ID
from askback.skills.json_schema import Checker, compile_schema
from askback.skills.skill_runner import (
    DEFAULTS,
    OPTIONS,
    PROMPTS,
    RULES,
    RUNNER,
    FieldUse,
    as_option,
    field_name,
    is_for_skill_runner,
    runner_uses,
    value_at,
)
from askback.skills.templates import (
    MAX_SUMMARY_TEMPLATE,
    SUMMARY_PLACEHOLDER,
    PromptTemplate,
    TemplateUnsupported,
    parse_template,
)

PLACES = ("assets/runner.json", "runner.json")
"""The first of these files that exists is used."""

SCHEMA_KEYS = ("input", "parameter", "output")
MAX_VERSION = 64

_KNOWN = (
    "id",
    "version",
    "execution_modes",
    "engines",
    "unsupported_engines",
    "max_attempt",
    "summary",
    "permissions",
    "ask_user_validation",
    "options",
    "schemas",
)
_OF_SKILL_RUNNER = frozenset(rule.field.partition(".")[0] for rule in RULES if rule.file == RUNNER)
_ALL_KEYS = (*_KNOWN, *sorted(_OF_SKILL_RUNNER.difference(_KNOWN)))
_DEFAULT_NAMES = [
    rule.field.rpartition(".")[2] for rule in RULES if rule.field.startswith(f"{DEFAULTS}.") and rule.file == RUNNER
]
_UNTIL_THEN = "it is ignored until that is corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The defaults are both modes, any engine and unlimited attempts."""

    id: str | None = None
    version: str | None = None
    execution_modes: tuple[Mode, ...] = (Mode.AUTO, Mode.INTERACTIVE)
    engines: tuple[str, ...] | None = None
    unsupported_engines: tuple[str, ...] = ()
    max_attempt: int | None = None
    summary: str | None = None
    """How to describe a run by its input, as a template."""
    permissions: Policy | None = None
    """Which tool calls the skill itself wants to be asked about, or never made."""
    ask_user_validation: Validation | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    prompts: Mapping[str, PromptTemplate] = field(default_factory=dict)
    """Templates for the first prompt, by engine; `common` is for all others."""
    for_skill_runner: bool = False
    field_uses: tuple[FieldUse, ...] = ()
    """What the fields of Skill-Runner mean here, in a package that was written for it."""


def read_manifest(document: Json, where: str) -> tuple[Manifest, tuple[Problem, ...]]:
    if not isinstance(document, dict):
        fix = 'write {"id": …, "version": …, "execution_modes": […]}'
        return Manifest(), (error(where, "is not an object", fix),)
    reading = _Reading(document, where)
    manifest = Manifest(
        id=reading.id(),
        version=reading.version(),
        execution_modes=reading.default_mode_first(reading.execution_modes()),
        engines=reading.engines(),
        unsupported_engines=reading.names("unsupported_engines") or (),
        max_attempt=reading.max_attempt(),
        summary=reading.summary(),
        permissions=reading.permissions(),
        ask_user_validation=reading.ask_user_validation(),
        options={**reading.default_options(), **reading.options()},
        schemas=reading.schemas(),
        prompts=reading.prompts(),
        for_skill_runner=is_for_skill_runner(document),
    )
    if manifest.for_skill_runner:
        manifest = replace(manifest, field_uses=tuple(runner_uses(document, reading.unused)))
    for key in document:
        if key not in _KNOWN and key not in _OF_SKILL_RUNNER:
            reading.problems.append(warning(f"{where}: {short(key, quoted=False)}", unknown_name(key, _ALL_KEYS)))
    return manifest, tuple(reading.problems)


class _Reading:
    """Reads the document. A wrong field is reported and gets its default, so that all problems are found."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self._document = document
        self._where = where
        self.problems: list[Problem] = []
        self.unused: dict[str, str] = {}
        """Why a field of Skill-Runner is ignored, though such a field has a meaning here."""

    def _wrong(self, key: str, message: str, fix: str) -> None:
        self.problems.append(error(f"{self._where}: {key}", message, fix))

    def id(self) -> str | None:
        value = self._document.get("id")
        if value is None or (isinstance(value, str) and ID.fullmatch(value)):
            return value
        fix = "use letters, digits, `-`, `_` and `.`, at most 64, beginning with a letter or digit"
        self._wrong("id", f"{short(value)} is not a valid id", fix)
        return None

    def version(self) -> str | None:
        value = self._document.get("version")
        if value is None:
            return None
        if isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_VERSION:
            return value
        self._wrong("version", f"{short(value)} is not a version", 'write a short string such as "1.0.0"')
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

    def default_mode_first(self, modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
        """The mode of Skill-Runner's default options is the default here."""
        value = value_at(self._document, f"{DEFAULTS}.execution_mode")
        if value is None:
            return modes
        if value not in list(modes):
            self._ignore(f"{DEFAULTS}.execution_mode", f"{short(value)} is not one of the skill's execution_modes")
            return modes
        return (Mode(value), *(mode for mode in modes if mode != value))

    def default_options(self) -> dict[str, Any]:
        """Skill-Runner's default options under the names that they have here."""
        options: dict[str, Any] = {}
        for name, value in self._section(DEFAULTS).items():
            place = field_name(DEFAULTS, name)
            if name not in _DEFAULT_NAMES:
                self._ignore(place, unknown_name(name, _DEFAULT_NAMES))
            elif name in OPTIONS:
                option, translated = as_option(name, value)
                if (reason := _invalid(option, translated)) is None:
                    options[option] = translated
                else:
                    self._ignore(place, reason)
        return options

    def prompts(self) -> dict[str, PromptTemplate]:
        templates: dict[str, PromptTemplate] = {}
        for engine, text in self._section(PROMPTS).items():
            place = field_name(PROMPTS, engine)
            if not isinstance(text, str):
                self._ignore(place, f"{short(text)} is not a text")
                continue
            try:
                templates[engine] = parse_template(text)
            except TemplateUnsupported as unsupported:
                self._ignore(place, str(unsupported))
        return templates

    def _section(self, path: str) -> Mapping[str, Any]:
        """An object of Skill-Runner's fields. Anything else in its place is ignored."""
        found = value_at(self._document, path)
        if found is None or isinstance(found, Mapping):
            return found or {}
        self._ignore(path, f"{short(found)} is not an object")
        return {}

    def _ignore(self, field: str, reason: str) -> None:
        self.unused[field] = reason
        self.problems.append(warning(f"{self._where}: {field}", reason, _UNTIL_THEN))

    def engines(self) -> tuple[str, ...] | None:
        named, unsupported = self.names("engines"), self.names("unsupported_engines", report=False) or ()
        if named is None:
            return None
        left = tuple(name for name in named if name not in unsupported)
        if not left:
            self._wrong("engines", "unsupported_engines excludes all of them", "name an engine that is supported")
        return left

    def names(self, key: str, *, report: bool = True) -> tuple[str, ...] | None:
        """A list of strings without duplicates. None if it is missing or invalid."""
        value = self._document.get(key)
        if value is None:
            return None
        if isinstance(value, list) and value and all(isinstance(name, str) and name.strip() for name in value):
            return tuple(dict.fromkeys(name.strip() for name in value))
        if report:
            self._wrong(key, f"{short(value)} is not a list of names", "write a list with at least one string")
        return None

    def max_attempt(self) -> int | None:
        value = self._document.get("max_attempt")
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31):
            return value
        self._wrong("max_attempt", f"{short(value)} is not a positive integer", "write how many turns a run may have")
        return None

    def summary(self) -> str | None:
        value = self._document.get("summary")
        if value is None:
            return None
        fix = 'write text with placeholders such as "{{input.city}}, {{input.days}} days"'
        if not isinstance(value, str) or not 0 < len(value) <= MAX_SUMMARY_TEMPLATE:
            self._wrong("summary", f"{short(value)} is not a string of at most {MAX_SUMMARY_TEMPLATE} characters", fix)
            return None
        wrong = [name for name in SUMMARY_PLACEHOLDER.findall(value) if not name.startswith("input.")]
        if wrong:
            self._wrong("summary", f"{short(wrong[0])} is not an input", fix)
        return None if wrong else value

    def permissions(self) -> Policy | None:
        policy, problems = read_policy(self._document.get("permissions"), "permissions")
        for each in problems:
            self._wrong(str(each).partition(":")[0], each.message, "see the reference of permissions")
        return policy

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
        where = f"{self._where}: options"
        options, problems = read_options({} if value is None else value, where)
        self.problems.extend(error(format_path(where, each.path[1:]), each.message) for each in problems)
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
            self._wrong(f"schemas.{key}", f"{short(path)} is not a path", "name a file in the package")
            return False
        return True


# Options of a run. A package sets defaults for them.

TEN_YEARS_SEC = 10 * 365.25 * 24 * 3600
MAX_REPAIR_ATTEMPTS = 10
MAX_MODEL_LENGTH = 30_000
"""On Linux an argument has at most 131,071 bytes, and a character may take four."""
EFFORT_PATTERN = "^[a-z][a-z0-9_-]*$"
"""The words that engines use: `low`, `high`, `xhigh`."""

OPTION_SCHEMAS: dict[str, dict[str, Any]] = {
    "session_timeout_sec": {"type": "number", "exclusiveMinimum": 0, "maximum": TEN_YEARS_SEC},
    "turn_timeout_sec": {"type": "number", "exclusiveMinimum": 0, "maximum": TEN_YEARS_SEC},
    "interactive_require_user_reply": {"type": "boolean"},
    "interactive_profile": {"type": "string", "enum": list(ProfileChoice)},
    "ask_user_validation": {"type": "string", "enum": list(Validation)},
    "repair_attempts": {"type": "integer", "minimum": 0, "maximum": MAX_REPAIR_ATTEMPTS},
    "on_lost_session": {"type": "string", "enum": list(OnLostSession)},
    "on_limit": {"type": "string", "enum": list(OnLimit)},
    "max_park_sec": {"type": "number", "exclusiveMinimum": 0, "maximum": TEN_YEARS_SEC},
    "model": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_MODEL_LENGTH},
    "effort": {"type": ["string", "null"], "pattern": EFFORT_PATTERN, "maxLength": 40},
    "warm_sec": {"type": ["number", "null"], "minimum": 0, "maximum": TEN_YEARS_SEC},
}
"""The JSON Schema of each option: to validate it, to parse it from a command line, and for forms."""


def read_options(raw: Json, where: str) -> tuple[dict[str, Any], tuple[FieldProblem, ...]]:
    """Parse options. Each error has its path: `options.turn_timeout_sec: …`."""
    if not isinstance(raw, Mapping):
        return {}, (problem_at(where, (), f"{short(raw)} is not an object"),)
    options: dict[str, Any] = {}
    problems: list[FieldProblem] = []
    for name, value in raw.items():
        if len(problems) >= MAX_UNKNOWN:
            problems.append(problem_at(where, (), f"there are more errors in its {len(raw)} options"))
            break
        if (reason := _invalid(name, value)) is None:
            options[name] = _typed(name, value)
        else:
            problems.append(problem_at(where, [name], reason))
    return options, tuple(problems)


def merge_options(
    defaults: Mapping[str, Any],
    own: Mapping[str, Any],
    *,
    usual: RunOptions = RunOptions(),  # noqa: B008 a frozen value
    longest_turn_sec: float = 0,
) -> RunOptions:
    """The package's defaults, overridden by the run's own options; both from `read_options`. `usual` has all others.

    A turn gets at most `longest_turn_sec`; 0: no limit.
    """
    options = replace(usual, **{**defaults, **own})
    if longest_turn_sec and options.turn_timeout_sec > longest_turn_sec:
        return replace(options, turn_timeout_sec=longest_turn_sec)
    return options


def _invalid(name: Any, value: Json) -> str | None:
    """Why an option cannot have this value, or None."""
    if name not in OPTION_SCHEMAS:
        return unknown_name(str(name), OPTION_SCHEMAS)
    if problems := _checker(name).problems(value, ""):
        return problems[0].message
    if name == "model" and value is not None and ("\0" in value or not value.strip()):
        return f"{short(value)} is not the name of a model"
    return None


@cache
def _checker(name: str) -> Checker:
    return compile_schema(OPTION_SCHEMAS[name], name)


def _typed(name: str, value: Json) -> Any:
    match name:
        case "interactive_profile":
            return ProfileChoice(value)
        case "ask_user_validation":
            return Validation(value)
        case "repair_attempts":
            return int(value)
        case "on_lost_session":
            return OnLostSession(value)
        case "on_limit":
            return OnLimit(value)
        case _:
            return value
