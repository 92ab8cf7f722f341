"""The real programs that speak ACP, each in one process: texts, tools, questions, errors and an end in mid-turn.

Whole runs are in test_suite_sticky.py; here it is the conversation alone, driven as a run would drive it.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clis import MODEL, NotInstalled
from double import ModelDouble, call_tool, fail, hang, run_shell, say
from engines_under_test import ENGINES

from askback.core.errors import ErrorCode
from askback.core.runs import Mode, ProfileKind
from askback.engines import registry
from askback.engines.base import Completed, Probe, Reply, Stream, ToolEnded, Turn, TurnFailed
from support.terminal import Talk, write_files

DEADLINE_SEC = 120
SLOW = ("gemini", "qwen", "opencode")
"""They take seconds to start, and are left to `make engines`."""
LONG = "All of it:\n" + "line @notes.txt /quit \n" * 45_000


def talk_with(name: str, double: ModelDouble, folder: Path, **changes: Any) -> Talk:
    """The program, pointed at the double, in a home and a folder of its own; skips where it is not installed."""
    under, engine = ENGINES[name], registry.get(name)
    assert engine.can_stay
    try:
        command = under.find()
    except NotInstalled as missing:
        pytest.skip(str(missing))
    home, cwd, aim = folder / "home", folder / "work", under.aim(double.url)
    (home / "tmp").mkdir(parents=True)
    cwd.mkdir()
    write_files(home, {path: content.encode() for path, content in aim.files.items()})
    turn = Turn(
        prompt="",
        mode=Mode.INTERACTIVE,
        attempt_number=1,
        command=command,
        cwd=str(cwd),
        home=str(home),
        skill_dir="skill",
        probe=Probe(kind=ProfileKind.RESUMABLE, reason="tested", features=("exclude-tools",)),
        model=under.model,
        env=aim.env,
    )
    places = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home / "tmp")}
    return Talk(engine, replace(turn, **changes), places, turn_timeout_sec=DEADLINE_SEC)


@pytest.mark.contract("W-6", "X-9", "H-7")
@pytest.mark.parametrize("name", ["iflow", *(pytest.param(each, marks=pytest.mark.long) for each in SLOW)])
def test_one_process_takes_turn_after_turn(name: str, double: ModelDouble, tmp_path: Path) -> None:
    texts = ["-x first\nsee @notes.txt 𝕏 \u2028 ", "/quit now @notes.txt", "$go /help\n\n", LONG]
    changes = {"model": f"double/{MODEL}"} if name == "opencode" else {}
    talk, made = talk_with(name, double, tmp_path, **changes), tmp_path / "made.txt"
    (tmp_path / "work" / "notes.txt").write_text("not for the model")
    held = hang()
    # A file outside of its folder is what one of them would ask a permission for.
    double.play(say("one"), run_shell(f"echo hi > {made}", saying="Now"), say("two"), say("three"), say("four"))
    # The program in place of iFlow tries again, as the real one did.
    double.play(*[fail(401)] * (3 if name == "iflow" else 1), held)

    async def main() -> None:
        async with talk:
            assert await talk.say(texts[0]) == Completed(messages=("one",))
            assert await talk.say(texts[1]) == Completed(messages=("Now", "two"))
            assert [each.ok for each in talk.told(ToolEnded)] == [True]
            assert await talk.say(texts[2]) == Completed(messages=("three",))
            assert await talk.say(texts[3]) == Completed(messages=("four",))
            broke = await talk.say("Fail")
            assert isinstance(broke, TurnFailed)
            assert broke.code is ErrorCode.ENGINE_AUTH_REQUIRED
            turn = asyncio.create_task(talk.say("Wait"))
            assert await asyncio.to_thread(held.reached.wait, DEADLINE_SEC)
            await talk.close(patience_sec=0)
            ended = await turn
            assert isinstance(ended, TurnFailed)
            assert ended.code is ErrorCode.ENGINE_CRASHED

    asyncio.run(main())
    assert made.read_text() == "hi\n"
    assert len(talk.sessions) == 1
    heard = "\n".join(double.requests[-1].user_texts)
    assert [heard.count(text) for text in texts] == [1, 1, 1, 1]
    assert "not for the model" not in heard


@pytest.mark.long
@pytest.mark.contract("T-8")
def test_the_ask_tool_of_qwen_waits_for_the_user(double: ModelDouble, tmp_path: Path) -> None:
    talk, arguments = talk_with("qwen", double, tmp_path), ENGINES["qwen"].ask_arguments
    double.play(call_tool("ask_user_question", arguments, saying="One moment."), say("Blue it is."))
    double.play(fail(500, body=ENGINES["qwen"].error_body))

    async def main() -> None:
        async with talk:
            assert await talk.say("Paint the wall") == Completed(messages=("One moment.",))
            assert talk.question.prompt == "Which colour?"
            assert await talk.say("", Reply(response="blue", answered=True)) == Completed(messages=("Blue it is.",))
            broke = await talk.say("Fail")
            assert isinstance(broke, TurnFailed)
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
        async with talk:
            for prompt in ("Paint the wall", "ANSWER blue", "CASETOOL"):
                assert isinstance(await talk.say(prompt), Completed)

    asyncio.run(main())
    recorded = [line[2:] for line in RECORDED.read_bytes().splitlines() if line.startswith(b"<")]
    # The last of them is how a turn ended that was canceled.
    told = [line for stream, line in talk.printed if stream is Stream.STDOUT]
    assert [form(line) for line in told] == [form(line) for line in recorded[:-1]]
