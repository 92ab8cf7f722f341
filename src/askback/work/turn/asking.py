"""The question that an engine's ask tool puts in a turn: checked at the call, kept until the turn is over.

It is only kept in memory. A turn that is interrupted by the end of this program is repeated, and asks again; so a run has
its question once.
"""

from __future__ import annotations

import asyncio
import logging

from askback.core.interactions import Json, Question
from askback.core.runs import Mode, Run
from askback.engines.answers.tool_calls import read_call
from askback.engines.base import AskToolEngine, Engine
from askback.installed.probes import EngineSetup
from askback.process.ask_socket import AskSocket
from askback.process.workspace import Workspace

log = logging.getLogger(__name__)

PARTING_SEC = 60.0
"""How long a turn may continue after its question. A model needs one more request to end its turn."""

RECORDED = "The question is recorded. End your turn now: the answer will be your next message."
_NO_TURN = "No turn is open in which a question could be asked."
_ONE_ONLY = (
    "This turn already has a question, and this one was not recorded. End your turn now. "
    "Ask this one when you have the answer to the first."
)


def has_ask_tool(engine: Engine, setup: EngineSetup, mode: Mode) -> bool:
    able = isinstance(engine, AskToolEngine) and engine.takes_ask_tool
    return able and setup.ask_tool and mode is Mode.INTERACTIVE


class AskDesk:
    """Takes the questions of one process, at most one in a turn. A call that is repeated is accepted again."""

    def __init__(self) -> None:
        self.question: Question | None = None
        self._put = asyncio.Event()
        self._is_open = False
        self._socket: AskSocket | None = None

    async def open(self, workspace: Workspace) -> None:
        """Let the processes of a run reach it, through a socket in the run's folder."""
        listening = AskSocket(workspace.tmp, self.take)
        try:
            await listening.open()
        except OSError as error:
            # The tool tells the model to ask with a JSON block instead.
            log.warning("the ask tool cannot be reached: %s", error, extra={"run": workspace.root.name})
        else:
            self._socket = listening

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def begin_turn(self) -> None:
        self.question, self._is_open = None, True
        self._put.clear()

    def end_turn(self) -> None:
        """Take no more questions. The one of the turn stays until the next."""
        self._is_open = False

    def take(self, arguments: Json) -> tuple[bool, str]:
        """Whether the question is accepted, and what the model gets to read."""
        if not self._is_open:
            return False, _NO_TURN
        put = read_call(arguments)
        if put.problems:
            listed = "\n".join(f"- {problem}" for problem in put.problems)
            return False, f"The question is malformed and was not recorded. Correct it and call again:\n{listed}"
        if self.question is not None and self.question != put.question:
            return False, _ONE_ONLY
        self.question = put.question
        self._put.set()
        return True, RECORDED

    async def overdue(self, run: Run) -> None:
        """Wait until a turn that has asked should have ended. A sticky run would end with its process, so it may continue."""
        await self._put.wait()
        await (asyncio.Event().wait() if run.sticky else asyncio.sleep(PARTING_SEC))
