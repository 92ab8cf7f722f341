"""The ask tool's program while Askback holds a call: it reports progress, serves others, and never answers by itself."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from askback.core.interactions import Json
from askback.process import ask_socket
from askback.process.ask_socket import Answer, AskSocket, HeldCall
from askback.process.ask_tool_program import RECORDED

LIMIT_SEC = 60.0
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import ask_tool_program
ask_tool_program._BEAT_SEC = 0.05
ask_tool_program._CUT_SEC = 0.2
ask_tool_program.AskTool(sys.argv[2]).serve()
"""
CALL = {"name": "put_question", "arguments": {}, "_meta": {"progressToken": "t"}}


class Tool:
    """The program, with a desk that holds every call."""

    def __init__(self, process: asyncio.subprocess.Process, desk: Desk) -> None:
        self._process = process
        self.desk = desk

    def send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def next(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message: dict[str, Any] = json.loads(line)
            if wanted(message):
                return message
        raise AssertionError("it has ended")

    async def response(self, request_id: int) -> dict[str, Any]:
        return await self.next(lambda message: message.get("id") == request_id)

    async def held(self, request_id: int = 1) -> HeldCall:
        """A call that Askback holds, and that the program knows to be held."""
        self.send(id=request_id, method="tools/call", params=CALL)
        await self.next(lambda message: message.get("method") == "notifications/progress")
        return self.desk.calls[-1]


class Desk:
    def __init__(self) -> None:
        self.calls: list[HeldCall] = []

    async def take(self, arguments: Json) -> Answer | HeldCall:
        self.calls.append(HeldCall())
        return self.calls[-1]


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Tool]:
    desk = Desk()
    socket = AskSocket(folder, desk.take)
    await socket.open()
    words = (str(Path(ask_socket.__file__).parent), str(folder / "ask.sock"))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, *words, stdin=pipe, stdout=pipe)
    try:
        yield Tool(process, desk)
    finally:
        process.kill()
        await process.wait()
        socket.close()


def play(folder: Path, main: Callable[[Tool], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_SEC), started(folder) as tool:
            await main(tool)

    asyncio.run(bounded())


def text_of(message: dict[str, Any]) -> str:
    return str(message["result"]["content"][0]["text"])


@pytest.mark.contract("F-5")
def test_progress_is_reported_until_the_answer_comes(tmp_path: Path) -> None:
    async def main(tool: Tool) -> None:
        call = await tool.held()
        beats = [
            (await tool.next(lambda message: message.get("method") == "notifications/progress"))["params"]
            for _ in range(3)
        ]
        assert [each["progressToken"] for each in beats] == ["t"] * 3
        assert sorted({each["progress"] for each in beats}) == [each["progress"] for each in beats]
        call.tell(True, "blue")
        answered = await tool.response(1)
        assert (text_of(answered), answered["result"]["isError"]) == ("blue", False)
        await call.gone.wait()
        assert call.delivered

    play(tmp_path, main)


def test_other_requests_are_served_while_a_call_is_held(tmp_path: Path) -> None:
    async def main(tool: Tool) -> None:
        first = await tool.held(1)
        tool.send(id=7, method="ping")
        assert (await tool.response(7))["result"] == {}
        second = await tool.held(2)
        second.tell(False, "second")
        assert text_of(await tool.response(2)) == "second"
        first.tell(True, "first")
        assert text_of(await tool.response(1)) == "first"

    play(tmp_path, main)


@pytest.mark.contract("B-4")
def test_a_call_that_the_engine_gives_up_is_gone_and_gets_no_answer(tmp_path: Path) -> None:
    async def main(tool: Tool) -> None:
        call = await tool.held()
        tool.send(method="notifications/cancelled", params={"requestId": 1, "reason": "time-out"})
        await call.gone.wait()
        call.tell(True, "blue")
        tool.send(id=8, method="ping")
        seen = await tool.next(lambda message: "id" in message)
        assert (seen["id"], call.delivered) == (8, False)

    play(tmp_path, main)


@pytest.mark.contract("F-5")
def test_an_engine_is_kept_waiting_for_a_while_when_askback_has_ended(tmp_path: Path) -> None:
    """Its keeper ends it in that time. If not, the model is asked to end its turn: the run has its question."""

    async def main(tool: Tool) -> None:
        call = await tool.held()
        # Closes the connection, as the end of Askback does.
        call.answer.cancel()
        answered = await tool.response(1)
        assert text_of(answered) == RECORDED

    play(tmp_path, main)
