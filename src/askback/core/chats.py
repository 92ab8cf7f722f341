"""Messages in chats that show a question, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A message that a reply can refer to. `open`: it still offers to answer the question."""

    chat: int
    message: int
    run_id: str
    interaction_id: str
    open: bool = True
