"""The texts that an engine is given: what to do, where to leave files, how to ask and how to finish. Pure.

No text begins with a character that a CLI could take for a command, an option or a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from askback.core.interactions import Interaction, InteractionOutcome, Json
from askback.core.runs import Mode, RunRequest
from askback.skills.checkers import Checker
from askback.skills.package import SkillPackage
from askback.skills.samples import sample

MARKER = "__SKILL_DONE__"
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
        "`response_schema` (a flat JSON Schema). "
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
