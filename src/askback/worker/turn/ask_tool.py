"""The questions that an engine asks by its ask tool: each is checked at the call, and is the question of its turn.

A question is only in memory until the turn is over. A turn that is interrupted by the end of this instance is repeated, and
asks again; so a run has its question once.

A call that is *held* waits for the answer, also while the run waits. It is only a shortcut: the run has its question like any
other, and an answer that cannot be given to the call is the next message. A call that is *deferred* ends the turn without
being made, and the engine makes it when it resumes. An empty file beside the session, in the home, records it: it is saved, restored and
copied with the session. The engine can write there as well; a file that it forges only makes its next message the result of a
call.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass

from askback.catalog.probes import EngineSetup
from askback.core.interactions import Json, Question
from askback.core.runs import Mode, Run, TurnKind
from askback.engines.base import Engine
from askback.fs import beneath
from askback.process.ask_socket import Answer, AskSocket, HeldCall, in_thread
from askback.process.ask_tool_program import RECORDED
from askback.questions.finding import PutQuestion, read_call
from askback.worker.turn.gate import Gate
from askback.workspace.layout import Workspace

log = logging.getLogger(__name__)

MAX_RESULT_BYTES = 6_000
"""Engines cut long results of tools. A longer answer is a message."""
MAX_CALLS = 100
"""Calls that are read in a turn, those of the engine's hook included. Each costs time."""
_DEFERRED_FILE = ".askback-deferred"
_NO_TURN = "No turn is open in which a question could be asked."
_ONE_ONLY = (
    "This turn already has a question, and this one was not recorded. End your turn now. "
    "Ask this one when you have the answer to the first."
)
_TOO_MANY = (
    "This turn has called the tool too often, and this question was not recorded. "
    "Ask with a JSON block at the end of your message instead."
)


def has_ask_tool(engine: Engine, setup: EngineSetup, mode: Mode) -> bool:
    return engine.takes_ask_tool and setup.ask_tool and mode is Mode.INTERACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredCall:
    """A call that ended the last turn without being made. `answer` is its result; None if the answer is a message."""

    answer: str | None


def fits_result(text: str) -> bool:
    """Whether an answer can be the result of a call."""
    return len(json.dumps(text)) <= MAX_RESULT_BYTES


class AskTool:
    """Takes the questions of one process, at most one in a turn. A call that is repeated is accepted again."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate
        """Decides on the calls of all tools."""
        if gate is not None:
            gate.on_question = self._ask_approval
        self.question: Question | None = None
        self.put = asyncio.Event()
        """Set when the turn has its question."""
        self._is_open = False
        self._turn = 0
        self._calls_left = 0
        self._may_hold = False
        self._deferred: DeferredCall | None = None
        self._calls: list[HeldCall] = []
        """Those that wait for an answer."""
        self._socket: AskSocket | None = None

    async def open(self, workspace: Workspace) -> None:
        """Let the processes of a run reach it, through a socket in the run's folder."""
        gate = self.gate
        decide = None if gate is None else lambda payload: gate.answer(payload, self._defer_gated)
        listening = AskSocket(workspace.tmp, self.take, self.defer, self.refusal, decide)
        try:
            await listening.open()
        except OSError as error:
            if gate is not None:
                raise
            # The tool tells the model to ask with a JSON block instead.
            log.warning("the ask tool cannot be reached: %s", error, extra={"run": workspace.root.name})
        else:
            self._socket = listening

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def begin_turn(self, *, may_hold: bool, deferred: DeferredCall | None = None) -> None:
        """`may_hold`: calls wait until it is known whether they can wait for the answer.

        `deferred`: the call that the engine has not made in its last turn, and makes first in this one.
        """
        self.question, self._is_open, self._may_hold = None, True, may_hold
        self._turn += 1
        self._calls_left = MAX_CALLS
        self._deferred = deferred
        self.put.clear()

    def end_turn(self) -> None:
        """Take no more questions, and allow no more calls. The question of the turn stays until the next."""
        self._is_open = False
        if self.gate is not None:
            self.gate.close()

    @property
    def has_answer_left(self) -> bool:
        """Whether the answer of this turn was for a deferred call that the engine did not make again."""
        return self._deferred is not None and self._deferred.answer is not None

    def refusal(self) -> str | None:
        """The reason for which the next call is refused unread; None if it is read."""
        if not self._is_open:
            return _NO_TURN
        self._calls_left -= 1
        return None if self._calls_left >= 0 else _TOO_MANY

    async def _read(self, arguments: Json) -> PutQuestion | None:
        """The question of a call; None if its turn is over."""
        turn = self._turn
        put = await in_thread(read_call, arguments)
        return put if self._is_open and self._turn == turn else None

    async def defer(self, arguments: Json) -> bool:
        """Whether a call is to be deferred: it asks a proper question, which is then that of the turn."""
        if self._deferred is not None and self._deferred.answer is not None:
            return False
        if self._deferred is not None:
            # It stays deferred, once: its answer is a message.
            self._deferred = None
            return True
        put = await self._read(arguments)
        if put is None or put.problems or self.question not in (None, put.question):
            return False
        self.question = put.question
        self.put.set()
        return True

    async def _defer_gated(self, arguments: Json) -> bool:
        """As `defer`, for an engine whose gate is its only hook."""
        return self.refusal() is None and await self.defer(arguments)

    def _ask_approval(self, question: Question) -> None:
        """The question about a tool call comes before one of the model, which it can ask again."""
        self.question = question
        self.put.set()

    async def take(self, arguments: Json) -> Answer | HeldCall:
        if not self._is_open:
            return False, _NO_TURN
        if self._deferred is not None:
            answer, self._deferred = self._deferred.answer, None
            return True, RECORDED if answer is None else answer
        put = await self._read(arguments)
        if put is None:
            return False, _NO_TURN
        if self.question is not None and self.question.approval:
            return False, _ONE_ONLY
        if put.problems:
            listed = "\n".join(f"- {problem}" for problem in put.problems)
            return False, f"The question is malformed and was not recorded. Correct it and call again:\n{listed}"
        if self.question is not None and self.question != put.question:
            return False, _ONE_ONLY
        self.question = put.question
        self.put.set()
        if not self._may_hold:
            return True, RECORDED
        call = HeldCall()
        self._calls = [*self._waiting, call]
        return call

    # Held calls.

    @property
    def _waiting(self) -> list[HeldCall]:
        return [call for call in self._calls if not call.gone.is_set()]

    @property
    def holds(self) -> bool:
        """Whether a call waits for its answer."""
        return bool(self._waiting)

    async def gone(self) -> None:
        """Wait until no call waits any more."""
        for call in self._calls:
            await call.gone.wait()

    def release_calls(self) -> None:
        """Let the calls that wait return, so that the model ends its turn: the answer will be its next message."""
        self._may_hold = False
        for call in self._waiting:
            call.tell(True, RECORDED)

    async def answer(self, text: str) -> bool:
        """Give the answer to the calls that wait. False if the engine may not have got it."""
        calls = self._waiting
        for call in calls:
            call.tell(True, text)
        for call in calls:
            await call.gone.wait()
        return bool(calls) and all(call.delivered for call in calls)


# Deferred calls.


def record_deferred(workspace: Workspace, *, deferred: bool) -> None:
    """Record at the end of a turn whether its call is deferred."""
    if deferred:
        workspace.write_home({_DEFERRED_FILE: b""})
    else:
        beneath.remove(workspace.root, f"{workspace.home.name}/{_DEFERRED_FILE}")


def has_decided_call(run: Run, workspace: Workspace) -> bool:
    """Whether the session has the call that the last answer is about: it makes it, and the gate decides on it."""
    answered = None if run.permissions is None else run.permissions.answered
    if answered is None or run.next_turn.kind is not TurnKind.REPLY:
        return False
    asked_about = answered.interaction_id == run.next_turn.interaction_id
    return asked_about and beneath.has_file(workspace.root, f"{workspace.home.name}/{_DEFERRED_FILE}")


def deferred_call(run: Run, engine: Engine, workspace: Workspace, prompt: str) -> DeferredCall | None:
    """The call that the session has; its answer is the prompt of the turn, unless that must be a message.

    A turn that was restarted gets a message: perhaps the engine could not make the call.
    """
    if not engine.takes_ask_tool:
        return None
    if not beneath.has_file(workspace.root, f"{workspace.home.name}/{_DEFERRED_FILE}"):
        # Perhaps something else is there, which nobody but the engine has put there.
        record_deferred(workspace, deferred=False)
        return None
    by_result = run.next_turn.kind is TurnKind.REPLY and run.restarts == 0 and fits_result(prompt)
    return DeferredCall(answer=prompt if by_result else None)
