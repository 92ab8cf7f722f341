"""Packages that were written for Skill-Runner: what each of their fields means here, or why it is ignored.

`RULES` is the only list of these fields. `askback skills check` reports by it, and the guide shows it as a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from askback.core.interactions import Json
from askback.skills.diagnostics import short

OWN_KEYS = ("entrypoint", "runtime", "engine_configs", "mcp", "artifacts")
"""Only Skill-Runner has these keys of `runner.json`: a package with one of them was written for it."""

RUNNER, INPUT, OUTPUT = "runner.json", "input schema", "output schema"
DEFAULTS = "runtime.default_options"
PROMPTS = "entrypoint.prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`field` is a path in `runner.json` or a keyword of a schema; `*` stands for any name."""

    file: str
    field: str
    honoured: bool
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldUse:
    """One field of one package. `meaning` says what it does here, or why it is ignored."""

    field: str
    honoured: bool
    meaning: str


def _honoured(file: str, field: str, meaning: str) -> Rule:
    return Rule(file=file, field=field, honoured=True, meaning=meaning)


def _ignored(file: str, field: str, meaning: str) -> Rule:
    return Rule(file=file, field=field, honoured=False, meaning=meaning)


RULES = (
    _honoured(RUNNER, "id", "the same"),
    _honoured(RUNNER, "version", "the same"),
    _honoured(RUNNER, "execution_modes", "the same; the first is the default"),
    _honoured(RUNNER, "engines", "the same; the first that is installed is the default"),
    _honoured(RUNNER, "unsupported_engines", "the same"),
    _honoured(RUNNER, "max_attempt", "the same; it also limits runs in auto mode"),
    _honoured(RUNNER, "schemas", "the same"),
    _honoured(RUNNER, f"{DEFAULTS}.hard_timeout_seconds", "the default of the option `turn_timeout_sec`"),
    _honoured(RUNNER, f"{DEFAULTS}.interactive_reply_timeout_sec", "the default of the option `session_timeout_sec`"),
    _honoured(
        RUNNER,
        f"{DEFAULTS}.interactive_auto_reply",
        "the default of the option `interactive_require_user_reply`, negated",
    ),
    _honoured(RUNNER, f"{DEFAULTS}.execution_mode", "the default mode"),
    _honoured(RUNNER, f"{DEFAULTS}.no_cache", "always so: results are not cached"),
    _ignored(RUNNER, f"{DEFAULTS}.workspace", "a request names the run that it continues: `from_run`"),
    _ignored(RUNNER, f"{DEFAULTS}.env", "a request brings variables: `env`"),
    _ignored(RUNNER, f"{DEFAULTS}.preamble_prompt", "put it into SKILL.md or into a prompt template"),
    _ignored(RUNNER, f"{DEFAULTS}.collect_skill_run_feedback", "Askback does not collect feedback"),
    _honoured(RUNNER, f"{PROMPTS}.*", "a template for the first prompt; that of the engine, else `common`"),
    _ignored(RUNNER, "entrypoint.result_json_filename", "a repair turn asks for an output that is missing or invalid"),
    _ignored(RUNNER, "runtime.language", "Askback installs nothing: install it where the engine runs"),
    _ignored(RUNNER, "runtime.version", "Askback installs nothing: install it where the engine runs"),
    _ignored(RUNNER, "runtime.dependencies", "Askback installs nothing: install them where the engine runs"),
    _ignored(RUNNER, "engine_configs.*", "a package must not configure an engine: use `engines.NAME` in the settings"),
    _ignored(RUNNER, "mcp.required_servers", "set them up in the engine's configuration: `engines.NAME.home`"),
    _ignored(RUNNER, "artifacts", "the output schema says which files there are, as in Skill-Runner"),
    _ignored(RUNNER, "effective_engines", "Askback computes it from `engines` and `unsupported_engines`"),
    _ignored(RUNNER, "debug_only", "Askback lists every skill"),
    _ignored(RUNNER, "name", "Askback shows the `name` of SKILL.md"),
    _ignored(RUNNER, "description", "Askback shows the `description` of SKILL.md"),
    _honoured(INPUT, "x-input-source: file", "the same: an uploaded file, of which the engine gets the path"),
    _honoured(INPUT, "x-input-source: inline", "the same: a value"),
    _honoured(INPUT, "no x-input-source", "a file, if the package has a key that only Skill-Runner has"),
    _honoured(INPUT, "extensions", "without `x-input-source` the input is a file; its name is not checked"),
    _honoured(OUTPUT, "x-type: artifact", "the file must exist when the run completes"),
    _honoured(OUTPUT, "x-type: file", "as `artifact`"),
    _honoured(OUTPUT, "x-type: artifact-manifest", "as `artifact`, and every file that it lists must exist"),
    _honoured(OUTPUT, "x-role: artifact-manifest", "as `x-type: artifact-manifest`, beside an `x-type`"),
    _ignored(OUTPUT, "x-role: *", "callers find it in the schema of the skill"),
    _honoured(OUTPUT, "x-filename", "the name of the file in the example that the engine gets; it is not checked"),
)

OPTIONS = {
    "hard_timeout_seconds": "turn_timeout_sec",
    "interactive_reply_timeout_sec": "session_timeout_sec",
    "interactive_auto_reply": "interactive_require_user_reply",
}
"""The run options that `runtime.default_options` has under other names."""
_MAX_DIGITS = 12


def is_for_skill_runner(document: Mapping[str, Any]) -> bool:
    return any(key in document for key in OWN_KEYS)


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """The value at a path such as `runtime.default_options`; None if there is none."""
    found: Any = document
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def field_name(path: str, name: str) -> str:
    """The path of a field in `runner.json`, printable whatever its name is."""
    return f"{path}.{short(name, quoted=False)}"


def as_option(name: str, value: Json) -> tuple[str, Json]:
    """A default option of Skill-Runner as an option of a run. The value is not validated."""
    if name == "interactive_auto_reply":
        return OPTIONS[name], not value if isinstance(value, bool) else value
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and value.isascii() and value.isdecimal():
        # Skill-Runner also takes seconds that are written as text.
        return OPTIONS[name], int(value)
    return OPTIONS[name], value


def runner_uses(document: Mapping[str, Any], unused: Mapping[str, str]) -> Iterator[FieldUse]:
    """The fields of a `runner.json`. `unused` has the reasons why fields with an invalid value are ignored."""
    for rule in RULES:
        if rule.file != RUNNER:
            continue
        path, _, last = rule.field.rpartition(".")
        holder = value_at(document, path) if path else document
        if not isinstance(holder, Mapping):
            continue
        for name in holder if last == "*" else (last,):
            if name in holder:
                field = field_name(path, name) if path else name
                honoured = rule.honoured and field not in unused
                yield FieldUse(field=field, honoured=honoured, meaning=unused.get(field, rule.meaning))


def schema_uses(file: str, found: frozenset[str]) -> Iterator[FieldUse]:
    """The keywords of Skill-Runner that were found in a schema."""
    for rule in RULES:
        if rule.file == file and rule.field in found:
            yield FieldUse(field=f"{file}: {rule.field}", honoured=rule.honoured, meaning=rule.meaning)
