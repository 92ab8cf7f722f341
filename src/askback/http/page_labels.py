"""Labels for the host names of the page: one for each valid token, and secret like it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

from askback.core.errors import Unavailable

_CHARACTERS = 26
"""130 bits in base32."""


class PageLabels:
    """The labels of valid tokens."""

    def __init__(self, key: bytes, *, digests: Callable[[], frozenset[str]], is_valid: Callable[[str], bool]) -> None:
        self._key = key
        self._digests = digests
        """Of all tokens, possibly including expired ones."""
        self._is_valid = is_valid
        self._cached: tuple[frozenset[str], dict[str, str]] = (frozenset(), {})
        """The digests at the last check, and the same by label."""

    def of(self, token_digest: str) -> str:
        mac = hmac.new(self._key, b"askback page name\0" + token_digest.encode(), hashlib.sha256).digest()
        return base64.b32encode(mac).decode().lower()[:_CHARACTERS]

    def has(self, label: str) -> bool:
        """Whether it is the label of a valid token."""
        token_digest = self._cached[1].get(label) or self._current().get(label)
        return token_digest is not None and self._is_valid(token_digest)

    def _current(self) -> dict[str, str]:
        """Computed again only if the tokens have changed: anybody can send unknown labels."""
        digests, by_label = self._cached
        try:
            found = self._digests()
        except Unavailable:
            # Those of before; which of them are valid is asked for each.
            return by_label
        if found != digests:
            by_label = {self.of(each): each for each in found}
            self._cached = (found, by_label)
        return by_label
