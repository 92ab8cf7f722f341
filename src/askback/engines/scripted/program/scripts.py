"""Scripts: which steps a turn has. A script that cannot be played is refused before anything is done."""

# Without pathlib, which alone would take a third of the program's start.
# ruff: noqa: PTH110
from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Step = dict[str, Any]

VERBS = (
    "say",
    "ask",
    "ask_native",
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

_ECHO: list[Step] = [
    {"say": "There is no script, so I only tell what I was given ({{prompt_length}} characters)."},
    {
        "finish": {
            "echo": {"turn": "{{turn}}", "input": "{{input}}", "parameter": "{{parameter}}", "reply": "{{reply|}}"}
        }
    },
]


class ScriptError(Exception):
    """The script cannot be played."""


class Script:
    """What is played. Without `turns` every turn is an echo."""

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
    return [{"misbehave": "api_error", "message": words}]


def load_script(path: str | None, default_path: str | None) -> Script:
    """The script at `path`, else the one at `default_path` if there is one, else the echo."""
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
    _check(script, path)
    return Script(script)


def _check(script: Any, path: str) -> None:
    turns = script.get("turns") if isinstance(script, dict) else None
    if not isinstance(turns, list) or not turns:
        raise ScriptError(f'the script {path} must be an object with a list "turns"')
    parts, values = script.get("parts", {}), script.get("values", {})
    if not isinstance(parts, dict) or not isinstance(values, dict):
        raise ScriptError(f'"parts" and "values" of the script {path} must be objects')
    for name, steps in parts.items():
        _check_steps(steps, {}, f"part {name!r} of the script {path}")
    for number, entry in enumerate(turns, start=1):
        for steps in entry.values() if isinstance(entry, dict) else [entry]:
            _check_steps(steps, parts, f"turn {number} of the script {path}")


def _check_steps(steps: Any, parts: dict[str, Any], where: str) -> None:
    if not isinstance(steps, list):
        raise ScriptError(f"{where} must be a list of steps, or an object of such lists by mode")
    for number, step in enumerate(steps, start=1):
        at = f"step {number} of {where}"
        if not isinstance(step, dict) or not (verb_of(step) or "play" in step):
            raise ScriptError(f"{at} does nothing known; steps are play, {', '.join(VERBS)}")
        if "play" in step and step["play"] not in parts:
            raise ScriptError(
                f"{at} plays {step['play']!r}, which is not one of its parts: {', '.join(parts) or 'none'}"
            )
        if "misbehave" in step:
            _check_fault(step["misbehave"], at)


def _check_fault(name: Any, where: str) -> None:
    from askback.engines.scripted.program.faults import FAULTS

    if name not in FAULTS:
        raise ScriptError(f"{where} misbehaves as {name!r}, which is unknown; known: {', '.join(FAULTS)}")


def verb_of(step: Step) -> str | None:
    return next((verb for verb in VERBS if verb in step), None)
