"""The real programs that speak ACP, each in one process: texts, tools, questions, errors and an end in mid-turn.

Whole runs are in test_suite_sticky.py; here it is the conversation alone, driven as a run would drive it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clis import MODEL, NotInstalled
from double import ModelDouble, call_tool, fail, hang, run_shell, say
from engines_under_test import ENGINES, EngineUnderTest

from askback.core.errors import ErrorCode
from askback.core.runs import Mode, ProfileKind
from askback.engines import registry
from askback.engines.base import (
    Asked,
    Broke,
    Completed,
    Exit,
    Probe,
    Reply,
    ResidentEngine,
    Seen,
    Send,
    SessionNamed,
    Stream,
    ToolEnded,
    Turn,
    TurnOver,
)

DEADLINE_SEC = 120
LONG = "All of it:\n" + "line @notes.txt /quit \n" * 45_000


class Talk:
    """A program in a home and folder of its own, and the conversation with it."""

    def __init__(self, under: EngineUnderTest, url: str, folder: Path) -> None:
        engine = registry.get(under.name)
        assert isinstance(engine, ResidentEngine)
        self.engine = engine
        self.home, self.cwd = folder / "home", folder / "work"
        (self.home / "tmp").mkdir(parents=True)
        self.cwd.mkdir()
        aim = under.aim(url)
        _write(self.home, {path: content.encode() for path, content in aim.files.items()})
        self.turn = Turn(
            prompt="",
            mode=Mode.INTERACTIVE,
            attempt_number=1,
            command=under.find(),
            cwd=str(self.cwd),
            home=str(self.home),
            skill_dir="skill",
            probe=Probe(kind=ProfileKind.RESUMABLE, reason="tested", features=("exclude-tools",)),
            model=under.model,
            env=aim.env,
        )
        self.seen: list[Seen] = []
        self.told: list[bytes] = []
        self._lines: asyncio.Queue[tuple[Stream, bytes | None]] = asyncio.Queue()

    @contextlib.asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        launch = self.engine.reside(self.turn)
        _write(self.home, launch.files)
        _write(self.cwd, launch.work_files)
        places = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.home / "tmp")}
        self.talk = self.engine.conversation(self.turn)
        self.child = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.cwd,
            env={**places, **self.turn.env, **launch.env},
            start_new_session=True,
            limit=2**24,
        )
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        try:
            async with asyncio.timeout(DEADLINE_SEC), asyncio.TaskGroup() as group:
                group.create_task(self._read(Stream.STDOUT, self.child.stdout))
                group.create_task(self._read(Stream.STDERR, self.child.stderr))
                try:
                    yield
                finally:
                    await self.kill()
        finally:
            await self.kill()

    async def _read(self, stream: Stream, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self._lines.put_nowait((stream, line.removesuffix(b"\n")))
            if stream is Stream.STDOUT:
                self.told.append(line)
        self._lines.put_nowait((stream, None))

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        await self.child.wait()

    async def say(self, prompt: str, reply: Reply | None = None) -> Completed | Broke:
        """One turn, from its start to its end or to that of the program."""
        over = await self._take(self.talk.say(prompt, reply))
        while not over:
            stream, line = await self._lines.get()
            if line is not None:
                over = await self._take(self.talk.feed(stream, line))
            elif stream is Stream.STDOUT:
                return self.talk.finish(Exit(code=await self.child.wait()))
        return self.talk.outcome()

    async def _take(self, seen: Iterable[Seen]) -> bool:
        over = False
        for each in seen:
            if isinstance(each, Send):
                assert self.child.stdin is not None
                self.child.stdin.write(each.data)
            else:
                self.seen.append(each)
                over = over or isinstance(each, TurnOver | Asked)
        return over


def _write(folder: Path, files: Any) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def talk_with(name: str, double: ModelDouble, folder: Path) -> Talk:
    under = ENGINES[name]
    try:
        under.find()
    except NotInstalled as missing:
        pytest.skip(str(missing))
    return Talk(under, double.url, folder)


@pytest.mark.contract("W-6", "X-9", "H-7")
@pytest.mark.parametrize("name", ["gemini", "qwen", "opencode", "iflow"])
def test_one_process_takes_turn_after_turn(name: str, double: ModelDouble, tmp_path: Path) -> None:
    texts = ["-x first\nsee @notes.txt 𝕏 \u2028 ", "/quit now @notes.txt", "$go /help\n\n", LONG]
    talk, made = talk_with(name, double, tmp_path), tmp_path / "made.txt"
    if name == "opencode":
        talk.turn = replace(talk.turn, model=f"double/{MODEL}")
    (talk.cwd / "notes.txt").write_text("not for the model")
    held = hang()
    # A file outside of its folder is what one of them would ask a permission for.
    double.play(say("one"), run_shell(f"echo hi > {made}", saying="Now"), say("two"), say("three"), say("four"))
    # The program in place of iFlow tries again, as the real one did.
    double.play(*[fail(401)] * (3 if name == "iflow" else 1), held)

    async def main() -> None:
        async with talk.living():
            assert await talk.say(texts[0]) == Completed(messages=("one",))
            assert await talk.say(texts[1]) == Completed(messages=("Now", "two"))
            assert await talk.say(texts[2]) == Completed(messages=("three",))
            assert await talk.say(texts[3]) == Completed(messages=("four",))
            broke = await talk.say("Fail")
            assert isinstance(broke, Broke)
            assert broke.code is ErrorCode.ENGINE_AUTH_REQUIRED
            turn = asyncio.create_task(talk.say("Wait"))
            assert await asyncio.to_thread(held.reached.wait, DEADLINE_SEC)
            await talk.kill()
            ended = await turn
            assert isinstance(ended, Broke)
            assert ended.code is ErrorCode.ENGINE_CRASHED

    asyncio.run(main())
    assert made.read_text() == "hi\n"
    assert [each.ok for each in talk.seen if isinstance(each, ToolEnded)] == [True]
    assert len([each for each in talk.seen if isinstance(each, SessionNamed)]) == 1
    heard = "\n".join(double.requests[-1].user_texts)
    assert [heard.count(text) for text in texts] == [1, 1, 1, 1]
    assert "not for the model" not in heard


@pytest.mark.contract("T-8")
def test_the_ask_tool_of_qwen_waits_for_the_user(double: ModelDouble, tmp_path: Path) -> None:
    talk, arguments = talk_with("qwen", double, tmp_path), ENGINES["qwen"].ask_arguments
    double.play(call_tool("ask_user_question", arguments, saying="One moment."), say("Blue it is."))
    double.play(fail(500, body=ENGINES["qwen"].error_body))

    async def main() -> None:
        async with talk.living():
            assert await talk.say("Paint the wall") == Completed(messages=("One moment.",))
            assert isinstance(talk.seen[-1], Asked)
            assert talk.seen[-1].question.prompt == "Which colour?"
            assert await talk.say("", Reply(response="blue", decided=True)) == Completed(messages=("Blue it is.",))
            broke = await talk.say("Fail")
            assert isinstance(broke, Broke)
            assert broke.code is ErrorCode.ENGINE_API_ERROR

    asyncio.run(main())
    (result,) = double.requests[1].tool_results
    assert "**Colour**: blue" in result


RECORDED = Path(__file__).resolve().parents[1] / "engines" / "iflow" / "resident" / "talk"


def form(line: bytes) -> Any:
    """What kind of message a line is, and the names of what it holds."""
    if not line.startswith(b"{"):
        return line.strip()
    message = json.loads(line)
    update = message.get("params", {}).get("update", {})
    known = {name: update[name] for name in ("sessionUpdate", "status", "toolName", "kind") if name in update}
    return message.get("id"), known, sorted(update), message.get("result", {}).get("stopReason")


def test_the_program_in_place_of_iflow_stays_as_it_was_recorded(double: ModelDouble, tmp_path: Path) -> None:
    talk = talk_with("iflow", double, tmp_path)
    double.play(say("Which colour?"), say("Resumed."), run_shell("echo hi"), say("Done."))

    async def main() -> None:
        async with talk.living():
            for prompt in ("Paint the wall", "ANSWER blue", "CASETOOL"):
                assert isinstance(await talk.say(prompt), Completed)

    asyncio.run(main())
    recorded = [line[2:] for line in RECORDED.read_bytes().splitlines() if line.startswith(b"<")]
    # The last of them is how a turn ended that was canceled.
    assert [form(line) for line in talk.told] == [form(line) for line in recorded[:-1]]
