"""The items of a Codex turn, messages and tool calls, with the field names of `codex exec`.

How a turn starts, ends or fails is not handled here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from askback.core.runs import Usage
from askback.engines.base import AssistantMessage, EngineEvent, ToolEnded, ToolStarted
from askback.engines.messages import Messages, Recent
from askback.engines.protocols.json_lines import count_at, text_at

_NO_TOOLS = {
    "agent_message",
    "reasoning",
    "error",
    "todo_list",
    "",
    # Only the app server sends these.
    "user_message",
    "hook_prompt",
    "function_call_output",
    "plan",
    "sub_agent_activity",
    "entered_review_mode",
    "exited_review_mode",
    "context_compaction",
}


class Items:
    """The messages and tool calls of one turn."""

    def __init__(self) -> None:
        self.messages = Messages()
        self._running: Recent[None] = Recent()

    def read(self, item: Mapping[str, Any], *, ended: bool) -> Iterator[EngineEvent]:
        kind = text_at(item, "type")
        if kind == "agent_message" and ended:
            yield AssistantMessage(text=self.messages.add(text_at(item, "text")))
        if kind in _NO_TOOLS:
            return
        call_id, name = text_at(item, "id"), text_at(item, "tool") or kind
        if call_id not in self._running:
            self._running.put(call_id, None)
            yield ToolStarted(call_id=call_id, name=name, detail=_detail(item))
        if ended:
            self._running.pop(call_id)
            yield ToolEnded(call_id=call_id, name=name, ok=_is_ok(item), output=text_at(item, "aggregated_output"))


def _detail(item: Mapping[str, Any]) -> str:
    changes = item.get("changes")
    paths = [text_at(each, "path") for each in changes if isinstance(each, dict)] if isinstance(changes, list) else []
    return text_at(item, "command") or text_at(item, "query") or "\n".join(paths)


def _is_ok(item: Mapping[str, Any]) -> bool:
    return text_at(item, "status") not in ("failed", "declined") and item.get("exit_code") in (None, 0)


def usage_in(tokens: Mapping[str, Any]) -> Usage:
    sent, generated = count_at(tokens, "input_tokens"), count_at(tokens, "output_tokens")
    return Usage(
        input_tokens=sent,
        output_tokens=generated,
        cached_tokens=count_at(tokens, "cached_input_tokens"),
        total_tokens=sent + generated,
    )
