"""A question on the terminal: how it is shown, and what a typed line means as its answer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from askback.cli.text import printable
from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.skills.schemas import fits_reply, typed_value


class Abandoned(Exception):
    """The terminal was closed, or the user ended the input (Ctrl-D)."""


def read_answer(interaction: Interaction, line: str) -> Json:
    """What a line means: an option by number, label or value; the default when empty; else the text itself."""
    text = line.strip("\r\n")
    if not text.strip() and interaction.default is not None:
        return interaction.default
    for option in interaction.options:
        if text.strip() in (option_label(option), str(option_value(option))):
            return option_value(option)
    if interaction.options and text.strip().isdecimal() and 1 <= int(text) <= len(interaction.options):
        return option_value(interaction.options[int(text) - 1])
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


def show(interaction: Interaction, write: Callable[[str], None]) -> None:
    write("")
    for line in printable(interaction.prompt).splitlines() or [""]:
        write(f"  ? {line}")
    if interaction.context:
        context = interaction.context if isinstance(interaction.context, str) else json.dumps(interaction.context)
        write(f"    {printable(context)}")
    for number, option in enumerate(interaction.options, 1):
        default = "  (default)" if _is_default(interaction, option) else ""
        write(f"    {number}) {printable(option_label(option))}{default}")


def _is_default(interaction: Interaction, option: Json) -> bool:
    return interaction.default is not None and interaction.default in (option_value(option), option_label(option))


def hint(interaction: Interaction) -> str:
    """The line in front of the cursor."""
    parts = []
    if interaction.options:
        parts.append(f"1-{len(interaction.options)} or your own words")
    if interaction.default is not None:
        parts.append(f"Enter for {printable(_short(interaction.default))}")
    if interaction.secret:
        parts.append("not shown")
    return f"  Your answer ({', '.join(parts)}): " if parts else "  Your answer: "


def _short(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def ask(interaction: Interaction, write: Callable[[str], None], gone: Callable[[], Awaitable[None]]) -> Json:
    """Ask until the answer fits. Returns None when the question was settled elsewhere meanwhile."""
    show(interaction, write)
    while True:
        response = await _ask_once(interaction, gone)
        if response is None:
            return None
        if response == "":
            write("    an answer is needed (Ctrl-D leaves the run waiting, Ctrl-C cancels it)")
            continue
        problems = fits_reply(interaction, response)
        if not problems:
            return response
        for problem in problems:
            write(f"    {printable(problem)}")


async def _ask_once(interaction: Interaction, gone: Callable[[], Awaitable[None]]) -> Json:
    if interaction.response_schema is not None and not interaction.options:
        return await _ask_fields(interaction, gone)
    line = await read_line(hint(interaction), secret=interaction.secret, gone=gone)
    return None if line is None else read_answer(interaction, line)


async def _ask_fields(interaction: Interaction, gone: Callable[[], Awaitable[None]]) -> dict[str, Json] | None:
    """One line for each field of the question's schema; an empty line leaves out what is not required."""
    schema: dict[str, Any] = interaction.response_schema or {}
    fields: dict[str, Json] = {}
    for name, field in schema.get("properties", {}).items():
        line = await read_line(_field_hint(name, field), secret=interaction.secret, gone=gone)
        if line is None:
            return None
        text = line.strip("\r\n")
        if text or name in schema.get("required", ()):
            fields[name] = typed_value(text, field)
        elif "default" in field:
            fields[name] = field["default"]
    return fields


def _field_hint(name: str, field: dict[str, Any]) -> str:
    title = printable(str(field.get("title") or name))
    details = [printable(str(field[key])) for key in ("description", "type") if key in field]
    if choices := field.get("enum"):
        details.append(" | ".join(printable(str(choice)) for choice in choices))
    if "default" in field:
        details.append(f"Enter for {printable(_short(field['default']))}")
    return f"    {title} ({', '.join(details)}): " if details else f"    {title}: "


async def read_line(prompt: str, *, secret: bool, gone: Callable[[], Awaitable[None]]) -> str | None:
    """A line from the terminal, or None when `gone` ends first. No thread is left reading."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    with _echo(not secret):
        reading = asyncio.ensure_future(_line(sys.stdin.fileno()))
        leaving = asyncio.ensure_future(gone())
        try:
            done, _ = await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            line = reading.result() if reading in done else None
        finally:
            reading.cancel()
            leaving.cancel()
    if secret or line is None:
        sys.stderr.write("\n")
    return line


async def _line(fd: int) -> str:
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()
    collected = bytearray()

    def take() -> None:
        # A terminal hands over one line at a time; a long one comes in pieces.
        chunk = os.read(fd, 4096)
        collected.extend(chunk)
        if (not chunk or chunk.endswith(b"\n")) and not typed.done():
            typed.set_result(bytes(collected))

    loop.add_reader(fd, take)
    try:
        data = await typed
    finally:
        loop.remove_reader(fd)
    if not data:
        sys.stderr.write("\n")
        raise Abandoned
    return data.decode(errors="replace")


@contextmanager
def _echo(wanted: bool) -> Iterator[None]:
    if wanted:
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
