"""Whether the sessions of an engine survive its process: tried once with the user's account, and stored by version.

Only engines whose every turn is a conversation are checked. The others resume by their command line, which their probe reads.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import msgspec

from askback.catalog.probes import EngineSetup, Installed, identity_of, read_private
from askback.catalog.trials import Trial, Trials, talk
from askback.core.runs import Handle, ProfileKind
from askback.engines.base import (
    Asked,
    ClosingConversation,
    Completed,
    Engine,
    EngineEvent,
    Exit,
    Probe,
    SessionNamed,
    Stream,
    Turn,
    TurnFailed,
    TurnOver,
)
from askback.fs.atomic import make_private, write_private
from askback.process.child import NotStarted
from askback.text.redaction import Redactor

_TURN_SEC = 300.0
_CLOSE_SEC = 5.0
_PROMPT = "This is a test of your memory. Remember the word {word}. Use no tools. Answer with the word OK alone."
_QUESTION = "Which word should you remember? Use no tools. Answer with this word alone."


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`reason` says what was seen, in a sentence about the program."""

    resumes: bool
    reason: str
    version: str | None
    at: datetime


class Checks:
    """Checks engines, and keeps the findings in a file. `program` identifies a program whose version is unknown."""

    def __init__(self, path: Path, trials: Trials, clock: Callable[[], datetime]) -> None:
        self._path = path
        self._trials = trials
        self._clock = clock

    async def run(self, engine: Engine, setup: EngineSetup, installed: Installed) -> Check | None:
        """Ask, kill the program, and ask in a new process what it remembers. None if another program checks it."""
        async with self._trials.begin(engine, setup, installed) as trial:
            if trial is None:
                return None
            try:
                problem = await _problem(trial)
            except NotStarted as error:
                problem = f"it cannot be started: {error}"
        probe = installed.probe
        reason = f"a new process remembered the conversation by {probe.offers}"
        if problem is not None:
            reason = Redactor(setup.secrets).text(problem)
        check = Check(resumes=problem is None, reason=reason, version=probe.version, at=self._clock())
        found = read_private(self._path, dict[str, Check]) or {}
        found[_key(engine, setup, identity_of(engine, installed.path, setup), probe.version)] = check
        make_private(self._path.parent)
        write_private(self._path, msgspec.json.encode(found))
        return check

    def applied(self, engine: Engine, setup: EngineSetup, program: str, probe: Probe) -> Probe:
        """The probe, with what a check of this version has shown."""
        if not engine.converses or probe.offers is None:
            return probe
        found = read_private(self._path, dict[str, Check]) or {}
        check = found.get(_key(engine, setup, program, probe.version))
        if check is None:
            return probe
        kind = ProfileKind.RESUMABLE if check.resumes else ProfileKind.STICKY_PROCESS
        reason = f"'askback engines check' of {check.at.date()}: {check.reason}"
        return replace(probe, kind=kind, reason=reason)


def _key(engine: Engine, setup: EngineSetup, program: str, version: str | None) -> str:
    return json.dumps([engine.name, *setup.command, version or program])


async def _problem(trial: Trial) -> str | None:
    """What is wrong; None if the program remembers."""
    word = secrets.token_hex(4)
    said, session = await _turn(trial, trial.turn, _PROMPT.format(word=word))
    if isinstance(said, str):
        return f"its first turn failed: {said}"
    if session is None or trial.engine.handle_pattern.fullmatch(session) is None:
        return "it named no session that could be continued"
    handle = Handle(
        engine=trial.engine.name, handle_type=trial.engine.handle_type, handle_value=session, created_at_turn=1
    )
    later = replace(trial.turn, handle=handle, attempt_number=2)
    said, named = await _turn(trial, later, _QUESTION)
    if named not in (None, session):
        return "a new process continued another session than the one it was asked for"
    if isinstance(said, str):
        return f"a new process did not continue the session: {said}"
    heard = any(word in message for message in said.messages)
    return None if heard else "a new process did not remember what was said before"


async def _turn(trial: Trial, turn: Turn, prompt: str) -> tuple[Completed | str, str | None]:
    """One turn in a separate process, which is killed when it is over: its result, or what is wrong; and its session."""
    conversation = trial.engine.conversation(turn)
    seen: list[EngineEvent] = []

    def feed(stream: Stream, line: bytes) -> list[EngineEvent]:
        now = list(conversation.feed(stream, line))
        seen.extend(now)
        return now

    def is_over() -> bool:
        return any(isinstance(each, TurnOver | Asked) for each in seen)

    async with trial.process(trial.engine.launch(turn)) as child:
        begun = list(conversation.say(prompt))
        code = await talk(child, begun, feed, is_over, _TURN_SEC)
        ended = Exit(code=code or 0, timed_out=code is None)
        result = conversation.outcome() if is_over() else conversation.finish(ended)
        if isinstance(conversation, ClosingConversation) and isinstance(result, Completed):
            closing = conversation
            await talk(child, conversation.close(), feed, lambda: closing.is_closed, _CLOSE_SEC)
    named = next((each.value for each in reversed(seen) if isinstance(each, SessionNamed)), None)
    if isinstance(result, TurnFailed):
        return " · ".join(filter(None, (str(result.code), result.message, result.detail))), named
    return result, named
