"""Messages in chats as rows: which message shows which question, and which still offer to answer a closed one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from askback.core.webhooks import ChatMessage
from askback.store.sql.connection import Connection
from askback.store.sql.writes import Change, Write
from askback.text.json_text import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageNote(Write):
    """A message that was sent. Nothing is written if its run was deleted meanwhile."""

    message: ChatMessage

    def write(self, connection: Connection) -> Change:
        sent = self.message
        columns = {"chat": sent.chat, "message": sent.message, "run": clean(sent.run_id), "open": int(sent.open)}
        columns["interaction_id"] = clean(sent.interaction_id)
        connection.execute(connection.statements("chats")["insert_message"], columns)
        return Change()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageClosing(Write):
    message: ChatMessage

    def write(self, connection: Connection) -> Change:
        which = {"chat": self.message.chat, "message": self.message.message}
        connection.execute(connection.statements("chats")["close_message"], which)
        return Change()


def chat_message(connection: Connection, chat: int, message: int) -> ChatMessage | None:
    found = connection.fetch(connection.statements("chats")["message"], {"chat": chat, "message": message})
    return _load(*found[0]) if found else None


def outdated_chat_messages(connection: Connection, run_id: str | None = None) -> Sequence[ChatMessage]:
    sql = connection.statements("chats")
    if run_id is None:
        found = connection.fetch(sql["outdated_messages"])
    else:
        found = connection.fetch(sql["outdated_messages_of_run"], {"run": clean(run_id)})
    return tuple(_load(*row) for row in found)


def _load(chat: int, message: int, run_id: str, interaction_id: str, is_open: int) -> ChatMessage:
    return ChatMessage(chat=chat, message=message, run_id=run_id, interaction_id=interaction_id, open=bool(is_open))
