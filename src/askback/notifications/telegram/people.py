"""Who gets questions, who may answer them, and when a stranger gets a response."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from askback.core.labels import Labels

_SILENCE = timedelta(hours=1)
_MAX_STRANGERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A person or a group. A person may answer, also in groups; a group only gets the questions."""

    id: int
    name: str
    notify: bool = True
    labels: Labels = field(default_factory=dict)
    """Only runs with all of these labels."""

    @property
    def is_group(self) -> bool:
        return self.id < 0


class People:
    def __init__(self, chats: Iterable[Chat]) -> None:
        self._chats = {chat.id: chat for chat in chats}

    def person(self, user_id: int) -> Chat | None:
        """Who may answer as this user."""
        chat = self._chats.get(user_id)
        return None if chat is None or chat.is_group else chat


class Strangers:
    """Each gets one response per hour. Their number is bounded: anybody can write to a bot."""

    def __init__(self) -> None:
        self._seen: dict[int, datetime] = {}

    def is_first(self, user_id: int, now: datetime) -> bool:
        seen = self._seen.get(user_id)
        if seen is not None and seen <= now < seen + _SILENCE:
            return False
        self._seen.pop(user_id, None)
        if len(self._seen) >= _MAX_STRANGERS:
            del self._seen[next(iter(self._seen))]
        self._seen[user_id] = now
        return True
