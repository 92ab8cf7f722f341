"""Recordings of real turns: a folder with what a program printed, and what its engine must make of it.

The format stands in README.md beside this file. Used by the test that reads them all and by `tools/record.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from askback.core.runs import Handle, Mode, ProfileKind
from askback.engines.base import (
    AssistantMessage,
    Completed,
    Engine,
    EngineEvent,
    Exit,
    Probe,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    Turn,
    TurnOver,
    UsageSeen,
)

FOLDER = Path(__file__).resolve().parent
EXPECTED = "expected.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What one turn printed and how it ended. `about` is the content of `turn.json`."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Recording:
        return cls(
            stdout=_bytes(folder / "stdout"),
            stderr=_bytes(folder / "stderr"),
            exit_code=int((folder / "exit").read_text()),
            about=json.loads(_bytes(folder / "turn.json") or b"{}"),
        )

    @property
    def ended(self) -> Exit:
        timed_out, over_limit = (bool(self.about.get(name)) for name in ("timed_out", "over_limit"))
        return Exit(code=self.exit_code, timed_out=timed_out, over_limit=over_limit)

    def lines(self, *streams: Stream) -> Iterator[tuple[Stream, bytes]]:
        """Every line, one stream after the other."""
        for stream in streams:
            data = self.stdout if stream is Stream.STDOUT else self.stderr
            yield from ((stream, line) for line in data.removesuffix(b"\n").split(b"\n") if data)


def cases() -> list[Path]:
    """Every folder that is a recording, by engine and name."""
    return sorted(path.parent for path in FOLDER.glob("*/*/exit"))


def turn_of(engine: Engine, about: Mapping[str, Any], *features: str) -> Turn:
    """A turn as it was when the recording was made, of a version with these features."""
    value = about.get("handle")
    handle = value and Handle(engine=engine.name, handle_type=engine.handle_type, handle_value=value, created_at_turn=1)
    return Turn(
        prompt=about.get("prompt", "Do it."),
        mode=Mode(about.get("mode", Mode.INTERACTIVE)),
        attempt_number=2 if handle else 1,
        command=engine.default_command,
        cwd="/run/work",
        home="/run/home",
        skill_dir="skill",
        probe=Probe(kind=ProfileKind.RESUMABLE, reason="recorded", features=features),
        handle=handle or None,
        model=about.get("model"),
    )


def read(engine: Engine, recording: Recording, *streams: Stream) -> dict[str, Any]:
    """What the engine makes of a recording, in the form of `expected.json`."""
    parser = engine.parser(turn_of(engine, recording.about))
    seen = [each for stream, line in recording.lines(*(streams or tuple(Stream))) for each in parser.feed(stream, line)]
    result = parser.finish(recording.ended)
    named = [each.value for each in seen if isinstance(each, SessionNamed)]
    if isinstance(result, Completed) and result.session is not None:
        named.append(result.session)
    told: dict[str, Any] = {
        "sessions": list(dict.fromkeys(named)),
        "said": [each.text for each in seen if isinstance(each, AssistantMessage)],
        "tools": _tools(seen),
        "usage": next((asdict(each.usage) for each in reversed(seen) if isinstance(each, UsageSeen)), None),
        "turn_over": any(isinstance(each, TurnOver) for each in seen),
    }
    if isinstance(result, Completed):
        return told | {"messages": list(result.messages)}
    return told | {"code": str(result.code), "detail": result.detail}


def _tools(seen: Sequence[EngineEvent]) -> list[dict[str, Any]]:
    """The tools in the order they started; `ok` is null for one that did not end."""
    ended = {each.call_id: each.ok for each in seen if isinstance(each, ToolEnded)}
    return [
        {"name": each.name, "detail": each.detail, "ok": ended.get(each.call_id)}
        for each in seen
        if isinstance(each, ToolStarted)
    ]


def differences(expected: Mapping[str, Any], told: Mapping[str, Any]) -> list[str]:
    """What was expected and is not so. Only what `expected` names is compared; of `detail` a part is enough."""
    found = []
    for key, value in expected.items():
        same = value in (told.get(key) or "") if key == "detail" and value else told.get(key) == value
        if not same:
            found.append(f"{key}: expected {value!r}, got {told.get(key)!r}")
    return found


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
