"""Who a caller is and what it may do, and the directory of all tokens."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from askback.background.outages import OUTAGES
from askback.core.access import AccessScope
from askback.core.errors import Unavailable
from askback.runs.links import Link

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The identity and the rights of a caller."""

    name: str
    scopes: frozenset[AccessScope]
    token_digest: str = ""
    """Of the token, or of the token that created the session."""
    session_id: str | None = None
    link: Link | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """If there are any, the caller sees only runs that have all of them."""

    @property
    def owner(self) -> str:
        """Whose quotas count: the token's, or those of this link alone. No token has a name with a space."""
        return self.name if self.link is None else f"link {self.link.run_id} {self.link.id}"

    def allows(self, *scopes: AccessScope) -> bool:
        """Whether it has one of these scopes."""
        return AccessScope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)


Lookup = Callable[[str], "Grant | None"]
"""Finds the grant of a valid token."""
SessionLookup = Callable[[str, str], "Grant | None"]
"""Finds the grant of a valid session for a host."""


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDirectory:
    """The server's own token, which allows everything, and the further tokens, by their digests.

    Tokens that cannot be read admit nobody. They are not revoked, either: what is bound to them must not be removed.
    """

    token: str
    further: Callable[[str], Grant | None]
    further_digests: Callable[[], frozenset[str]]

    def __call__(self, given: str) -> Grant | None:
        return self.admitted(digest(given)) if given else None

    def admitted(self, token_digest: str) -> Grant | None:
        """The grant of the token with this digest, if it is known to be valid."""
        try:
            return self.holder(token_digest)
        except Unavailable as error:
            OUTAGES.failed(log, "cannot read the further tokens", error)
            return None

    def holder(self, token_digest: str) -> Grant | None:
        """The grant of the token with this digest; None if it was revoked or has expired.

        Raises `Unavailable` if the further tokens cannot be read.
        """
        if hmac.compare_digest(token_digest, digest(self.token)):
            return Grant(name="main", scopes=frozenset({AccessScope.ADMIN}), token_digest=token_digest)
        return self.further(token_digest)

    @property
    def main_digest(self) -> str:
        return digest(self.token)

    def digests(self) -> frozenset[str]:
        """The digests of all tokens, including expired ones. Raises `Unavailable` if they cannot be read."""
        return self.further_digests() | {digest(self.token)}
