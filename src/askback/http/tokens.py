"""Tokens: the server's own, created at the first start, and further ones with scopes, stored as digests."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from askback.core.errors import Invalid, NotFound, RefusalCode, Unavailable
from askback.core.labels import check_labels
from askback.core.token_names import check_token_name
from askback.files.atomic import RecordFile, write_beside
from askback.http.auth import AccessScope, Grant, digest

log = logging.getLogger(__name__)

_MIN_SECRET_LENGTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A stored further token."""

    name: str
    digest: str
    scopes: tuple[AccessScope, ...]
    created_at: datetime
    expires_at: datetime | None = None
    labels: dict[str, str] = field(default_factory=dict)
    """If there are any, the token is restricted to runs that have all of them."""


class Tokens:
    """The further tokens of one data folder. A running server sees changes at its next request."""

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self._file = RecordFile(path, Token)
        self.clock = clock

    def find(self, token_digest: str) -> Grant | None:
        """The grant of the token, unless it has expired."""
        try:
            token = self._file.read().get(token_digest)
        except Unavailable as error:
            # The server's own token is not in this file and stays valid.
            log.error("cannot read the further tokens: %s", error.message)
            return None
        if token is None or (token.expires_at is not None and token.expires_at <= self.clock()):
            return None
        return Grant(name=token.name, scopes=frozenset(token.scopes), token_digest=token_digest, labels=token.labels)

    def digests(self) -> frozenset[str]:
        """The digests of all tokens, including expired ones; none if the file cannot be read."""
        try:
            return frozenset(self._file.read())
        except Unavailable:
            return frozenset()

    def all(self) -> list[Token]:
        return sorted(self._file.read().values(), key=lambda token: token.created_at)

    def named(self, name: str) -> Token:
        """The token with this name, which may have expired."""
        tokens = self._file.read().values()
        found = next((token for token in tokens if token.name == name), None)
        if found is None:
            known = ", ".join(token.name for token in tokens) or "none"
            raise NotFound(RefusalCode.TOKEN_NOT_FOUND, f"there is no token {name!r}; known: {known}")
        return found

    def make(
        self,
        name: str,
        scopes: tuple[AccessScope, ...],
        expires_at: datetime | None,
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """Create a token, restricted to runs with these labels if there are any. The text is only available here."""
        check_token_name(name)
        fixed = dict(labels or {})
        check_labels(fixed)
        if fixed and AccessScope.ADMIN in scopes:
            message = "a token with the scope 'admin' cannot be restricted to labels; choose other scopes"
            raise Invalid(RefusalCode.INPUT_INVALID, message)
        text = f"askback_{secrets.token_urlsafe(32)}"
        with self._file.changing() as tokens:
            self._drop_expired(tokens, name)
            if any(token.name == name for token in tokens.values()):
                raise Invalid(
                    RefusalCode.INPUT_INVALID, f"there is already a token {name!r}; revoke it, or choose another name"
                )
            tokens[digest(text)] = Token(
                name=name,
                digest=digest(text),
                scopes=scopes,
                created_at=self.clock(),
                expires_at=expires_at,
                labels=fixed,
            )
        return text

    def _drop_expired(self, tokens: dict[str, Token], name: str) -> None:
        """The name of an expired token is free again."""
        for each in [each for each in tokens.values() if each.name == name]:
            if each.expires_at is not None and each.expires_at <= self.clock():
                del tokens[each.digest]

    def revoke(self, name: str) -> None:
        """Revoke the token with its browser sessions and links, at once."""
        with self._file.changing() as tokens:
            del tokens[self.named(name).digest]


def stored_secret(path: Path) -> str:
    """A 256-bit secret in a file that only the user can read. Created if missing."""
    with suppress(FileNotFoundError):
        return _read_secret(path)
    fresh = write_beside(path, f"{secrets.token_urlsafe(32)}\n".encode())
    # If two programs start at once, both use the secret of the first.
    with suppress(FileExistsError):
        os.link(fresh, path)
    fresh.unlink()
    return _read_secret(path)


def _read_secret(path: Path) -> str:
    secret = path.read_text().strip()
    if len(secret) < _MIN_SECRET_LENGTH:
        message = f"{path} contains no secret, or one that is too short; remove the file to create a new one at the next start"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
    return secret
