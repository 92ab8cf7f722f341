"""Scripts: the steps of each turn, and the templates in them. An invalid script is refused before any step.

Templates are strings such as `{{reply}}`, `{{input.days}}`, `{{parameter.language|English}}` or `{{values.plan}}`. A
string that is a single placeholder becomes that value and keeps its type. Lists may contain `$each`, values `$pick`.
The script's own `values` are templates too, rendered where they are used.
"""

# No pathlib: importing it would take a third of the startup time.
# ruff: noqa: PTH110
from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    Step = dict[str, Any]

VERBS = (
    "say",
    "ask",
    "ask_native",
    "put_question",
    "finish",
    "output",
    "tool",
    "write",
    "touch",
    "usage",
    "stderr",
    "sleep_sec",
    "wait_for",
    "misbehave",
)

UNPLAYABLE = "unplayable"
"""The action of a step that no script has: it fails the turn."""

_ECHO: list[Step] = [
    {"say": "There is no script, so I only echo my input ({{prompt_length}} characters)."},
    {
        "finish": {
            "echo": {"turn": "{{turn}}", "input": "{{input}}", "parameter": "{{parameter}}", "reply": "{{reply|}}"}
        }
    },
]


class ScriptError(Exception):
    """The script cannot be played."""


class Script:
    """The script to play. Without `turns`, every turn echoes its input."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.values: dict[str, Any] = content.get("values", {})
        self._turns: list[Any] | None = content.get("turns")
        self._parts: dict[str, list[Step]] = content.get("parts", {})

    def steps(self, turn: int, mode: str) -> list[Step]:
        if self._turns is None:
            return _ECHO
        if turn > len(self._turns):
            return _failing(f"the script ends after turn {len(self._turns)}; there is no turn {turn}")
        entry = self._turns[turn - 1]
        by_mode: dict[str, list[Step]] = entry if isinstance(entry, dict) else {mode: entry}
        steps = by_mode.get(mode) or _failing(f"turn {turn} of the script has no steps for the mode {mode!r}")
        return [inner for step in steps for inner in (self._parts[step["play"]] if "play" in step else [step])]


def _failing(words: str) -> list[Step]:
    """A turn that fails when it is played: only then has the session its name."""
    return [{UNPLAYABLE: words}]


def load_script(path: str | None, default_path: str | None) -> Script:
    """The script at `path`, or else at `default_path` if that exists, or else the echo script."""
    if path is None and (default_path is None or not os.path.exists(default_path)):
        return Script({})
    return read_script(path or default_path or "")


def read_script(path: str) -> Script:
    try:
        with open(path, "rb") as file:
            script = json.load(file)
    except OSError as error:
        raise ScriptError(f"the script {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"the script {path} is not JSON: {error}") from None
    for where, problem in problems(script):
        raise ScriptError(f"{where} of the script {path} {problem}" if where else f"the script {path} {problem}")
    return Script(script)


def problems(script: Any) -> Iterator[tuple[str, str]]:
    """Why the script cannot be played: the place in words, and what is wrong there."""
    turns = script.get("turns") if isinstance(script, dict) else None
    if not isinstance(turns, list) or not turns:
        yield "", 'must be an object with a list "turns"'
        return
    parts, values = script.get("parts", {}), script.get("values", {})
    for name, named in (("parts", parts), ("values", values)):
        if not isinstance(named, dict):
            yield "", f'has "{name}" that are not an object'
    parts = parts if isinstance(parts, dict) else {}
    for name, steps in parts.items():
        yield from _step_problems(steps, {}, f"part {name!r}")
    for number, entry in enumerate(turns, start=1):
        by_mode = entry if isinstance(entry, dict) else {"": entry}
        for mode, steps in by_mode.items():
            yield from _step_problems(steps, parts, f"turn {number}" + (f" ({mode})" if mode else ""))


def _step_problems(steps: Any, parts: dict[str, Any], where: str) -> Iterator[tuple[str, str]]:
    if not isinstance(steps, list):
        yield where, "must be a list of steps, or an object of such lists by mode"
        return
    for number, step in enumerate(steps, start=1):
        at = f"step {number} of {where}"
        if not isinstance(step, dict) or not (verb_of(step) or "play" in step):
            yield at, f"has no known action; actions are play, {', '.join(VERBS)}"
        elif "play" in step and step["play"] not in parts:
            known = ", ".join(parts) or "none"
            yield at, f"plays {step['play']!r}, which is not one of the script's parts: {known}"
        elif "misbehave" in step:
            yield from _fault_problems(step["misbehave"], at)


def _fault_problems(name: Any, where: str) -> Iterator[tuple[str, str]]:
    from .faults import FAULTS

    if not isinstance(name, str) or name not in FAULTS:
        yield where, f"has the unknown fault {name!r}; known faults: {', '.join(FAULTS)}"


def verb_of(step: Step) -> str | None:
    return next((verb for verb in VERBS if verb in step), None)


# Templates.

_PLACEHOLDER = re.compile(r"\{\{\s*([a-z_]+(?:\.[A-Za-z0-9_-]+)*)\s*(?:\|([^}]*))?\}\}")
_MAX_REPEATED = 1_000


class TemplateError(Exception):
    """A template refers to a value that does not exist."""


def render(value: Any, facts: Mapping[str, Any]) -> Any:
    """The value with all placeholders filled."""
    if isinstance(value, str):
        return _fill(value, facts)
    if isinstance(value, list):
        return [done for item in value for done in _items(item, facts)]
    if isinstance(value, dict) and "$pick" in value:
        return _pick(value, facts)
    if isinstance(value, dict):
        return {key: render(item, facts) for key, item in value.items()}
    return value


def render_text(value: Any, facts: Mapping[str, Any]) -> str:
    """As `render`, but as a string; the items of a list become lines."""
    done = render(value, facts)
    return "\n".join(map(as_text, done)) if isinstance(done, list) else as_text(done)


def as_text(value: Any) -> str:
    value = _whole(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _whole(value: Any) -> Any:
    """`3.0` as `3`: JSON does not tell them apart, and a schema takes both for an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _items(item: Any, facts: Mapping[str, Any]) -> list[Any]:
    """`{"$each": N or list, "item": template}` becomes several items; anything else becomes one."""
    if not isinstance(item, dict) or "$each" not in item:
        return [render(item, facts)]
    over = _whole(render(item["$each"], facts))
    if isinstance(over, str) and over.isdecimal():
        over = int(over)
    if isinstance(over, int):
        over = list(range(1, min(over, _MAX_REPEATED) + 1))
    if not isinstance(over, list):
        raise TemplateError(f"$each needs a number or a list, not {as_text(over)[:80]}")
    return [render(item.get("item"), {**facts, "index": at, "item": one}) for at, one in enumerate(over, start=1)]


def _pick(value: dict[str, Any], facts: Mapping[str, Any]) -> Any:
    """`{"$pick": key, "from": {key: template, "*": template}}`, or `from` a list: by position from 1, repeating."""
    key, choices = _whole(render(value["$pick"], facts)), value.get("from")
    if (
        isinstance(choices, dict)
        and (choice := choices.get(as_text(key).strip().lower(), choices.get("*"))) is not None
    ):
        return render(choice, facts)
    if isinstance(choices, list) and choices and isinstance(key, int):
        return render(choices[(key - 1) % len(choices)], facts)
    raise TemplateError(f"$pick has no choice for {as_text(key)[:80]}")


def _fill(text: str, facts: Mapping[str, Any]) -> Any:
    whole = _PLACEHOLDER.fullmatch(text)
    if whole is not None:
        return _value(whole, facts)
    return _PLACEHOLDER.sub(lambda place: as_text(_value(place, facts)), text)


def _value(place: re.Match[str], facts: Mapping[str, Any]) -> Any:
    names = place[1].split(".")
    value: Any = facts
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if value is not None:
        return render(value, facts) if names[0] == "values" else value
    if place[2] is None:
        raise TemplateError(f"the script uses {place[0]}, which has no value")
    return place[2].strip()
