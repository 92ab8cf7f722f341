"""Who a caller is and what it may do."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from askback.core.access import AccessScope
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
