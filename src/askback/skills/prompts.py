"""The texts that an engine is given: what to do, where to leave files, how to ask and how to finish. Pure.

No text begins with a character that a CLI could take for a command, an option or a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from askback.core.interactions import Interaction, InteractionOutcome, Json
from askback.core.outcomes import MARKER
from askback.core.runs import Mode, RunRequest
from askback.skills.json_schema import Checker, resolve
from askback.skills.package import SkillPackage

MAX_SCHEMA_CHARS = 30_000

_QUESTION = {
    "ask_user": {
        "interaction_id": "choose-format",
        "prompt": "Which format shall the report have?",
        "kind": "choice",
        "options": [{"label": "One page", "value": "short"}, {"label": "All details", "value": "long"}],
        "default": "short",
    }
}


def first_prompt(package: SkillPackage, request: RunRequest, mode: Mode, skill_dir: str) -> str:
    """The whole of a run's first turn: the skill, what it is given, and the instructions of the mode."""
    parts = [
        f'You are carrying out the skill "{package.name}" in this working directory. Its instructions follow.',
        f"<skill>\n{package.body}\n</skill>",
        f"The skill's own files, such as its scripts and references, lie in `{skill_dir}/` below the working directory.",
        "What you are given, as JSON. It is data for the skill, and a path in it is relative to the working directory.",
        _block("input", request.input),
        _block("parameter", request.parameter),
        artifact_part(),
        mode_part(mode, package.output_schema, package.checkers.get("output")),
    ]
    return "\n\n".join(parts) + "\n"


def artifact_part() -> str:
    """Where files go: the same in every mode."""
    return (
        "## Files\n\n"
        "Write every output file under `artifacts/`, which lies directly below the working directory, "
        "whatever the skill's own text says about where files go. "
        "Name a file in your result by its path from the working directory, such as `artifacts/report.md`."
    )


def mode_part(mode: Mode, output_schema: Mapping[str, Any] | None, checker: Checker | None = None) -> str:
    """Whether to ask, and how to finish."""
    about_user = _no_user() if mode is Mode.AUTO else _asking()
    return f"{about_user}\n\n{_finishing(output_schema, checker)}"


def _no_user() -> str:
    return (
        "## No questions\n\n"
        "Nobody can answer in this run: do not ask the user anything, and do not wait for a confirmation. "
        "Where something is open, decide by yourself, take the most sensible choice, and go on until the work is done."
    )


def _asking() -> str:
    return (
        "## Asking the user\n\n"
        "You may ask the user whenever an answer would make the result better. "
        "A question is one JSON block of this form, at the end of your message, and your turn ends with it:\n\n"
        f"{_fenced(_QUESTION)}\n\n"
        "`interaction_id` (your own, new for each question) and `prompt` are needed. Optional are `kind` (`text`, "
        "`choice`, `confirm`, or `secret` for what is to stay unseen), `options`, `default`, `context` and "
        "`response_schema` (a JSON Schema: a scalar, or an object of scalars). "
        "The answer is your next message, in the same session; then go on with the work."
    )


def _finishing(schema: Mapping[str, Any] | None, checker: Checker | None) -> str:
    if schema is None:
        return (
            "## Finishing\n\n"
            "When all work is done, end with a message that states the result, and after it, on a line of its own:\n\n"
            f"{MARKER}"
        )
    told = f"{_block('output_schema', schema)}\n\n" if len(json.dumps(schema)) <= MAX_SCHEMA_CHARS else ""
    return (
        "## Finishing\n\n"
        "When all work is done, end with one JSON value that fits this JSON Schema:\n\n"
        f"{told}{_example(schema, checker)}"
    )


def _example(schema: Mapping[str, Any], checker: Checker | None) -> str:
    """The marker, with an output that passes; without the output where none can be made up."""
    made = sample(schema)
    passes = checker is not None and not checker.problems(made, "output")
    looks = "The end of your last message then looks like this, only with your own values:"
    if not isinstance(made, dict):
        value = f"{_fenced(made)}\n\n" if passes else ""
        return (
            f"After it, on a line of its own, write {MARKER}: it says that the run is done. {looks}\n\n{value}{MARKER}"
        )
    content = {**made, MARKER: True} if passes else {"…": "…", MARKER: True}
    return f'Add the key "{MARKER}" to it, set to true: it says that the run is done. {looks}\n\n{_fenced(content)}'


def reply_prompt(package: SkillPackage, interaction: Interaction) -> str:
    """The user's answer, or that there was none, and how to go on."""
    if interaction.outcome is InteractionOutcome.AUTO_DECIDED:
        return f"{_unanswered(interaction)}\n\n{_going_on(package)}\n"
    answer = interaction.response
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return (
        f'The user has answered your question "{interaction.interaction_id}". The answer, word for word:\n\n'
        f'<user_reply interaction_id="{interaction.interaction_id}">\n{text}\n</user_reply>\n\n'
        f"{_going_on(package)}\n"
    )


def _unanswered(interaction: Interaction) -> str:
    told = f'The user did not answer your question "{interaction.interaction_id}" in time; nobody has decided it. '
    if interaction.default is None:
        return told + "Decide it by yourself, take the most sensible choice, and say in the result that you did."
    value = json.dumps(interaction.default, ensure_ascii=False)
    return told + f"Decide it by yourself; the default that you named is {value}. Say in the result that you did."


def _going_on(package: SkillPackage) -> str:
    how = f'one JSON value that fits the output schema, with "{MARKER}": true'
    if package.output_schema is None:
        how = f"the result and, on a line of its own, {MARKER}"
    return (
        "Go on with the skill. For a further question, end your message with a JSON block "
        '{"ask_user": {"interaction_id": …, "prompt": …}}. '
        f"When all work is done, end with {how}. Files go under `artifacts/`."
    )


def repair_prompt(package: SkillPackage, problems: Sequence[str], mode: Mode) -> str:
    """What is wrong with the output, and how to give it again."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    alone = (
        "Nobody can answer a question in this run: decide by yourself whatever is open. " if mode is Mode.AUTO else ""
    )
    return (
        f"Your result cannot be taken yet. What is wrong with it:\n\n{listed}\n\n"
        f"{alone}Give the whole result again, corrected.\n\n"
        f"{_finishing(package.output_schema, package.checkers.get('output'))}\n"
    )


def _block(tag: str, value: Json) -> str:
    return f"<{tag}>\n{_untagged(json.dumps(value, ensure_ascii=False, indent=2), tag)}\n</{tag}>"


def _untagged(text: str, tag: str) -> str:
    """JSON in which no text looks like the tag around it; the escapes mean the same to a JSON reader."""
    return text.replace("</", "<\\/").replace(f"<{tag}>", f"\\u003c{tag}>")


def _fenced(value: Json) -> str:
    return f"```json\n{json.dumps(value, ensure_ascii=False, indent=2)}\n```"


MAX_DEPTH = 8
MAX_ITEMS = 3
MAX_VALUES = 200
MAX_TEXT = 200

_UNKNOWN = "…"
_FORMATS = {
    "date": "2030-01-31",
    "date-time": "2030-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "name@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/path",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def sample(schema: Json) -> Json:
    try:
        return _Sampling(schema).of(schema, MAX_DEPTH)
    # A draft has no say in the keywords of another, and none in how far two numbers lie apart.
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return _UNKNOWN


class _Sampling:
    """One example in the making. `left` bounds it: a schema may refer to itself without end."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._left = MAX_VALUES

    def of(self, schema: Json, depth: int) -> Json:
        schema = resolve(self._document, schema)
        self._left -= 1
        if not isinstance(schema, Mapping) or depth == 0 or self._left < 0:
            return _UNKNOWN
        for word in ("const", "default"):
            if word in schema:
                return schema[word]
        for word in ("examples", "enum"):
            if schema.get(word):
                return schema[word][0]
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self.of(self._merged(schema, schema[word][0], word), depth - 1)
        if "allOf" in schema:
            return self.of(self._all(schema), depth - 1)
        return self._of_type(schema, depth)

    def _merged(self, schema: Mapping[str, Any], branch: Json, word: str) -> dict[str, Any]:
        """One form of several, with what stands beside them."""
        rest = {key: value for key, value in schema.items() if key != word}
        chosen = resolve(self._document, branch)
        if not isinstance(chosen, Mapping):
            return rest
        both = {**rest, **chosen}
        for key in ("properties", "required"):
            if key in rest and key in chosen:
                both[key] = {**rest[key], **chosen[key]} if key == "properties" else [*rest[key], *chosen[key]]
        return both

    def _all(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        whole = {key: value for key, value in schema.items() if key != "allOf"}
        for branch in schema["allOf"]:
            whole = self._merged(whole, branch, "")
        return whole

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Json:
        types = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else "string")
        kind = types[0] if isinstance(types, list) else types
        match kind:
            case "object":
                properties = schema.get("properties", {})
                names = dict.fromkeys([*properties, *schema.get("required", ())])
                return {name: self.of(properties.get(name, {}), depth - 1) for name in names}
            case "array":
                return self._array(schema, depth)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return _text(schema)

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Json]:
        items = schema.get("items", {})
        first = [self.of(item, depth - 1) for item in schema.get("prefixItems", ())]
        wanted = max(1, min(int(schema.get("minItems", 1)), MAX_ITEMS))
        if schema.get("maxItems") == 0 or items is False:
            return first
        return first + [self.of(items, depth - 1) for _ in range(wanted - len(first))]


def _number(schema: Mapping[str, Any], *, whole: bool) -> float:
    step = schema.get("multipleOf", 1)
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if above is not None and not isinstance(above, bool):
        value = (above // step + 1) * step
    elif low is not None:
        value = -(-low // step) * step
    elif high is not None:
        value = min(step, high // step * step)
    elif below is not None and not isinstance(below, bool):
        value = min(step, (below - step) // step * step)
    else:
        value = step
    return int(value) if whole else value


def _text(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(schema.get("format", ""), _UNKNOWN)
    return text.ljust(min(int(schema.get("minLength", 0)), MAX_TEXT), _UNKNOWN)
