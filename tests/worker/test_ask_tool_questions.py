"""What an engine cannot do to the server through its ask tool: calls are few, small, and read outside the event loop."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from askback.process.ask_tool_program import RECORDED
from askback.worker.turn.ask_tool import MAX_CALLS, AskTool
from askback.workspace.layout import Workspace

LIMIT_SEC = 60.0
QUESTION: dict[str, Any] = {"interaction_id": "colour", "prompt": "Which colour?"}
ASKED = json.dumps(QUESTION).encode() + b"\n"


class Gated(dict[str, Any]):
    """Arguments that cannot be read until the event loop opens the gate."""

    def __init__(self) -> None:
        super().__init__(QUESTION)
        self.gate = threading.Event()

    def get(self, *given: Any) -> Any:
        assert self.gate.wait(10), "the event loop waits for the check"
        return super().get(*given)


def play(main: Callable[[AskTool], Coroutine[Any, Any, None]], folder: Path | None = None) -> None:
    async def bounded() -> None:
        ask_tool = AskTool()
        ask_tool.begin_turn(may_hold=False)
        async with asyncio.timeout(LIMIT_SEC):
            if folder is not None:
                (folder / "tmp").mkdir()
                await ask_tool.open(Workspace(folder))
            try:
                await main(ask_tool)
            finally:
                ask_tool.close()

    asyncio.run(bounded())


async def call(folder: Path, line: bytes) -> dict[str, Any]:
    """What the socket responds; nothing if it closes the connection."""
    at = os.open(folder / "tmp", os.O_RDONLY)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{at}/ask.sock")
    finally:
        os.close(at)
    try:
        writer.write(line)
        await writer.drain()
        return json.loads(await reader.readline() or b"{}")  # type: ignore[no-any-return]
    except ConnectionError:
        return {}
    finally:
        writer.close()


@pytest.mark.parametrize("name", ["take", "defer"])
def test_a_call_is_checked_while_the_event_loop_goes_on(name: str) -> None:
    async def main(ask_tool: AskTool) -> None:
        asked = Gated()
        task = asyncio.create_task(getattr(ask_tool, name)(asked))
        await asyncio.sleep(0)
        asked.gate.set()
        assert await task == {"take": (True, RECORDED), "defer": True}[name]

    play(main)


@pytest.mark.parametrize("name", ["take", "defer"])
def test_a_call_whose_turn_ends_meanwhile_asks_nothing(name: str) -> None:
    async def main(ask_tool: AskTool) -> None:
        asked = Gated()
        task = asyncio.create_task(getattr(ask_tool, name)(asked))
        await asyncio.sleep(0)
        ask_tool.end_turn()
        ask_tool.begin_turn(may_hold=False)
        asked.gate.set()
        assert await task in (False, (False, "No turn is open in which a question could be asked."))
        assert ask_tool.question is None

    play(main)


@pytest.mark.contract("F-4")
def test_a_turn_reads_a_limited_number_of_calls(tmp_path: Path) -> None:
    async def main(ask_tool: AskTool) -> None:
        malformed = [await call(tmp_path, b"{}\n") for _ in range(MAX_CALLS - 1)]
        assert all("malformed" in each["text"] for each in malformed)
        assert await call(tmp_path, b"?" + ASKED) == {"defer": True}
        refused = await call(tmp_path, ASKED)
        assert (refused["accepted"], "too often" in refused["text"]) == (False, True)
        assert await call(tmp_path, b"?" + ASKED) == {"defer": False}
        ask_tool.end_turn()
        ask_tool.begin_turn(may_hold=False)
        assert await call(tmp_path, ASKED) == {"accepted": True, "text": RECORDED}

    play(main, tmp_path)


def test_a_call_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    async def main(ask_tool: AskTool) -> None:
        large = {**QUESTION, "response_schema": {"anyOf": [{}] * 30_000}}
        assert await call(tmp_path, json.dumps(large).encode() + b"\n") == {}
        assert await call(tmp_path, ASKED) == {"accepted": True, "text": RECORDED}

    play(main, tmp_path)
