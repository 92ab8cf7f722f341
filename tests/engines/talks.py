"""Recordings of talks with programs that stay: a folder with what was sent and told, and what must become of each turn.

In `talk` a line begins with `>` (it was sent), `<` (told on stdout) or `!` (told on stderr). `turns.json` holds, for
each turn, what `expected.json` holds of a recording, and `asked`: the question that the program asked by its protocol.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recordings import FOLDER, turn_of

from askback.engines import registry
from askback.engines.base import (
    Asked,
    AssistantMessage,
    Completed,
    Conversation,
    Engine,
    EngineEvent,
    Reply,
    Send,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    TurnOver,
    UsageSeen,
)
from askback.testing import known_usage

WORKSPACE = "{WORKSPACE}"
STREAMS = {"<": Stream.STDOUT, "!": Stream.STDERR}


def talks() -> list[Path]:
    """Every folder that is a recorded talk, by engine and name."""
    return sorted(path.parent for path in FOLDER.glob("*/*/talk"))


def lines_of(folder: Path) -> list[tuple[str, bytes]]:
    return [(line[:1].decode(), line[2:]) for line in (folder / "talk").read_bytes().split(b"\n")[:-1]]


def resident(name: str) -> Engine:
    engine = registry.get(name)
    assert engine.can_stay
    return engine


def conversation(name: str, model: str | None = None) -> Conversation:
    engine = resident(name)
    return engine.conversation(replace(turn_of(engine, {"model": model}), cwd=WORKSPACE))


@dataclass(slots=True)
class Replay:
    """A recorded talk with the conversation of today: what it sent, and what it told of each turn."""

    talk: Conversation
    lines: list[tuple[str, bytes]]
    reply: Reply | None = None
    sent: list[dict[str, Any]] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    _seen: list[EngineEvent] = field(default_factory=list)

    def play(self) -> None:
        prompts = _prompts(self.lines)
        asked = said = False
        for sign, line in self.lines:
            if sign != ">":
                asked = self._take(self.talk.feed(STREAMS[sign], line)) and self._asks
                continue
            message = json.loads(line)
            begins = message.get("method") in ("initialize", "session/prompt")
            if message.get("method") == "initialize":
                said = True
                self._take(self.talk.say(next(prompts, "Go on")))
            elif begins and not said:
                self._take(self.talk.say(next(prompts, "Go on")))
            elif begins:
                said = False
            elif "result" in message and asked:
                asked = False
                self._take(self.talk.say("", self.reply))

    @property
    def _asks(self) -> bool:
        return bool(self.turns and self.turns[-1]["asked"])

    def _take(self, seen: Iterable[EngineEvent]) -> bool:
        """Whether the turn ended with it."""
        for each in seen:
            if isinstance(each, Send):
                self.sent.append(json.loads(each.data))
                continue
            self._seen.append(each)
            if isinstance(each, TurnOver | Asked):
                self.turns.append(_told(self._seen, self.talk.outcome()))
                self._seen = []
                return True
        return False


def _prompts(lines: list[tuple[str, bytes]]) -> Iterator[str]:
    for sign, line in lines:
        message = json.loads(line) if sign == ">" else {}
        if message.get("method") == "session/prompt":
            yield message["params"]["prompt"][-1]["text"]


def _told(seen: list[EngineEvent], result: Any) -> dict[str, Any]:
    ended = {each.call_id: each.ok for each in seen if isinstance(each, ToolEnded)}
    told: dict[str, Any] = {
        "sessions": [each.value for each in seen if isinstance(each, SessionNamed)],
        "said": [each.text for each in seen if isinstance(each, AssistantMessage)],
        "tools": [
            {"name": each.name, "detail": each.detail, "ok": ended.get(each.call_id)}
            for each in seen
            if isinstance(each, ToolStarted)
        ],
        "usage": next((known_usage(each) for each in reversed(seen) if isinstance(each, UsageSeen)), None),
        "asked": next((each.question.prompt for each in seen if isinstance(each, Asked)), None),
    }
    if isinstance(result, Completed):
        return told | {"messages": list(result.messages)}
    return told | {"code": str(result.code), "detail": result.detail}
