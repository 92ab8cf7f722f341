"""The engine `parrot`: how to start the program of that name, and what its output means. It does no I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from askback.core.runs import ProfileKind
from askback.engines.base import (
    AssistantMessage,
    CallResult,
    Completed,
    Engine,
    EngineEvent,
    Exit,
    Launch,
    Probe,
    SessionNamed,
    Turn,
    TurnFailed,
    TurnOver,
    session_of,
)
from askback.engines.failures import failure_of
from askback.engines.parser import JsonLinesParser
from askback.engines.protocols.json_lines import as_detail, text_at


class Parrot(Engine):
    name = "parrot"
    title = "Parrot"
    default_command = ("parrot",)
    install = "install it with: pip install askback-parrot"
    sign_in = "it needs no account"
    handle_pattern = re.compile(r"parrot-[0-9a-f]{32}", re.ASCII)
    chosen_by_default = False
    env_allow = ("PARROT_KEY",)
    config_names = (".parrot",)
    credentials = (".parrot/key",)

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        return True

    def probe_calls(self) -> Sequence[tuple[str, ...]]:
        return (("--help",),)

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        resumes = any(result.exit_code == 0 and "--resume" in result.stdout for result in results)
        return Probe(
            kind=ProfileKind.RESUMABLE if resumes else ProfileKind.STICKY_PROCESS,
            reason="its --help offers --resume" if resumes else "its --help does not offer --resume",
        )

    def launch(self, turn: Turn) -> Launch:
        argv = [*turn.command, *turn.extra_args]
        if turn.model:
            argv.append(f"--model={turn.model}")
        if turn.handle is not None:
            argv.append(f"--resume={session_of(self, turn.handle)}")
        return Launch(argv=tuple(argv), stdin=turn.prompt.encode("utf-8", "replace"))

    def parser(self, turn: Turn) -> ParrotParser:
        return ParrotParser(resuming=turn.handle is not None)


def engine() -> Parrot:
    return Parrot()


class ParrotParser(JsonLinesParser):
    """Reads one turn. Only the event `end` is success."""

    unknown_session = re.compile("no such session")

    def __init__(self, *, resuming: bool) -> None:
        super().__init__(resuming=resuming)
        self._messages: list[str] = []
        self._ended = False
        self._failure = ""

    def _read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        match text_at(event, "event"):
            case "session":
                yield SessionNamed(value=text_at(event, "id"))
            case "say":
                self._messages.append(text_at(event, "text"))
                yield AssistantMessage(text=self._messages[-1])
            case "end":
                self._ended = True
                yield TurnOver()
            case "error":
                self._failure = text_at(event, "message") or "it did not say why"
                yield TurnOver()

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        if self._failure:
            return TurnFailed(
                code=failure_of(self._failure), message="the parrot failed", detail=as_detail(self._failure)
            )
        if self._ended:
            return Completed(messages=tuple(self._messages))
        return self._unfinished(ended)
