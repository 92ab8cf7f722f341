"""Tokens: the server's own, made on first start, and further ones with fewer rights. Only digests of those are kept."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from askback.core.errors import Invalid, NotFound, RefusalCode, Unavailable
from askback.files.atomic import write_beside
from askback.files.record_file import RecordFile
from askback.http.auth import AccessScope, Grant, digest

log = logging.getLogger(__name__)

_SHORTEST_SECRET = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A further token, as it is kept."""

    name: str
    digest: str
    scopes: tuple[AccessScope, ...]
    created_at: datetime
    expires_at: datetime | None = None


class Tokens:
    """The further tokens of one data folder; a change is seen by a running server at its next request."""

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self._file = RecordFile(path, Token)
        self._clock = clock

    def find(self, token_digest: str) -> Grant | None:
        """Whom it belongs to, unless it has expired."""
        try:
            token = self._file.read().get(token_digest)
        except Unavailable as error:
            # Nobody is let in by a file that cannot be read; the server's own token is not in it.
            log.error("the further tokens cannot be used: %s", error.message)
            return None
        if token is None or (token.expires_at is not None and token.expires_at <= self._clock()):
            return None
        return Grant(name=token.name, scopes=frozenset(token.scopes), token_digest=token_digest)

    def digests(self) -> frozenset[str]:
        """Of all tokens, expired ones included; none if the file cannot be read."""
        try:
            return frozenset(self._file.read())
        except Unavailable:
            return frozenset()

    def all(self) -> list[Token]:
        return sorted(self._file.read().values(), key=lambda token: token.created_at)

    def make(self, name: str, scopes: tuple[AccessScope, ...], expires_at: datetime | None) -> str:
        """A new token; it is shown this once."""
        text = f"askback_{secrets.token_urlsafe(32)}"
        with self._file.changing() as tokens:
            if name == "main" or any(token.name == name for token in tokens.values()):
                raise Invalid(
                    RefusalCode.INPUT_INVALID, f"there is a token {name!r} already; revoke it or name this one else"
                )
            tokens[digest(text)] = Token(
                name=name, digest=digest(text), scopes=scopes, created_at=self._clock(), expires_at=expires_at
            )
        return text

    def revoke(self, name: str) -> None:
        """It ends at once, with its browser sessions and its links."""
        with self._file.changing() as tokens:
            found = next((token for token in tokens.values() if token.name == name), None)
            if found is None:
                known = ", ".join(token.name for token in tokens.values()) or "none"
                raise NotFound(RefusalCode.TOKEN_NOT_FOUND, f"there is no token {name!r}; there are: {known}")
            del tokens[found.digest]


def kept_secret(path: Path) -> str:
    """A secret of 256 bits in a file that only the user can read; made when it is not there."""
    with suppress(FileNotFoundError):
        return _read_secret(path)
    fresh = write_beside(path, f"{secrets.token_urlsafe(32)}\n".encode())
    # Of two programs that start at once, both go on with the secret of the first.
    with suppress(FileExistsError):
        os.link(fresh, path)
    fresh.unlink()
    return _read_secret(path)


def _read_secret(path: Path) -> str:
    secret = path.read_text().strip()
    if len(secret) < _SHORTEST_SECRET:
        message = f"{path} holds no secret, or a short one; remove it, and a new one is made at the next start"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
    return secret
