"""Who a caller is and what it may do; and what is issued for a token and ends with it: sessions, invitations, subscriptions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from askback.core.access import AccessScope
from askback.core.errors import NotFound, RefusalCode
from askback.core.permissions import Policy
from askback.fs.records import Collection, Records
from askback.runs.links import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    name: str
    scopes: frozenset[AccessScope]
    token_digest: str = ""
    """Of the token, or of the token that created the session."""
    session_id: str | None = None
    link: Link | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """If there are any, the caller sees only runs that have all of them."""
    permissions: Policy | None = None
    """For the runs that it creates."""

    @property
    def owner(self) -> str:
        """Whose quotas count: the token's, or those of this link alone. No token has a name with a space."""
        return self.name if self.link is None else f"link {self.link.run_id} {self.link.id}"

    @property
    def party(self) -> tuple[str, ...]:
        """Who shares the server with others: the token, or all links that a token has created and then this one."""
        if self.link is None:
            return (self.name,)
        return (f"links of {self.link.creator or 'the server'}", self.owner)

    def allows(self, *scopes: AccessScope) -> bool:
        return AccessScope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)


Lookup = Callable[[str], "Grant | None"]
"""Finds the grant of a valid token."""
SessionLookup = Callable[[str, str], "Grant | None"]
"""Finds the grant of a valid session for a host."""


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class Record(Protocol):
    @property
    def id(self) -> str:
        """Public; grants no access."""

    @property
    def digest(self) -> str: ...

    @property
    def token_digest(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...


R = TypeVar("R", bound=Record)


class Issued(Generic[R]):
    """Stored records of one kind, by digest. Methods that write block: call them in a thread.

    `holder` finds the grant of a token by its digest. It raises `Unavailable` if the tokens cannot be read: what is bound
    to them must not be removed then.
    """

    noun: str
    missing: RefusalCode
    collection: str
    record: type[R]

    def __init__(self, records: Records, clock: Callable[[], datetime], holder: Callable[[str], Grant | None]) -> None:
        self._stored: Collection[R] = records.collection(self.collection, self.record)
        self._clock = clock
        self._holder = holder

    def all(self) -> list[R]:
        """The valid ones, oldest first. Raises `Unavailable` if they cannot be read."""
        return sorted(filter(self._is_valid, self._stored.read().values()), key=lambda each: each.created_at)

    def revoke(self, ids: Iterable[str]) -> None:
        """Revoke all of these, or none."""
        with self._stored.changing() as stored:
            found = {each.id: each.digest for each in stored.values() if self._is_valid(each)}
            for each in ids:
                if each not in found:
                    raise NotFound(self.missing, f"there is no {self.noun} {each!r}")
                del stored[found[each]]

    def _prune(self, stored: dict[str, R]) -> None:
        for each in list(stored.values()):
            if not self._is_valid(each):
                del stored[each.digest]

    def _is_valid(self, record: R) -> bool:
        raise NotImplementedError
