"""Tokens with scopes, stored as digests. The server's own token is a secret of `fs.records`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from askback.access.grants import Grant, digest
from askback.core.access import AccessScope, check_token_name
from askback.core.errors import Invalid, NotFound, RefusalCode
from askback.core.labels import check_labels
from askback.fs.records import Records


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
    """The further tokens. A running server sees a change in a file at its next request, one in a database within seconds."""

    def __init__(self, records: Records, clock: Callable[[], datetime]) -> None:
        self._stored = records.collection("tokens", Token)
        self.clock = clock

    def find(self, token_digest: str) -> Grant | None:
        """The grant of the token, unless it has expired. Raises `Unavailable` if the tokens cannot be read."""
        token = self._stored.read().get(token_digest)
        if token is None or (token.expires_at is not None and token.expires_at <= self.clock()):
            return None
        return Grant(name=token.name, scopes=frozenset(token.scopes), token_digest=token_digest, labels=token.labels)

    def digests(self) -> frozenset[str]:
        """The digests of all tokens, including expired ones. Raises `Unavailable` if they cannot be read."""
        return frozenset(self._stored.read())

    def all(self) -> list[Token]:
        return sorted(self._stored.read().values(), key=lambda token: token.created_at)

    def named(self, name: str) -> Token:
        """The token with this name, which may have expired."""
        return _named(self._stored.read().values(), name)

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
        with self._stored.changing() as tokens:
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
        with self._stored.changing() as tokens:
            del tokens[_named(tokens.values(), name).digest]


def _named(tokens: Collection[Token], name: str) -> Token:
    found = next((token for token in tokens if token.name == name), None)
    if found is None:
        known = ", ".join(token.name for token in tokens) or "none"
        raise NotFound(RefusalCode.TOKEN_NOT_FOUND, f"there is no token {name!r}; known: {known}")
    return found
