"""The sessions of the older era: how many a token has, and which of them end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MAX_PER_TOKEN = 64
"""The SDK keeps what a client has sent about itself, and has one limit for all callers together."""


@dataclass(slots=True, eq=False)
class _Session:
    id: str
    owner: str
    still_valid: Callable[[], bool]
    in_use: int = 0


class Sessions:
    """The open sessions, the longest unused first. `end` ends one in the SDK, by its id and owner."""

    def __init__(self, end: Callable[[str, str], Awaitable[None]], *, max_per_token: int = MAX_PER_TOKEN) -> None:
        self._end = end
        self._max_per_token = max_per_token
        self._all: dict[str, _Session] = {}
        self._opening: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return len(self._all)

    async def make_room(self, owner: str) -> bool:
        """Whether the owner may open one more. For it, the idle session that was unused for the longest time is ended."""
        while self._count_of(owner) >= self._max_per_token:
            idle = next((each for each in self._all.values() if each.owner == owner and not each.in_use), None)
            if idle is None:
                return False
            await self._end_one(idle)
        return True

    @contextmanager
    def opening(self, owner: str) -> Iterator[None]:
        """Counts a session while it is being opened."""
        self._opening[owner] += 1
        try:
            yield
        finally:
            self._opening[owner] -= 1
            if not self._opening[owner]:
                del self._opening[owner]

    def add(self, session_id: str, owner: str, still_valid: Callable[[], bool]) -> None:
        self._all[session_id] = _Session(session_id, owner, still_valid)

    @contextmanager
    def using(self, session_id: str, owner: str) -> Iterator[None]:
        """A session that handles a request is not idle. The session of another owner is not touched."""
        session = self._all.get(session_id)
        if session is None or session.owner != owner:
            yield
            return
        session.in_use += 1
        try:
            yield
        finally:
            session.in_use -= 1
            if self._all.pop(session_id, None) is not None:
                self._all[session_id] = session

    def forget(self, session_id: str, owner: str) -> None:
        """The session has ended."""
        if (session := self._all.get(session_id)) is not None and session.owner == owner:
            del self._all[session_id]

    async def end_invalid(self) -> None:
        """End the sessions whose token is no longer valid."""
        for session in [each for each in self._all.values() if not each.still_valid()]:
            await self._end_one(session)

    def _count_of(self, owner: str) -> int:
        return self._opening[owner] + sum(each.owner == owner for each in self._all.values())

    async def _end_one(self, session: _Session) -> None:
        self._all.pop(session.id, None)
        await self._end(session.id, session.owner)
