"""The tool calls of a turn, as ACP tells them: one that begins, and then what is new of it, piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from askback.engines.base import Seen, ToolEnded, ToolStarted
from askback.engines.json_lines import object_at, text_at
from askback.engines.json_text import clean
from askback.engines.messages import MOST_ID, Recent

_WORD = re.compile(r"\w+", re.ASCII)


@dataclass(slots=True, kw_only=True)
class _Call:
    name: str
    started: bool = False
    ended: bool = False


class Tools:
    """Which calls were begun. A call is told once it is known what it was given: at its start often only its name is."""

    def __init__(self) -> None:
        self._calls: Recent[_Call] = Recent()

    def read(self, update: Mapping[str, Any]) -> Iterator[Seen]:
        call_id, status = text_at(update, "toolCallId"), text_at(update, "status")
        if (call := self._calls.get(call_id)) is None:
            call = _Call(name=_name(update)[:MOST_ID])
            self._calls.put(call_id, call)
        if status == "pending" or call.ended:
            return
        if not call.started:
            call.started = True
            yield ToolStarted(call_id=call_id, name=call.name, detail=_detail(update, call.name))
        if status in ("completed", "failed"):
            call.ended = True
            yield ToolEnded(call_id=call_id, name=call.name, ok=_went_well(update), output=_output(update))


def _name(update: Mapping[str, Any]) -> str:
    """The protocol has a title for people and a kind; most programs add the tool's name, each in its own place."""
    title = text_at(update, "title")
    return (
        text_at(update, "_meta", "toolName")
        or text_at(update, "toolName")
        or (title if _WORD.fullmatch(title) else "")
        or text_at(update, "kind")
        or "tool"
    )


def _detail(update: Mapping[str, Any], name: str) -> str:
    """What a tool was given: its command where it has one, else what the program calls it, else all of it."""
    given = object_at(update, "rawInput") or object_at(update, "args")
    title = text_at(update, "title")
    whole = clean(json.dumps(given, ensure_ascii=False)) if given else ""
    return text_at(given, "command") or (title if title != name else "") or whole


def _went_well(update: Mapping[str, Any]) -> bool:
    exit_code = object_at(update, "rawOutput", "metadata").get("exit")
    return text_at(update, "status") == "completed" and exit_code in (None, 0)


def _output(update: Mapping[str, Any]) -> str:
    content = update.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = (text_at(block, "content", "text") for block in blocks)
    return (
        "\n".join(text for text in texts if text)
        or text_at(update, "rawOutput")
        or text_at(update, "rawOutput", "output")
    )
