"""A question on the terminal: how it is shown, and what a typed line means as its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext

from askback.cli.fields import ask_fields
from askback.cli.line import ANSWER_NEEDED, LONGEST, Gone, TooLong, forget_typed, read_line, unseen
from askback.cli.text import printable
from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.skills.schemas import fits_reply

Write = Callable[[str], None]

_MOST_DIGITS = 9


def read_answer(interaction: Interaction, line: str) -> Json:
    """What a line means: an option by number, label or value; the default when empty; else the text itself."""
    text = line.strip("\r\n")
    word = text.strip()
    if not word and interaction.default is not None:
        return interaction.default
    for option in interaction.options:
        if word in (option_label(option), str(option_value(option))):
            return option_value(option)
    if word.isdecimal() and len(word) <= _MOST_DIGITS and 1 <= int(word) <= len(interaction.options):
        return option_value(interaction.options[int(word) - 1])
    return _structured(interaction, text)


def _structured(interaction: Interaction, text: str) -> Json:
    """An answer in JSON counts as such where the question has a schema that it fits."""
    if interaction.response_schema is None:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) or fits_reply(interaction, value) else value


def show(interaction: Interaction, write: Write) -> None:
    write("")
    for line in printable(interaction.prompt).splitlines() or [""]:
        write(f"  ? {line}")
    if interaction.context:
        for line in printable(_short(interaction.context)).splitlines():
            write(f"    {line}")
    for number, option in enumerate(interaction.options, 1):
        write(f"    {number}) {_option(interaction, option)}")


def _option(interaction: Interaction, option: Json) -> str:
    line = printable(option_label(option))
    if isinstance(option, Mapping) and option.get("description"):
        line += f": {printable(str(option['description']))}"
    default = interaction.default
    is_default = default is not None and default in (option_value(option), option_label(option))
    return f"{line}  (default)" if is_default else line


def hint(interaction: Interaction) -> str:
    """The line in front of the cursor."""
    parts = []
    if interaction.options:
        numbers = "1" if len(interaction.options) == 1 else f"1-{len(interaction.options)}"
        parts.append(f"{numbers} or your own words")
    if interaction.default is not None:
        parts.append(f"Enter for {printable(_short(interaction.default))}")
    if interaction.secret:
        parts.append("not shown")
    return f"  Your answer ({', '.join(parts)}): " if parts else "  Your answer: "


def _short(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def ask(interaction: Interaction, write: Write, gone: Gone) -> Json:
    """Ask until the answer fits. Returns None when the question was settled elsewhere meanwhile."""
    with unseen() if interaction.secret else nullcontext():
        show(interaction, write)
        forget_typed()
        return await _until_it_fits(interaction, write, gone)


async def _until_it_fits(interaction: Interaction, write: Write, gone: Gone) -> Json:
    while True:
        try:
            response = await _ask_once(interaction, write, gone)
        except TooLong:
            write(f"    a terminal takes {LONGEST:,} bytes of a line and no more; answer a longer one with:")
            write("    Ctrl-D, then askback reply RUN < FILE")
            continue
        if response is None:
            return None
        problems = fits_reply(interaction, response) if response != "" else (ANSWER_NEEDED,)
        if not problems:
            return response
        for problem in problems:
            write(f"    {printable(problem)}")


async def _ask_once(interaction: Interaction, write: Write, gone: Gone) -> Json:
    if interaction.response_schema is not None and not interaction.options:
        return await ask_fields(interaction, write, gone)
    line = await read_line(hint(interaction), secret=interaction.secret, gone=gone)
    return None if line is None else read_answer(interaction, line)
