"""The scripted program as a real child, driven through its engine as a run would drive it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askback.core.runs import Handle, Mode, ProfileKind
from askback.engines.base import (
    AssistantMessage,
    Completed,
    EngineEvent,
    Exit,
    Probe,
    SessionNamed,
    Stream,
    Turn,
    TurnFailed,
)
from askback.engines.scripted import Scripted

DEADLINE_SEC = 60
PROBE = Probe(kind=ProfileKind.RESUMABLE, reason="tested")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one turn printed, and what the parser made of it."""

    exit_code: int
    seen: tuple[EngineEvent, ...]
    result: Completed | TurnFailed
    stdout: bytes

    @property
    def session_id(self) -> str:
        (named,) = (seen.value for seen in self.seen if isinstance(seen, SessionNamed))
        return named

    @property
    def said(self) -> list[str]:
        return [seen.text for seen in self.seen if isinstance(seen, AssistantMessage)]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class Stage:
    """A folder with a skill's script, a working directory and a home."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "cwd"
        self.home = folder / "home"
        (self.cwd / "skill" / "assets").mkdir(parents=True)
        self.home.mkdir()
        self.engine = Scripted()

    def script(self, *turns: Any, **rest: Any) -> None:
        text = json.dumps({"turns": list(turns), **rest})
        (self.cwd / "skill" / "assets" / "scripted.json").write_text(text)

    def turn(self, prompt: str = "Go.", resume: str | None = None, mode: Mode = Mode.INTERACTIVE, **rest: Any) -> Turn:
        handle = None
        if resume is not None:
            handle = Handle(engine="scripted", handle_type="session_id", handle_value=resume, created_at_turn=1)
        return Turn(
            prompt=prompt,
            mode=mode,
            attempt_number=1,
            command=self.engine.default_command,
            cwd=str(self.cwd),
            home=str(self.home),
            skill_dir="skill",
            probe=PROBE,
            handle=handle,
            **rest,
        )

    @contextmanager
    def start(self, turn: Turn, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """The program, which does not outlive the block."""
        launch = self.engine.launch(turn)
        child = subprocess.Popen(
            launch.argv,
            cwd=self.cwd,
            env={**(env or {}), **launch.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdin is not None
        with child:
            try:
                child.stdin.write(launch.stdin)
                child.stdin.close()
                child.stdin = None
                yield child
            finally:
                child.kill()

    def play(
        self, prompt: str = "Go.", resume: str | None = None, env: Mapping[str, str] | None = None, **rest: Any
    ) -> Played:
        """One turn, from its start to its end."""
        turn = self.turn(prompt, resume, **rest)
        with self.start(turn, env) as child:
            stdout, stderr = child.communicate(timeout=DEADLINE_SEC)
        return self.read(stdout, stderr, child.returncode, turn)

    def read(self, stdout: bytes, stderr: bytes, exit_code: int, turn: Turn | None = None) -> Played:
        parser = self.engine.parser(turn or self.turn())
        seen: list[EngineEvent] = []
        for stream, data in ((Stream.STDOUT, stdout), (Stream.STDERR, stderr)):
            for line in data.split(b"\n"):
                seen.extend(parser.feed(stream, line))
        return Played(exit_code=exit_code, seen=tuple(seen), result=parser.finish(Exit(code=exit_code)), stdout=stdout)

    def session(self, session_id: str) -> list[dict[str, Any]]:
        path = self.home / ".scripted" / "sessions" / f"{session_id}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def prompts(self, session_id: str) -> list[str]:
        return [record["text"] for record in self.session(session_id) if record["type"] == "prompt"]


def reply(text: str, interaction_id: str = "q") -> str:
    """A prompt that carries an answer, in the form that runs give it."""
    return f'The answer:\n\n<user_reply interaction_id="{interaction_id}">\n{text}\n</user_reply>\n\nGo on.\n'


def given(data: Mapping[str, Any], parameter: Mapping[str, Any] | None = None) -> str:
    """A first prompt with input and parameters, in the form that runs give it."""
    return (
        f"Do it.\n\n<input>\n{json.dumps(data)}\n</input>\n\n<parameter>\n{json.dumps(parameter or {})}\n</parameter>\n"
    )


def kinds(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(event["type"]) for event in events]
