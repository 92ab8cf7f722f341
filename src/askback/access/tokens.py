"""API tokens with scopes, stored as digests; the directory of all tokens; and when each was last used.

The server's own token is a secret of `fs.records`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from askback.access.grants import Grant, digest
from askback.background.loops import keep_trying
from askback.background.outages import OUTAGES
from askback.core.access import AccessScope, check_token_name
from askback.core.actors import Channel
from askback.core.errors import Invalid, NotFound, RefusalCode, Unavailable
from askback.core.labels import check_labels
from askback.core.permissions import read_policy
from askback.fs.records import Records

log = logging.getLogger(__name__)

_FLUSH_SEC = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    name: str
    digest: str
    scopes: tuple[AccessScope, ...]
    created_at: datetime
    expires_at: datetime | None = None
    labels: dict[str, str] = field(default_factory=dict)
    """If there are any, the token is restricted to runs that have all of them."""
    permissions: str | dict[str, Any] | None = None
    """A policy for the runs that it creates, as JSON or by its name."""


class Tokens:
    """The API tokens. A running server sees a change in a file at its next request, one in a database within seconds."""

    def __init__(self, records: Records, clock: Callable[[], datetime]) -> None:
        self._stored = records.collection("tokens", Token)
        self.clock = clock

    def find(self, token_digest: str) -> Grant | None:
        """The grant of the token, unless it has expired. Raises `Unavailable` if the tokens cannot be read."""
        token = self._stored.read().get(token_digest)
        if token is None or (token.expires_at is not None and token.expires_at <= self.clock()):
            return None
        return Grant(
            name=token.name,
            scopes=frozenset(token.scopes),
            token_digest=token_digest,
            labels=token.labels,
            permissions=read_policy(token.permissions, "permissions")[0],
        )

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
        permissions: Any = None,
    ) -> str:
        """Create a token, restricted to runs with these labels if there are any. The text is only available here."""
        check_token_name(name)
        fixed = dict(labels or {})
        check_labels(fixed)
        if fixed and AccessScope.ADMIN in scopes:
            message = "a token with the scope 'admin' cannot be restricted to labels; choose other scopes"
            raise Invalid(RefusalCode.INPUT_INVALID, message)
        if problems := read_policy(permissions, "permissions")[1]:
            raise Invalid(RefusalCode.INPUT_INVALID, "the policy of the token is not valid", problems)
        text = f"askback_{secrets.token_urlsafe(32)}"
        with self._stored.changing() as tokens:
            # A name can be used again after its token has expired.
            for each in [each for each in tokens.values() if each.name == name]:
                if each.expires_at is not None and each.expires_at <= self.clock():
                    del tokens[each.digest]
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
                permissions=permissions,
            )
        return text

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDirectory:
    """The server's own token, which allows everything, and the API tokens, by their digests.

    Tokens that cannot be read admit nobody. They are not revoked, either: what is bound to them must not be removed.
    """

    token: str
    api_tokens: Tokens

    def __call__(self, given: str) -> Grant | None:
        return self.admitted(digest(given)) if given else None

    def admitted(self, token_digest: str) -> Grant | None:
        """The grant of the token with this digest, if it is known to be valid."""
        try:
            return self.holder(token_digest)
        except Unavailable as error:
            OUTAGES.failed(log, "cannot read the API tokens", error)
            return None

    def holder(self, token_digest: str) -> Grant | None:
        """The grant of the token with this digest, if it is valid. Raises `Unavailable` if the tokens cannot be read."""
        if hmac.compare_digest(token_digest, digest(self.token)):
            return Grant(name="main", scopes=frozenset({AccessScope.ADMIN}), token_digest=token_digest)
        return self.api_tokens.find(token_digest)

    @property
    def main_digest(self) -> str:
        return digest(self.token)

    def digests(self) -> frozenset[str]:
        """The digests of all tokens, including expired ones. Raises `Unavailable` if they cannot be read."""
        return self.api_tokens.digests() | {digest(self.token)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    digest: str
    at: datetime
    via: Channel


class TokenUses:
    """When each token was last used. Stored apart from the tokens, which change rarely.

    A server knows the uses that it has seen itself, and those that other servers have written.
    """

    def __init__(self, records: Records, clock: Callable[[], datetime]) -> None:
        self._stored = records.collection("token-uses", TokenUse)
        self._clock = clock
        self._recorded: dict[str, TokenUse] = {}
        self._is_written = True

    def record(self, token_digest: str, via: Channel) -> None:
        """Remember that the token is being used. Writes nothing."""
        self._recorded[token_digest] = TokenUse(digest=token_digest, at=self._clock(), via=via)
        self._is_written = False

    def last(self, token_digest: str) -> TokenUse | None:
        """None if the token was never used, or if that cannot be read."""
        try:
            written = self._stored.read().get(token_digest)
        except Unavailable as error:
            OUTAGES.failed(log, "cannot read when tokens were used", error)
            written = None
        return _later(written, self._recorded.get(token_digest))

    def flush(self, known: Callable[[], frozenset[str]]) -> None:
        """Write the uses of the tokens with these digests, and forget those of all others."""
        if self._is_written:
            return
        # Before the copy: a use that is noted meanwhile is written the next time.
        self._is_written = True
        try:
            with self._stored.changing() as uses:
                # Another server may have seen a later use.
                for noted in list(self._recorded.values()):
                    uses[noted.digest] = _later(uses.get(noted.digest), noted) or noted
                for token_digest in self._outdated(uses, known):
                    del uses[token_digest]
        except (Unavailable, OSError):
            self._is_written = False
            raise

    def _outdated(self, uses: Mapping[str, TokenUse], known: Callable[[], frozenset[str]]) -> Collection[str]:
        """The uses of tokens that were revoked; none if the tokens cannot be read."""
        try:
            return uses.keys() - known()
        except Unavailable as error:
            OUTAGES.failed(log, "cannot read which tokens there are", error)
            return ()


def _later(one: TokenUse | None, other: TokenUse | None) -> TokenUse | None:
    if one is None or other is None:
        return one or other
    return one if one.at > other.at else other


async def flush_periodically(flush: Callable[[], None], what: str) -> None:
    """Call `flush` in a thread every few minutes. `what` names the facts in the log if that fails."""

    async def wait_and_flush() -> None:
        await asyncio.sleep(_FLUSH_SEC)
        await asyncio.to_thread(flush)

    await keep_trying(wait_and_flush, log, f"cannot write {what}")
