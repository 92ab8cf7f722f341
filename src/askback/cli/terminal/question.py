"""A question on the terminal: how it is shown, and what a typed answer means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext

from askback.cli.terminal.fields import (
    SAY_YES_OR_NO,
    Write,
    as_flag,
    ask_fields,
    field_problems,
    value_of,
    yes_or_no,
)
from askback.cli.terminal.forms import ask_form, form_lines
from askback.cli.terminal.prompt import (
    ANSWER_NEEDED,
    MAX_PLAIN_LINE,
    Settled,
    TooLong,
    discard_typed,
    echo_off,
    read_line,
)
from askback.cli.terminal.values import in_words, kind_of, numbered, readable
from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.skills.validation import reply_problems
from askback.text.formatting import printable
from askback.wire import runs as wire

_MAX_DIGITS = 9
_LATER = "Ctrl-D: answer later"
_KEYS = f"{_LATER}; Alt-Enter: new line"
_YES_OR_NO = {"y": "yes", "yes": "yes", "n": "no", "no": "no"}


def read_answer(interaction: Interaction, line: str) -> Json:
    """An option by number, label or value; the default for an empty line; otherwise what the schema makes of the text."""
    text = line.strip("\r\n")
    word = text.strip()
    if _is_confirmation(interaction):
        flag = as_flag(interaction.default)
        return _YES_OR_NO.get(word.lower(), text) if word or flag is None else "yes" if flag else "no"
    if not word and interaction.default is not None:
        return interaction.default
    for option in interaction.options:
        if word in (option_label(option), str(option_value(option))):
            return option_value(option)
    if word.isdecimal() and len(word) <= _MAX_DIGITS and 1 <= int(word) <= len(interaction.options):
        return option_value(interaction.options[int(word) - 1])
    return _structured(interaction, text)


def _structured(interaction: Interaction, text: str) -> Json:
    """Parse a scalar by its type; parse a JSON object if the schema is that of an object."""
    schema = interaction.response_schema
    if schema is None:
        return text
    if schema.get("type") != "object":
        return value_of(text, schema) if text.strip() else schema.get("default", text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _is_confirmation(interaction: Interaction | wire.Interaction) -> bool:
    """Answered with the words yes or no. A question with a boolean schema is answered with true or false."""
    return interaction.kind == "confirm" and not interaction.options and interaction.response_schema is None


def is_form(interaction: Interaction) -> bool:
    """Whether the question is asked field by field."""
    return (interaction.response_schema or {}).get("type") == "object" and not interaction.options


def refusal(interaction: Interaction, line: str) -> str | None:
    """Why a line cannot be meant as an answer."""
    word = line.strip()
    if _is_confirmation(interaction):
        return SAY_YES_OR_NO if word and word.lower() not in _YES_OR_NO else None
    names = [name for each in interaction.options for name in (option_label(each), str(option_value(each)))]
    is_number = word.isdecimal() and len(word) <= _MAX_DIGITS
    # Where options are numbers, another number is an answer in the user's own words.
    if not names or not is_number or any(name.isdecimal() for name in names):
        return None
    last = len(interaction.options)
    return None if 1 <= int(word) <= last else f"there is no option {word}; choose {_numbers(last)}, or answer in words"


def _numbers(last: int) -> str:
    return "1" if last == 1 else f"1-{last}"


def show(interaction: Interaction, write: Write, *, listed: bool = True) -> None:
    """`listed`: with the questions of a form."""
    write("")
    for line in printable(interaction.prompt).splitlines() or [""]:
        write(f"  ? {line}")
    if interaction.context:
        for line in printable(readable(interaction.context)).splitlines():
            write(f"    {line}")
    for number, option in enumerate(interaction.options, 1):
        write(f"    {number}) {_option(interaction, option)}")
    for line in form_lines(interaction.questions if listed else ()):
        write(f"    {line}")
    if not interaction.options:
        for line in numbered(interaction.response_schema or {}):
            write(f"    {line}")


def _option(interaction: Interaction, option: Json) -> str:
    line = printable(option_label(option))
    if isinstance(option, Mapping) and option.get("description"):
        line += f": {printable(str(option['description']))}"
    default = interaction.default
    is_default = default is not None and default in (option_value(option), option_label(option))
    return f"{line}  (default)" if is_default else line


def choice_of_two(interaction: Interaction | wire.Interaction) -> str | None:
    """`[y/n]` with the default as a capital letter, for a question that is answered with yes or no."""
    schema = interaction.response_schema or {}
    if interaction.options or not (_is_confirmation(interaction) or schema.get("type") == "boolean"):
        return None
    return yes_or_no(interaction.default if interaction.default is not None else schema.get("default"))


def hint(interaction: Interaction) -> str:
    """The line in front of the cursor."""
    parts = []
    schema = interaction.response_schema
    if interaction.options:
        numbers = _numbers(len(interaction.options))
        parts.append(f"{numbers} or your own words" if schema is None else numbers)
    elif letters := choice_of_two(interaction):
        return f"  Your answer {letters}: "
    elif schema is not None:
        parts.append(kind_of(schema))
    if interaction.default is not None:
        parts.append(f"Enter for {printable(readable(interaction.default, schema))}")
    if interaction.secret:
        parts.append("not shown")
    return f"  Your answer ({', '.join(parts)}): " if parts else "  Your answer: "


def _takes_lines(interaction: Interaction) -> bool:
    """Whether the answer may be a text of several lines, and this terminal can edit them."""
    from askback.cli.terminal.line_editor import is_dumb_terminal

    is_text = not (interaction.options or interaction.response_schema or interaction.secret)
    return is_text and not _is_confirmation(interaction) and not is_dumb_terminal()


def how_to_answer(run_id: str, asked: Interaction | wire.Interaction | None) -> str:
    return f"run {run_id} waits for an answer; answer with: {reply_command(run_id, asked)}"


def reply_command(run_id: str, asked: Interaction | wire.Interaction | None) -> str:
    """The command that answers a question. It asks for secrets, which the shell would keep, and for forms."""
    schema = (asked.response_schema if asked else None) or {}
    asks = asked is not None and (asked.secret or schema.get("type") == "object")
    answer = "yes" if asked is not None and choice_of_two(asked) else "TEXT"
    return f"askback reply {printable(run_id)}" + ("" if asks else f" {answer}")


async def ask(interaction: Interaction, write: Write, settled: Settled, *, can_leave: bool = True) -> Json:
    """Ask until the answer is valid. Returns None if the question was settled elsewhere.

    `can_leave`: whether the run waits if the user leaves.
    """
    with echo_off() if interaction.secret else nullcontext():
        show(interaction, write, listed=False)
        if can_leave:
            write(f"    ({_KEYS})" if _takes_lines(interaction) else f"    ({_LATER})")
        discard_typed()
        return await _until_valid(interaction, write, settled)


async def _until_valid(interaction: Interaction, write: Write, settled: Settled) -> Json:
    while True:
        try:
            response = await _ask_once(interaction, write, settled)
        except TooLong:
            write(
                f"    this terminal cuts a line after {MAX_PLAIN_LINE:,} bytes; for a longer answer, press Ctrl-D, then:"
            )
            write("    askback reply RUN < FILE")
            continue
        if response is None:
            return None
        problems = _problems(interaction, response)
        if not problems:
            return response
        for problem in problems:
            write(f"    {printable(problem)}")


def _problems(interaction: Interaction, response: Json) -> tuple[str, ...]:
    if response == "":
        return (ANSWER_NEEDED,)
    if isinstance(response, str) and (why_not := refusal(interaction, response)):
        return (why_not,)
    schema = interaction.response_schema
    if schema is None or interaction.options or schema.get("type") == "object":
        return tuple(in_words(problem, schema) for problem in reply_problems(interaction, response))
    return field_problems(response, schema)


async def _ask_once(interaction: Interaction, write: Write, settled: Settled) -> Json:
    if interaction.questions:
        return await ask_form(interaction, write, settled)
    if is_form(interaction):
        schema = interaction.response_schema or {}
        return await ask_fields(schema, interaction.default, write, settled, secret=interaction.secret)
    line = await read_line(hint(interaction), secret=interaction.secret, settled=settled)
    return None if line is None else read_answer(interaction, line)
