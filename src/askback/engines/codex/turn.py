"""One turn of `codex exec`: its events, and the items (messages and tool calls) that the app server reports as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from askback.core.runs import Usage
from askback.engines.base import (
    AssistantMessage,
    Completed,
    EngineEvent,
    Exit,
    SessionNamed,
    ToolEnded,
    ToolStarted,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.failures import ended_badly, failure_of
from askback.engines.parser import JsonLinesParser, Messages, Recent, usage_of
from askback.engines.protocols.json_lines import count_at, count_or_none, object_at, objects_at, text_at

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
            paths = (text_at(each, "path") for each in objects_at(item, "changes"))
            detail = text_at(item, "command") or text_at(item, "query") or "\n".join(paths)
            yield ToolStarted(call_id=call_id, name=name, detail=detail)
        if ended:
            self._running.pop(call_id)
            ok = text_at(item, "status") not in ("failed", "declined") and item.get("exit_code") in (None, 0)
            yield ToolEnded(call_id=call_id, name=name, ok=ok, output=text_at(item, "aggregated_output"))


def usage_in(tokens: Mapping[str, Any]) -> Usage:
    sent, generated = count_at(tokens, "input_tokens"), count_at(tokens, "output_tokens")
    return usage_of(
        sent, generated, count_or_none(tokens, "cached_input_tokens"), count_or_none(tokens, "reasoning_output_tokens")
    )


class CodexParser(JsonLinesParser):
    """Reads the events of one `codex exec`. A turn succeeds only if it ends with `turn.completed`."""

    unknown_session = re.compile(r"no rollout found|thread/resume failed|session not found", re.IGNORECASE)

    def __init__(self, *, resuming: bool) -> None:
        super().__init__(resuming=resuming)
        self._items = Items()
        self._completed = False
        self._failure: str | None = None
        self._trouble = ""

    def _read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        kind = text_at(event, "type")
        # Retry notices are `error` events too. Any other event means that the retry succeeded.
        self._trouble = text_at(event, "message") if kind == "error" else ""
        match kind:
            case "thread.started":
                yield SessionNamed(value=text_at(event, "thread_id"))
            case "turn.started":
                self._completed = False
            case "item.started" | "item.completed":
                yield from self._items.read(object_at(event, "item"), ended=kind == "item.completed")
            case "turn.completed":
                self._completed = True
                yield UsageSeen(usage=usage_in(object_at(event, "usage")), whole_session=True)
                yield TurnOver()
            case "turn.failed":
                self._failure = text_at(event, "error", "message") or "it did not say why"
                yield TurnOver()

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        if self._failure is not None:
            return ended_badly(failure_of(self._failure), self._failure)
        if self._completed:
            return self._items.messages.completed()
        return self._unfinished(ended, self._trouble, self._trouble)
