"""Known secrets, and taking them out of what is written down."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "[redacted]"
_SHORTEST = 8
"""A shorter value is no secret worth the false hits it would make."""


class Redactor:
    """Replaces every known secret, also in its base64, URL and JSON forms. Works on whole lines."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        joined = "|".join(re.escape(form) for form in longest_first)
        self._text = re.compile(joined) if forms else None
        self._bytes = re.compile(joined.encode(errors="surrogateescape")) if forms else None

    def text(self, text: str) -> str:
        return text if self._text is None else self._text.sub(MASK, text)

    def line(self, line: bytes) -> bytes:
        return line if self._bytes is None else self._bytes.sub(MASK.encode(), line)


def _forms(secret: str) -> set[str]:
    raw = secret.encode(errors="surrogateescape")
    quoted = quote(raw, safe="")
    plain = {secret, quote(raw), quoted, quoted.replace("%20", "+")}
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    return plain | escaped | {form for shift in range(3) for form in _base64_forms(raw, shift)}


def _base64_forms(raw: bytes, shift: int) -> set[str]:
    """The letters that depend on the secret alone when it stands `shift` bytes behind a group of three."""
    shifted = bytes(shift) + raw
    first, end = -(-shift * 8 // 6), len(shifted) * 8 // 6
    return {encode(shifted).decode()[first:end] for encode in (base64.b64encode, base64.urlsafe_b64encode)}
