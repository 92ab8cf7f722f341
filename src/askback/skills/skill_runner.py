"""Packages that were written for Skill-Runner: what each of their fields means here, or why it is ignored.

`RULES` is the only list of these fields. `askback skills check` reports by it, and the guide shows it as a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from askback.core.interactions import Json
from askback.skills.diagnostics import short

OWN_KEYS = ("entrypoint", "runtime", "engine_configs", "mcp", "artifacts")
"""Only Skill-Runner has these keys of `runner.json`: a package with one of them was written for it."""

RUNNER, INPUT, OUTPUT = "runner.json", "input schema", "output schema"
DEFAULTS = "runtime.default_options"
PROMPTS = "entrypoint.prompts"


class FieldUse(NamedTuple):
    """One field of one package. `meaning` says what it does here, or why it is ignored."""

    field: str
    honoured: bool
    meaning: str


class Rule(NamedTuple):
    """`field` is a path in `runner.json` or a keyword of a schema; `*` stands for any name."""

    file: str
    field: str
    honoured: bool
    meaning: str


RULES = (
    Rule(RUNNER, "id", True, "the same"),
    Rule(RUNNER, "version", True, "the same"),
    Rule(RUNNER, "execution_modes", True, "the same; the first is the default"),
    Rule(RUNNER, "engines", True, "the same; the first that is installed is the default"),
    Rule(RUNNER, "unsupported_engines", True, "the same"),
    Rule(RUNNER, "max_attempt", True, "the same; it also limits runs in auto mode"),
    Rule(RUNNER, "schemas", True, "the same"),
    Rule(RUNNER, f"{DEFAULTS}.hard_timeout_seconds", True, "the default of the option `turn_timeout_sec`"),
    Rule(RUNNER, f"{DEFAULTS}.interactive_reply_timeout_sec", True, "the default of the option `session_timeout_sec`"),
    Rule(
        RUNNER,
        f"{DEFAULTS}.interactive_auto_reply",
        True,
        "the default of the option `interactive_require_user_reply`, negated",
    ),
    Rule(RUNNER, f"{DEFAULTS}.execution_mode", True, "the default mode"),
    Rule(RUNNER, f"{DEFAULTS}.no_cache", True, "always so: results are not cached"),
    Rule(RUNNER, f"{DEFAULTS}.workspace", False, "a request names the run that it continues: `from_run`"),
    Rule(RUNNER, f"{DEFAULTS}.env", False, "a request brings variables: `env`"),
    Rule(RUNNER, f"{DEFAULTS}.preamble_prompt", False, "put it into SKILL.md or into a prompt template"),
    Rule(RUNNER, f"{DEFAULTS}.collect_skill_run_feedback", False, "Askback does not collect feedback"),
    Rule(RUNNER, f"{PROMPTS}.*", True, "a template for the first prompt; that of the engine, else `common`"),
    Rule(
        RUNNER, "entrypoint.result_json_filename", False, "a repair turn asks for an output that is missing or invalid"
    ),
    Rule(RUNNER, "runtime.language", False, "Askback installs nothing: install it where the engine runs"),
    Rule(RUNNER, "runtime.version", False, "Askback installs nothing: install it where the engine runs"),
    Rule(RUNNER, "runtime.dependencies", False, "Askback installs nothing: install them where the engine runs"),
    Rule(
        RUNNER, "engine_configs.*", False, "a package must not configure an engine: use `engines.NAME` in the settings"
    ),
    Rule(RUNNER, "mcp.required_servers", False, "set them up in the engine's configuration: `engines.NAME.home`"),
    Rule(RUNNER, "artifacts", False, "the output schema says which files there are, as in Skill-Runner"),
    Rule(RUNNER, "effective_engines", False, "Askback computes it from `engines` and `unsupported_engines`"),
    Rule(RUNNER, "debug_only", False, "Askback lists every skill"),
    Rule(RUNNER, "name", False, "Askback shows the `name` of SKILL.md"),
    Rule(RUNNER, "description", False, "Askback shows the `description` of SKILL.md"),
    Rule(INPUT, "x-input-source: file", True, "the same: an uploaded file, of which the engine gets the path"),
    Rule(INPUT, "x-input-source: inline", True, "the same: a value"),
    Rule(INPUT, "no x-input-source", True, "a file, if the package has a key that only Skill-Runner has"),
    Rule(INPUT, "extensions", True, "without `x-input-source` the input is a file; its name is not checked"),
    Rule(OUTPUT, "x-type: artifact", True, "the file must exist when the run completes"),
    Rule(OUTPUT, "x-type: file", True, "as `artifact`"),
    Rule(OUTPUT, "x-type: artifact-manifest", True, "as `artifact`, and every file that it lists must exist"),
    Rule(OUTPUT, "x-role: artifact-manifest", True, "as `x-type: artifact-manifest`, beside an `x-type`"),
    Rule(OUTPUT, "x-role: *", False, "callers find it in the schema of the skill"),
    Rule(OUTPUT, "x-filename", True, "the name of the file in the example that the engine gets; it is not checked"),
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
