"""The MCP server with the ask tool, as a program of its own, and the socket that it connects to."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from askback.core.interactions import Json
from askback.process.ask_socket import AskSocket, ask_tool_command
from askback.process.ask_tool_program import CALL_BYTES, PROTOCOL_VERSIONS, TOOL

LIMIT_SEC = 120.0


class Tool:
    """A client of the program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._calls = 0

    async def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._calls += 1
        await self.send(json.dumps({"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params}).encode())
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(await self.process.stdout.readline())
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._calls)
        return answer

    async def put(self, arguments: Json) -> tuple[bool, str]:
        result = (await self.request("tools/call", name=TOOL, arguments=arguments))["result"]
        (content,) = result["content"]
        return result["isError"], content["text"]


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Tool]:
    process = await asyncio.create_subprocess_exec(
        *ask_tool_command(folder), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24
    )
    try:
        async with asyncio.timeout(LIMIT_SEC):
            yield Tool(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def listening(folder: Path, *answers: tuple[bool, str]) -> AsyncIterator[list[Json]]:
    """A socket that gives these answers; yields what it was asked."""
    asked: list[Json] = []
    left = iter(answers)

    async def check(arguments: Json) -> tuple[bool, str]:
        asked.append(arguments)
        return next(left)

    opened = AskSocket(folder, check)
    await opened.open()
    try:
        yield asked
    finally:
        opened.close()


def test_it_introduces_itself_in_every_version(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(tmp_path) as tool:
            for version in PROTOCOL_VERSIONS:
                answer = await tool.request("initialize", protocolVersion=version)
                assert answer["result"]["protocolVersion"] == version
            newest = (await tool.request("initialize", protocolVersion="2099-01-01"))["result"]["protocolVersion"]
            assert newest == PROTOCOL_VERSIONS[0]
            await tool.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
            assert (await tool.request("ping"))["result"] == {}
            (described,) = (await tool.request("tools/list"))["result"]["tools"]
            assert described["name"] == TOOL
            assert described["inputSchema"]["required"] == ["interaction_id", "prompt"]
            for method in ("server/discover", "resources/list", "prompts/list"):
                assert (await tool.request(method))["error"]["code"] == -32601
            assert (await tool.request("tools/call", name="other"))["error"]["code"] == -32602

    asyncio.run(main())


@pytest.mark.contract("F-4")
def test_a_call_brings_back_what_askback_says(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            listening(tmp_path, (False, "no prompt"), (True, "recorded: 日本")) as asked,
            started(tmp_path) as tool,
        ):
            assert await tool.put({}) == (True, "no prompt")
            assert await tool.put({"prompt": "naïve 日本 🙂\n"}) == (False, "recorded: 日本")
            assert asked == [{}, {"prompt": "naïve 日本 🙂\n"}]

    asyncio.run(main())


@pytest.mark.contract("F-4")
def test_a_question_that_is_too_large_or_cannot_be_delivered_is_an_error_of_the_tool(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(tmp_path) as tool:
            failed, text = await tool.put({"prompt": "Which colour?"})
            assert failed
            assert "JSON block" in text
            async with listening(tmp_path, (True, "recorded")) as asked:
                failed, text = await tool.put({"prompt": "x" * CALL_BYTES})
                assert failed
                assert "64,000 bytes" in text
                assert asked == []
                # A long text is not longer for being Chinese; half a character harms nothing.
                long = "色" * 20_000 + "\ud800"
                assert await tool.put({"prompt": long}) == (False, "recorded")
                assert asked == [{"prompt": "色" * 20_000 + "\ufffd"}]

    asyncio.run(main())


def test_nonsense_is_ignored_and_the_end_of_input_ends_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(tmp_path) as tool:
            for line in (b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"id": 1}', b'{"id": 1, "method": 7}'):
                await tool.send(line)
            assert (await tool.request("ping"))["result"] == {}
            assert tool.process.stdin is not None
            tool.process.stdin.close()
            assert await tool.process.wait() == 0

    asyncio.run(main())


@pytest.mark.contract("F-5")
def test_it_can_be_killed_while_a_call_is_pending(tmp_path: Path) -> None:
    """The socket takes the next call, of another program."""

    async def main() -> None:
        async with listening(tmp_path, (True, "recorded")) as asked:
            async with started(tmp_path) as tool:
                reached = asyncio.Event()
                # It is stopped before it can send the question, so the call is pending when it is killed.
                tool.process.send_signal(signal.SIGSTOP)
                call = asyncio.create_task(tool.put({"prompt": "Lost?"}))
                call.add_done_callback(lambda _: reached.set())
                tool.process.kill()
                await reached.wait()
                assert call.exception() is not None
            async with started(tmp_path) as tool:
                assert await tool.put({"prompt": "Again?"}) == (False, "recorded")
            assert asked == [{"prompt": "Again?"}]

    asyncio.run(main())


def test_the_socket_is_private_and_its_path_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()

    async def main() -> None:
        async with listening(folder, (True, "recorded")), started(folder) as tool:
            (path,) = folder.iterdir()
            assert path.stat().st_mode & 0o777 == 0o600
            assert await tool.put({}) == (False, "recorded")
        assert list(folder.iterdir()) == []

    asyncio.run(main())


def test_what_is_in_the_way_is_replaced_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "run" / "ask.sock").symlink_to(tmp_path / "kept")

    async def main() -> None:
        async with listening(tmp_path / "run", (True, "recorded")), started(tmp_path / "run") as tool:
            assert await tool.put({}) == (False, "recorded")
        assert (tmp_path / "kept").read_text() == "kept"
        (tmp_path / "link").symlink_to(tmp_path / "run")
        with pytest.raises(OSError):
            async with listening(tmp_path / "link"):
                raise AssertionError("it listens")

    asyncio.run(main())
