"""Removes known secrets from text before it is stored or logged."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote

MASK = "[redacted]"
_SHORTEST = 8
"""Shorter values are not masked: they would cause too many false positives."""
_MIN_ANSWER = 4
"""The same for secret answers of a user. Below `_SHORTEST`, their base64, hexadecimal and URL forms are not masked."""

# Runs of backslashes are collapsed first: a pattern that matched the runs itself would take quadratic time.
_RUN = re.compile(r"\\{2,}")
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_HIDING = re.compile(r"\\[u/\\]|%[0-9a-fA-F]{2}")
_AS_LETTERS = str.maketrans("\b\f\n\r\t", "bfnrt", "\\")
_MAX_DEPTH = 8
"""How many levels of nested escapes are undone."""
_CONTROLS = re.compile(r"[\x00-\x1f]")


class Redactor:
    """Masks every known secret, including its base64, hexadecimal, URL and JSON forms, however its characters are escaped."""

    def __init__(self, secrets: Iterable[str], answers: Iterable[str] = ()) -> None:
        answers = [answer for answer in answers if len(answer) >= _MIN_ANSWER]
        self._answers = frozenset(answers)
        long = [secret for secret in (*secrets, *answers) if len(secret) >= _SHORTEST]
        forms = {form for secret in long for form in _forms(secret)}
        forms |= {form for answer in answers for form in _plain_forms(answer)}
        self._text = _longest_first(forms)
        self._plain = _longest_first(_unescaped(form) for form in forms)
        self._bytes = tuple(form.encode(errors="surrogateescape") for form in self._text)

    def text(self, text: str) -> str:
        """The text without secrets. If a secret is hidden by escapes, all escapes in the text are resolved."""
        for form in self._text:
            text = text.replace(form, MASK)
        # Without escapes, the known forms cover the text.
        if not self._plain or not _HIDING.search(text):
            return text
        plain = _unescaped(text)
        if not any(form in plain for form in self._plain):
            return text
        for form in self._plain:
            plain = plain.replace(form, MASK)
        return plain

    def line(self, line: bytes) -> bytes:
        """As `text`, for a line of output. The result is still one line."""
        for form in self._bytes:
            line = line.replace(form, MASK.encode())
        if not self._plain or (b"\\" not in line and b"%" not in line):
            return line
        text = line.decode(errors="surrogateescape")
        masked = self.text(text)
        return line if masked == text else _CONTROLS.sub(" ", masked).encode(errors="replace")

    def value(self, value: Any) -> Any:
        """As `text`, for every string in a JSON value. Numbers that are secret answers are masked as well."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.value(each) for each in value)
        if isinstance(value, int | float) and str(value) in self._answers:
            return MASK
        return value


def answer_secrets(answers: Iterable[Any]) -> tuple[str, ...]:
    """What is masked of secret answers: every text in them, without the space around it, and each of its lines."""
    found: dict[str, None] = {}
    for text in (text for answer in answers for text in texts_in(answer)):
        # Output is read line by line. A short line of a long text, such as a brace, is no secret.
        lines = (line for line in map(str.strip, text.splitlines()) if len(line) >= _SHORTEST)
        found |= dict.fromkeys((text, text.strip(), *lines))
    return tuple(found)


def texts_in(value: Any) -> Iterator[str]:
    """Every string and number in a JSON value: a secret answer may contain several."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_in(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _longest_first(forms: Iterable[str]) -> tuple[str, ...]:
    """Forms are searched one by one: a single pattern for all would hold the GIL for the whole text."""
    return tuple(sorted({form for form in forms if form}, key=lambda form: (-len(form), form)))


def _unescaped(text: str) -> str:
    r"""Normalize text for the search: `\uXXXX` and `%XX` are resolved, a line break becomes `n`, and backslashes are dropped.

    After this, a secret matches its occurrence in a text however its characters are escaped there.
    """
    for _ in range(_MAX_DEPTH):
        before = text = _RUN.sub(r"\\", text)
        text = _PAIR.sub(lambda found: json.loads(f'"{found[0]}"'), text)
        text = unquote(_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text), errors="surrogateescape")
        if text == before:
            break
    return text.translate(_AS_LETTERS)


def _plain_forms(secret: str) -> set[str]:
    return {secret, *(json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))}


def _forms(secret: str) -> set[str]:
    raw = secret.encode(errors="surrogateescape")
    quoted = quote(raw, safe="")
    linked = {quote(raw), quoted, quoted.replace("%20", "+")}
    encoded = {raw.hex(), raw.hex().upper(), *(form for shift in range(3) for form in _base64_forms(raw, shift))}
    return _plain_forms(secret) | linked | encoded


def _base64_forms(raw: bytes, shift: int) -> set[str]:
    """The base64 characters that depend only on the secret if it starts `shift` bytes into a 3-byte group."""
    shifted = bytes(shift) + raw
    first, end = -(-shift * 8 // 6), len(shifted) * 8 // 6
    return {encode(shifted).decode()[first:end] for encode in (base64.b64encode, base64.urlsafe_b64encode)}
