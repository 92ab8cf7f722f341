"""Known secrets, and taking them out of what is written down."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

MASK = "[redacted]"
_SHORTEST = 8
"""A shorter value is no secret worth the false hits it would make."""
_SHORTEST_ANSWER = 4
"""What a person gave as a secret is masked from this length on, but not in base64, which would hit too much."""

# Runs of backslashes are shortened first: an expression that matched runs itself would take quadratic time on a long one.
_RUN = re.compile(r"\\{2,}")
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_AS_LETTERS = str.maketrans("\b\f\n\r\t", "bfnrt", "\\")
_DEEPEST = 8
"""An escape may itself be written with escapes."""
_CONTROLS = re.compile(r"[\x00-\x1f]")


class Redactor:
    """Replaces every known secret, also in its base64, URL and JSON forms, however its characters are escaped."""

    def __init__(self, secrets: Iterable[str], answers: Iterable[str] = ()) -> None:
        answers = [answer for answer in answers if len(answer) >= _SHORTEST_ANSWER]
        self._answers = frozenset(answers)
        long = [secret for secret in (*secrets, *answers) if len(secret) >= _SHORTEST]
        forms = {form for secret in long for form in _forms(secret)}
        forms |= {form for answer in answers for form in _plain_forms(answer)}
        self._text = _longest_first(forms)
        self._plain = _longest_first(_unescaped(form) for form in forms)
        self._bytes = tuple(form.encode(errors="surrogateescape") for form in self._text)

    def text(self, text: str) -> str:
        """The text without secrets. Where one is hidden behind escapes, the escapes are written out as well."""
        for form in self._text:
            text = text.replace(form, MASK)
        if not self._plain or not _may_hide(text):
            return text
        plain = _unescaped(text)
        if not any(form in plain for form in self._plain):
            return text
        for form in self._plain:
            plain = plain.replace(form, MASK)
        return plain

    def line(self, line: bytes) -> bytes:
        """The same for a line of output, which stays one line."""
        for form in self._bytes:
            line = line.replace(form, MASK.encode())
        if not self._plain or b"\\" not in line:
            return line
        text = line.decode(errors="surrogateescape")
        masked = self.text(text)
        return line if masked == text else _CONTROLS.sub(" ", masked).encode(errors="replace")

    def value(self, value: Any) -> Any:
        """The same for every text in a JSON value, and for numbers that were given as a secret."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.value(each) for each in value)
        if isinstance(value, int | float) and str(value) in self._answers:
            return MASK
        return value


def texts_in(value: Any) -> Iterator[str]:
    """Every text and number in a JSON value, as a secret answer may hold several."""
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
    """Each is searched for by itself: one expression for all would hold up other threads for the length of the text."""
    return tuple(sorted({form for form in forms if form}, key=lambda form: (-len(form), form)))


def _may_hide(text: str) -> bool:
    """Whether a character could be written in another way than the known forms have it."""
    return "\\u" in text or "\\/" in text or "\\\\" in text


def _unescaped(text: str) -> str:
    """The text for a search: escapes by number undone, a line break as `n` like its escape, and no backslashes.

    A secret and a text that holds it read the same afterwards, however its characters are escaped and nested.
    """
    for _ in range(_DEEPEST):
        before = text = _RUN.sub(r"\\", text)
        text = _PAIR.sub(lambda found: _joined(int(found[1], 16), int(found[2], 16)), text)
        text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
        if text == before:
            break
    return text.translate(_AS_LETTERS)


def _joined(high: int, low: int) -> str:
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _plain_forms(secret: str) -> set[str]:
    return {secret, *(json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))}


def _forms(secret: str) -> set[str]:
    raw = secret.encode(errors="surrogateescape")
    quoted = quote(raw, safe="")
    linked = {quote(raw), quoted, quoted.replace("%20", "+")}
    return _plain_forms(secret) | linked | {form for shift in range(3) for form in _base64_forms(raw, shift)}


def _base64_forms(raw: bytes, shift: int) -> set[str]:
    """The letters that depend on the secret alone when it stands `shift` bytes behind a group of three."""
    shifted = bytes(shift) + raw
    first, end = -(-shift * 8 // 6), len(shifted) * 8 // 6
    return {encode(shifted).decode()[first:end] for encode in (base64.b64encode, base64.urlsafe_b64encode)}
