"""What a bot receives: taps on buttons and messages, as values. Unknown fields are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

ALLOWED = ("message", "callback_query")


class User(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    is_bot: bool = False


class ChatRef(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    type: str = ""


class MessageRef(msgspec.Struct, frozen=True, kw_only=True):
    message_id: int
    chat: ChatRef
    sender: User | None = msgspec.field(default=None, name="from")


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A message of somebody."""

    message_id: int
    chat: ChatRef
    sender: User | None = msgspec.field(default=None, name="from")
    text: str | None = None
    reply_to_message: MessageRef | None = None


class Tap(msgspec.Struct, frozen=True, kw_only=True):
    """A tap on a button below a message."""

    id: str
    sender: User = msgspec.field(name="from")
    data: str | None = None
    message: MessageRef | None = None


def read_update(update: Mapping[str, Any]) -> Written | Tap | None:
    """None if it is of another kind, or not in the form of the documentation."""
    try:
        if "callback_query" in update:
            return msgspec.convert(update["callback_query"], Tap)
        return msgspec.convert(update["message"], Written) if "message" in update else None
    except msgspec.ValidationError:
        return None
