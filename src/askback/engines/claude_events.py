"""The events `assistant` and `user` as claude prints them, and qwen after it: whole messages, tool calls, tool results.

Knows nothing of how such a program names its session, ends its turn or fails; that is each engine's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from askback.engines.base import Said, Seen, ToolEnded, ToolStarted
from askback.engines.json_lines import object_at, text_at
from askback.engines.json_text import clean
from askback.engines.messages import MOST_ID, Messages, Pieces, Recent


class Conversation:
    """Puts messages together again: one message may come in several events, one for each of its blocks."""

    def __init__(self) -> None:
        self.messages = Messages()
        self._parts = Pieces()
        self._message_id = ""
        self._tools: Recent[str] = Recent()

    def read(self, event: Mapping[str, Any]) -> Iterator[Seen]:
        """Take an `assistant` or `user` event. What a helper of the assistant says is no message of its own."""
        message = object_at(event, "message")
        is_helper = bool(text_at(event, "parent_tool_use_id"))
        for block in _blocks(message):
            match text_at(block, "type"):
                case "text" if text_at(event, "type") == "assistant" and not is_helper:
                    yield from self._add(text_at(message, "id"), text_at(block, "text"))
                case "tool_use":
                    yield from self.flush()
                    yield self._started(block)
                case "tool_result":
                    yield from self.flush()
                    yield self._ended(block)

    def flush(self) -> Iterator[Seen]:
        """The message that was being put together is whole: something else came."""
        text, shortened = self._parts.text, self._parts.shortened
        self._parts.clear()
        if text.strip():
            yield Said(text=self.messages.add(text, shortened=shortened))

    def _add(self, message_id: str, text: str) -> Iterator[Seen]:
        if not message_id or message_id != self._message_id:
            yield from self.flush()
        self._message_id = message_id
        self._parts.add(text)

    def _started(self, block: Mapping[str, Any]) -> ToolStarted:
        call_id, name = text_at(block, "id"), text_at(block, "name")
        self._tools.put(call_id, name[:MOST_ID])
        return ToolStarted(call_id=call_id, name=name, detail=_as_text(object_at(block, "input")))

    def _ended(self, block: Mapping[str, Any]) -> ToolEnded:
        call_id = text_at(block, "tool_use_id")
        return ToolEnded(
            call_id=call_id,
            name=self._tools.pop(call_id) or "",
            ok=block.get("is_error") is not True,
            output=_result_text(block.get("content")),
        )


def _blocks(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))


def _as_text(given: Mapping[str, Any]) -> str:
    """What a tool was given: its command where it has one, else all of it."""
    return text_at(given, "command") or (clean(json.dumps(given, ensure_ascii=False)) if given else "")


def _result_text(content: object) -> str:
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, list):
        return "\n".join(text_at(block, "text") for block in content if isinstance(block, dict))
    return ""
