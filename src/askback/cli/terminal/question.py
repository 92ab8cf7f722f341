"""A question on the terminal: how it is shown, and what a typed answer means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

from askback.cli.terminal.forms import Write, ask_fields, ask_form, form_lines, yes_or_no
from askback.cli.terminal.prompt import (
    ANSWER_NEEDED,
    MAX_PLAIN_LINE,
    Settled,
    TooLong,
    discard_typed,
    echo_off,
    read_line,
)
from askback.core.interactions import Interaction, Json
from askback.questions.typed_answers import answer_problems, is_confirmation, option_numbers, read_answer
from askback.questions.view import is_form, view_of
from askback.skills.field_values import kind_of, numbered, readable
from askback.text.formatting import printable

_LATER = "Ctrl-D: answer later"
_KEYS = f"{_LATER}; Alt-Enter: new line"


def question_lines(interaction: Interaction, *, listed: bool = True) -> Iterator[str]:
    """The prompt, the context and the choices. `listed`: with the questions of a form."""
    view = view_of(interaction)
    yield from (f"  ? {line}" for line in view.prompt.splitlines() or [""])
    yield from (f"    {line}" for line in view.context.splitlines())
    for number, option in enumerate(view.options, 1):
        yield f"    {number}) {option.line}{'  (default)' if option.is_default else ''}"
    yield from (f"    {line}" for line in form_lines(interaction.questions if listed else ()))
    if not interaction.options:
        yield from (f"    {line}" for line in numbered(interaction.response_schema or {}))


def show(interaction: Interaction, write: Write, *, listed: bool = True) -> None:
    for line in ("", *question_lines(interaction, listed=listed)):
        write(line)


def yes_no_hint(interaction: Interaction) -> str | None:
    """`[y/n]` with the default as a capital letter, for a question that is answered with yes or no."""
    schema = interaction.response_schema or {}
    if interaction.options or not (is_confirmation(interaction) or schema.get("type") == "boolean"):
        return None
    return yes_or_no(interaction.default if interaction.default is not None else schema.get("default"))


def hint(interaction: Interaction) -> str:
    """The line in front of the cursor."""
    parts = []
    schema = interaction.response_schema
    if interaction.options:
        numbers = option_numbers(len(interaction.options))
        parts.append(f"{numbers} or your own words" if schema is None else numbers)
    elif letters := yes_no_hint(interaction):
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
    return is_text and not is_confirmation(interaction) and not is_dumb_terminal()


def how_to_answer(run_id: str, asked: Interaction | None) -> str:
    return f"run {run_id} waits for an answer; answer with: {reply_command(run_id, asked)}"


def reply_command(run_id: str, asked: Interaction | None) -> str:
    """The command that answers a question. It asks for forms, for secrets, which the shell would store, and for a yes or no."""
    schema = (asked.response_schema if asked else None) or {}
    asks = asked is not None and (asked.asks_secrets or schema.get("type") == "object" or yes_no_hint(asked))
    return f"askback reply {printable(run_id)}" + ("" if asks else " TEXT")


async def ask(interaction: Interaction, write: Write, settled: Settled, *, can_leave: bool = True) -> Json:
    """Ask until the answer is valid. None: settled elsewhere. `can_leave`: the run waits if the user leaves."""
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
        problems = answer_problems(interaction, response) if response != "" else (ANSWER_NEEDED,)
        if not problems:
            return response
        for problem in problems:
            write(f"    {printable(problem)}")


async def _ask_once(interaction: Interaction, write: Write, settled: Settled) -> Json:
    if interaction.questions:
        return await ask_form(interaction, write, settled)
    if is_form(interaction):
        schema = interaction.response_schema or {}
        return await ask_fields(schema, interaction.default, write, settled, secret=interaction.secret)
    line = await read_line(hint(interaction), secret=interaction.secret, settled=settled)
    return None if line is None else read_answer(interaction, line)
