"""The marker by which an engine says that the skill is done: where it counts, and how it is taken out.

It counts as a bare word anywhere in a message, and as a JSON key that is true. A word in quotes is talked about, not
said; so is one in backticks, unless it ends a line on its own or after a whole sentence.
"""

from __future__ import annotations

import re

from askback.core.interactions import Json

MARKER = "__SKILL_DONE__"

_QUOTES, _CLOSING_QUOTES = "\"'`“‘«", "\"'`”’»"
_DRESS = rf"[\s*.!{_QUOTES}{_CLOSING_QUOTES}]*"
# Within a JSON string a line break is spelled `\n`, which ends in a letter.
_WORD = rf"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])){MARKER}(?![A-Za-z0-9_])"
_BARE = re.compile(rf"(?!(?<=[{_QUOTES}]){MARKER}\\?[{_CLOSING_QUOTES}]){_WORD}")
_IN_BACKTICKS = re.compile(rf"(?:^|(?<=[.!?。！？]))[ \t*]*`+{MARKER}`+[ \t*.]*$", re.MULTILINE)
_NOTHING_ELSE = re.compile(rf"{_DRESS}{MARKER}{_DRESS}")
_KEY = re.compile(rf'"{MARKER}"\s*:\s*true\b')
_KEY_ALONE = re.compile(rf'(?:```(?:json)?\s*)?\{{\s*"{MARKER}"\s*:\s*true\s*\}}(?:\s*```)?')
# What is left of a line that held only the marker: `**…**`, `<!-- … -->`, a list's dash.
_EMPTY_LINE = re.compile(r"[ \t]*+(?:[*`>#-]++|<!--[ \t]*+-->)?+\s*+")


def is_done(text: str) -> bool:
    """The text says that the skill is done."""
    if MARKER not in text:
        return False
    return any(pattern.search(text) for pattern in (_BARE, _IN_BACKTICKS, _KEY)) or bool(_NOTHING_ELSE.fullmatch(text))


def without_marker(text: str) -> str:
    """The text without the marker; a line that held nothing else goes with it. Keys of larger objects stay."""
    if MARKER not in text:
        return text
    if _NOTHING_ELSE.fullmatch(text):
        return ""
    lines = (_cut_line(line) for line in _KEY_ALONE.sub("", text).split("\n"))
    return "\n".join(line for line in lines if line is not None)


def _cut_line(line: str) -> str | None:
    if MARKER not in line:
        return line
    rest = _BARE.sub("", _IN_BACKTICKS.sub("", line))
    if rest == line:
        return line
    return None if _EMPTY_LINE.fullmatch(rest) else rest.rstrip()


def is_key_alone(text: str) -> bool:
    """Somewhere in the text an object holds the marker and nothing else."""
    return MARKER in text and _KEY_ALONE.search(text) is not None


def is_marked(value: Json) -> bool:
    """The value says by itself that it is the result."""
    return isinstance(value, dict) and value.get(MARKER) is True


def without_key(value: Json) -> Json:
    """The value without the marker's keys, whatever they hold: they are never a part of the data."""
    if isinstance(value, list):
        return [without_key(item) for item in value]
    if isinstance(value, dict):
        return {key: without_key(item) for key, item in value.items() if key != MARKER}
    return value
