"""Problems of a skill's `assets/scripted.json`. The engine's own program says whether it can be played.

What it would play badly is a warning: a question without its fields, a placeholder without a value.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from askback.engines.scripted import SCRIPT, Scripted
from askback.questions import finding as questions
from askback.skills.diagnostics import Problem, error, short, unknown_name, warning
from askback.skills.files import MAX_JSON_BYTES, read_bytes, read_json
from askback.skills.package import SkillPackage

_CHECK_SEC = 60
_PLACEHOLDER = re.compile(r"\{\{\s*([a-z_]+)((?:\.[A-Za-z0-9_-]+)*)\s*(\|[^}]*)?\}\}")
_FACTS = frozenset(
    {"input", "parameter", "reply", "reply_json", "replies", "values", "turn", "session_id"}
    | {"prompt", "prompt_length", "index", "item"}
)
_QUESTION = ("interaction_id", "prompt", "kind", "options", "default", "context", "response_schema", "questions")
_FIELD = ("id", "prompt", "kind", "options", "default", "required", "context", "response_schema")
_ALIASES = ("question", "choices")


def script_problems(package: SkillPackage) -> tuple[Problem, ...]:
    path = package.folder / SCRIPT
    if not path.is_file():
        return ()
    script, problems = read_json(read_bytes(path, MAX_JSON_BYTES), SCRIPT)
    if script is None:
        return problems
    unplayable = [error(f"{SCRIPT}: {where}" if where else SCRIPT, said) for where, said in _unplayable(path)]
    if unplayable:
        return (*problems, *unplayable)
    found = [*_missing_modes(script, package), *_asked_badly(script), *_without_value(script, package)]
    return (*problems, *dict.fromkeys(found))


def _unplayable(path: Path) -> list[tuple[str, str]]:
    command = [*Scripted.default_command, f"--check={path}"]
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(command, capture_output=True, timeout=_CHECK_SEC, check=True, stdin=subprocess.DEVNULL)
        return [(where, said) for where, said in json.loads(done.stdout)]
    return [("", "cannot be checked: the engine 'scripted' does not start")]


def _missing_modes(script: Mapping[str, Any], package: SkillPackage) -> Iterator[Problem]:
    first = script["turns"][0]
    for mode in package.execution_modes if isinstance(first, Mapping) else ():
        if mode not in first:
            fix = "add them, or remove the mode from execution_modes in runner.json"
            yield warning(f"{SCRIPT}: turn 1", f"has no steps for the mode {short(str(mode))}", fix)


def _asked_badly(script: Mapping[str, Any]) -> Iterator[Problem]:
    for step in _steps(script):
        fields = step.get("ask", step.get("ask_native", step.get("put_question")))
        if fields is None:
            continue
        name = fields.get("interaction_id") if isinstance(fields, Mapping) else None
        where = f"{SCRIPT}: ask {short(name)}" if name else f"{SCRIPT}: ask"
        question, missing = questions.read_question(questions.QuestionBlock(start=0, end=0, fields=fields), "")
        for each in missing:
            yield warning(where, each.inner(), "see 'What a question looks like' in the docs")
        if question.schema_ignored:
            yield warning(where, "response_schema is ignored: it is neither a scalar nor a flat object")
        if isinstance(fields, Mapping):
            yield from _unknown(fields, _QUESTION, where)
            listed = fields.get("questions")
            for number, field in enumerate(listed if isinstance(listed, list) else (), 1):
                if isinstance(field, Mapping):
                    yield from _unknown(field, _FIELD, f"{where}: question {number}")


def _unknown(fields: Mapping[str, Any], known: tuple[str, ...], where: str) -> Iterator[Problem]:
    for key in fields:
        if key not in (*known, *_ALIASES):
            yield warning(where, f"{short(key)} {unknown_name(str(key), known)}")


def _steps(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every step of the turns and parts."""
    parts = value.get("parts") or {}
    for entry in [*value["turns"], *parts.values()]:
        for steps in entry.values() if isinstance(entry, Mapping) else [entry]:
            yield from steps


def _without_value(script: Mapping[str, Any], package: SkillPackage) -> Iterator[Problem]:
    """Placeholders for values that no run has. Those with a default never fail."""
    known = {
        "input": _names(package.input_schema),
        "parameter": _names(package.parameter_schema),
        "values": list(script.get("values") or {}),
    }
    for root, path, default in (found for text in _texts(script) for found in _PLACEHOLDER.findall(text)):
        name = path.split(".")[1] if path else None
        if root not in _FACTS:
            yield warning(f"{SCRIPT}: {{{{{root}{path}}}}}", f"{short(root)} {unknown_name(root, sorted(_FACTS))}")
        elif name is not None and not default and (names := known.get(root)) is not None and name not in names:
            yield warning(f"{SCRIPT}: {{{{{root}{path}}}}}", f"{short(name)} {unknown_name(name, names)}")


def _names(schema: Mapping[str, Any] | None) -> list[str] | None:
    """The names that a schema lists; None if it allows others."""
    properties = (schema or {}).get("properties")
    return list(properties) if isinstance(properties, Mapping) else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _texts(each)
