"""A recorded talk told again to the conversation of today: it must send exactly what was sent, in the same order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from recordings import turn_of
from talks import FOLDER, lines_of, resident

from askback.engines.base import Asked, Completed, EngineEvent, Reply, Send, Stream, TurnFailed, TurnOver

Saying = tuple[str, Reply | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one turn told, and what it came to."""

    seen: tuple[EngineEvent, ...]
    outcome: Completed | TurnFailed

    def of(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.seen if isinstance(each, kind)]


def replay(engine: str, case: str, *says: str | Saying) -> list[Told]:
    """The turns of a recorded talk, begun by `says`, each as soon as the one before is over."""
    talk = resident(engine).conversation(turn_of(resident(engine), {}))
    waiting = [each if isinstance(each, tuple) else (each, None) for each in says]
    lines, sent, turns, seen = lines_of(FOLDER / engine / case), [], [], []
    for at, (sign, line) in enumerate(lines):
        told = list(talk.feed(Stream.STDOUT, line)) if sign == "<" else []
        # The first thing that was sent after a turn's end began the next one.
        if sign == ">" and len(sent) <= sum(1 for before, _ in lines[:at] if before == ">"):
            told = list(talk.say(*waiting.pop(0)))
        for one in told:
            if isinstance(one, Send):
                sent.append(json.loads(one.data))
                continue
            seen.append(one)
            if isinstance(one, TurnOver | Asked):
                turns.append(Told(seen=tuple(seen), outcome=talk.outcome()))
                seen = []
    assert sent == [json.loads(line) for sign, line in lines if sign == ">"]
    assert (waiting, seen) == ([], [])
    return turns
