"""Questions that an engine asks by its ask tool: checked at the call, asked at the end of the turn, once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from askback.core.errors import Invalid, RefusalCode
from askback.core.runs import Run, RunState
from askback.process import tree
from askback.process.ask_tool_program import RECORDED
from askback.worker.turn import instruct
from support.data_folder import ASK, COLOUR, FINISH, World, over, run_async, submit, until, waiting

ON = "[engines.scripted]\nask_tool = true\n"
QUESTION: dict[str, Any] = {"interaction_id": "colour", "prompt": "Which colour?", "options": ["red", "blue"]}
PUT = {"put_question": QUESTION}
MALFORMED = {"put_question": {"interaction_id": "colour", "prompt": "  "}}
STICKY = {"interactive_profile": "sticky_process"}
WARM = f"warm_sec = 600\n{ON}"
BUSY = {"tool": {"name": "shell", "ends": False}}
"""Another tool at work: a call beside it is not held."""


def tool_results(world: World, run: Run) -> list[tuple[bool, str]]:
    """What the tool told the model, by the engine's own session."""
    (session,) = world.sessions(run.id)
    return [(entry["ok"], entry["output"]) for entry in session if entry["type"] == "tool"]


async def interactions(app: Any, run: Run) -> list[str]:
    return [each.interaction_id for each in await app.service.store.interactions(run.id)]


@pytest.mark.contract("F-4", "T-2")
@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_a_malformed_question_is_corrected_in_the_same_turn(world: World, sandbox: str) -> None:
    skill = world.skill([MALFORMED, PUT], [FINISH])

    async def main() -> None:
        async with world.working(f'sandbox = "{sandbox}"\n{ON}') as app:
            asked = await waiting(app, (await submit(app, skill)).id)
            assert asked.pending_interaction is not None
            assert (asked.pending_interaction.prompt, asked.pending_interaction.kind) == ("Which colour?", "choice")
            assert (asked.attempt_number, asked.warnings) == (1, ())
            (refused, why), (recorded, told) = tool_results(world, asked)
            assert (refused, recorded, told) == (False, True, RECORDED)
            assert "prompt: it is missing" in why
            await app.service.reply(asked.id, "blue")
            run = await over(app, asked.id)
            assert (run.state, run.attempt_number, await interactions(app, run)) == (RunState.SUCCEEDED, 2, ["colour"])
            assert (await app.service.result(run.id)).data == {"colour": "blue"}
        first, second = world.prompts(run.id)
        assert "`put_question`" in first
        # The session may lack the question if the turn was cut off, so the answer repeats it.
        assert "Which colour?" in second

    run_async(main)


@pytest.mark.contract("F-4")
def test_without_the_setting_there_is_no_tool(world: World) -> None:
    skill = world.skill([PUT], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            asked = await waiting(app, (await submit(app, skill)).id)
            assert await interactions(app, asked) == ["colour"]
            assert not (world.data_dir / "runs" / asked.id / "tmp" / "ask.sock").exists()
        assert tool_results(world, asked) == []
        assert "put_question" not in world.prompts(asked.id)[0]

    run_async(main)


def test_an_engine_that_takes_no_tool_is_refused_one(world: World) -> None:
    async def main() -> None:
        with pytest.raises(Invalid) as refused:
            async with world.working("[engines.iflow]\nask_tool = true\n"):
                raise AssertionError("it began")
        (problem,) = refused.value.problems
        assert refused.value.code is RefusalCode.SETTINGS_INVALID
        assert problem.startswith("engines.iflow.ask_tool: iflow takes no tool")

    run_async(main)


def test_an_auto_run_has_no_tool(world: World) -> None:
    skill = world.skill([PUT], [{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working(ON) as app:
            run = await over(app, (await submit(app, skill, mode="auto")).id)
            assert run.state is RunState.SUCCEEDED
        assert tool_results(world, run) == []

    run_async(main)


OUTPUT = {"output": {"colour": "red"}}
BAD_OUTPUT = {"say": 'All done.\n\n{"__SKILL_DONE__": true, "colour": 7}'}
DONE = {"finish": {"colour": "red"}}
BLOCK = {"ask": {**QUESTION, "interaction_id": "block"}}
BAD_BLOCK = {"ask": {"prompt": "No id?"}}

# What else the turn says, and what becomes of the run: a question of the tool is a valid `ask_user` (C-2).
EVIDENCE: dict[str, tuple[list[dict[str, Any]], RunState]] = {
    "nothing": ([], RunState.WAITING_USER),
    "prose": ([{"say": "I have asked."}], RunState.WAITING_USER),
    "marker-and-valid-output": ([DONE], RunState.SUCCEEDED),
    "marker-and-invalid-output": ([BAD_OUTPUT], RunState.WAITING_USER),
    "valid-output-without-marker": ([OUTPUT], RunState.WAITING_USER),
    "a-block-with-another-question": ([BLOCK], RunState.WAITING_USER),
    "a-malformed-block": ([BAD_BLOCK], RunState.WAITING_USER),
}


@pytest.mark.contract("F-4", "C-1", "C-2")
@pytest.mark.parametrize("validation", ["lenient", "strict"])
@pytest.mark.parametrize("case", EVIDENCE)
def test_the_order_of_evidence_is_that_of_a_question_in_a_message(world: World, case: str, validation: str) -> None:
    rest, state = EVIDENCE[case]
    skill = world.skill([PUT, *rest], [FINISH])

    async def main() -> None:
        async with world.working(ON) as app:
            run_id = (await submit(app, skill, options={"ask_user_validation": validation})).id
            run = await (over if state.final else waiting)(app, run_id)
            assert (run.state, run.error, run.warnings) == (state, None, ())
            assert await interactions(app, run) == ([] if state.final else ["colour"])
            assert tool_results(world, run) == [(True, RECORDED)]

    run_async(main)


@pytest.mark.contract("F-4")
def test_a_turn_has_one_question(world: World) -> None:
    other = {"put_question": {"interaction_id": "size", "prompt": "Which size?"}}
    skill = world.skill([PUT, PUT, other], [other], [FINISH])

    async def main() -> None:
        async with world.working(ON) as app:
            asked = await waiting(app, (await submit(app, skill)).id)
            assert [ok for ok, _ in tool_results(world, asked)] == [True, True, False]
            await app.service.reply(asked.id, "blue")
            await until(lambda: len(tool_results(world, asked)) == 4)
            again = await waiting(app, asked.id)
            assert (again.pending_interaction is not None, await interactions(app, again)) == (True, ["colour", "size"])

    run_async(main)


FORM = {
    "interaction_id": "paint",
    "prompt": "About the wall",
    "questions": [
        {"id": "colour", "prompt": "Which colour?", "options": ["red", "blue"]},
        {"id": "coats", "prompt": "How many coats?", "response_schema": {"type": "integer", "minimum": 1}},
    ],
}


@pytest.mark.contract("F-4")
def test_a_form_is_checked_and_asked_as_a_whole(world: World) -> None:
    twice = {**FORM, "questions": [FORM["questions"][0], FORM["questions"][0]]}
    skill = world.skill(
        [{"put_question": twice}, {"put_question": FORM}], [{"finish": {"colour": "{{reply_json.colour}}"}}]
    )

    async def main() -> None:
        async with world.working(ON) as app:
            asked = await waiting(app, (await submit(app, skill)).id)
            assert asked.pending_interaction is not None
            assert (asked.pending_interaction.kind, len(asked.pending_interaction.questions)) == ("form", 2)
            assert "two questions have the id 'colour'" in tool_results(world, asked)[0][1]
            await app.service.reply(asked.id, {"colour": "red", "coats": 2})
            assert (await over(app, asked.id)).state is RunState.SUCCEEDED

    run_async(main)


# Turns that do not end as they should.


@pytest.mark.contract("F-4")
@pytest.mark.parametrize("config", [ON, WARM], ids=["cold", "warm"])
def test_a_model_that_goes_on_is_ended_and_the_question_asked(
    world: World, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    monkeypatch.setattr(instruct, "PARTING_SEC", 0.05)
    skill = world.skill([BUSY, PUT, {"wait_for": "never"}], [DONE])

    async def main() -> None:
        async with world.working(config) as app:
            asked = await waiting(app, (await submit(app, skill)).id)
            assert tree.Tree(mark=asked.id).members() == set()
            await app.service.reply(asked.id, "blue")
            run = await over(app, asked.id)
            assert (run.state, run.attempt_number, await interactions(app, run)) == (RunState.SUCCEEDED, 2, ["colour"])

    run_async(main)


@pytest.mark.contract("F-5")
@pytest.mark.parametrize("config", [ON, WARM], ids=["cold", "warm"])
def test_an_engine_that_is_killed_after_the_call_has_asked(world: World, config: str) -> None:
    asked_file = world.folder / "asked"
    skill = world.skill([BUSY, PUT, {"touch": str(asked_file)}, {"wait_for": "never"}], [DONE])

    async def main() -> None:
        async with world.working(config) as app:
            run_id = (await submit(app, skill)).id
            await until(asked_file.exists)
            running = await app.service.store.get(run_id)
            assert running.process is not None
            os.kill(running.process.pid, signal.SIGKILL)
            asked = await waiting(app, run_id)
            assert (asked.attempt_number, await interactions(app, asked)) == (1, ["colour"])
            await app.service.reply(run_id, "blue")
            run = await over(app, run_id)
            assert (run.state, await interactions(app, run)) == (RunState.SUCCEEDED, ["colour"])

    run_async(main)


@pytest.mark.contract("F-5")
def test_a_tool_that_is_killed_in_the_call_leaves_one_question(world: World) -> None:
    skill = world.skill([{**PUT, "kill": True}, ASK], [FINISH])

    async def main() -> None:
        async with world.working(ON) as app:
            asked = await waiting(app, (await submit(app, skill)).id)
            assert (await interactions(app, asked), tool_results(world, asked)[0][0]) == (["colour"], False)
            await app.service.reply(asked.id, "blue")
            assert (await over(app, asked.id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("F-5")
def test_a_program_that_stops_after_the_call_repeats_the_turn_and_asks_once(world: World) -> None:
    asked_file, go = world.folder / "asked", world.folder / "go"
    skill = world.skill([PUT, {"touch": str(asked_file)}, {"wait_for": str(go)}], [FINISH])

    async def main() -> None:
        async with world.working(ON, serving=True) as app:
            run_id = (await submit(app, skill)).id
            await until(asked_file.exists)
        async with world.client() as app:
            assert (await app.service.store.get(run_id)).state is RunState.QUEUED
        go.touch()
        async with world.working(ON, serving=True) as app:
            asked = await waiting(app, run_id)
            assert (asked.attempt_number, await interactions(app, asked)) == (1, ["colour"])
            await app.service.reply(run_id, "blue")
            run = await over(app, run_id)
            assert (run.state, await interactions(app, run)) == (RunState.SUCCEEDED, ["colour"])

    run_async(main)


# Hostile callers.


async def call(folder: Path, data: bytes) -> bytes:
    at = os.open(folder, os.O_RDONLY)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{at}/ask.sock")
    finally:
        os.close(at)
    writer.write(data)
    answer = b""
    try:
        await writer.drain()
        answer = await reader.readline()
    except ConnectionError:
        pass
    writer.close()
    return answer


HOSTILE = {
    "nothing": b"\n",
    "no-json": b"{\n",
    "not-text": b"\xff\xfe\n",
    "too-long": b'"' + b"x" * 1_000_000 + b'"\n',
    "nested": b"[" * 100_000 + b"\n",
    "a-number": b"7\n",
    "surrogates": b'{"prompt": "\\ud800"}\n',
    "infinite": b'{"interaction_id": "x", "prompt": "?", "default": Infinity}\n',
}


@pytest.mark.contract("F-4")
def test_nonsense_on_the_socket_records_nothing_and_breaks_nothing(world: World) -> None:
    begun, go = world.folder / "begun", world.folder / "go"
    skill = world.skill([{"touch": str(begun)}, {"wait_for": str(go)}, PUT], [FINISH])

    async def main() -> None:
        async with world.working(ON) as app:
            run_id = (await submit(app, skill)).id
            await until(begun.exists)
            tmp = world.data_dir / "runs" / run_id / "tmp"
            assert (tmp / "ask.sock").stat().st_mode & 0o777 == 0o600
            answers = [await call(tmp, data) for data in HOSTILE.values()]
            assert [json.loads(each)["accepted"] for each in answers if each] == [False] * sum(map(bool, answers))
            go.touch()
            asked = await waiting(app, run_id)
            assert await interactions(app, asked) == ["colour"]
            assert not (tmp / "ask.sock").exists()

    run_async(main)


@pytest.mark.contract("F-4")
def test_any_text_can_be_asked(world: World) -> None:
    begun, go = world.folder / "begun", world.folder / "go"
    skill = world.skill([{"touch": str(begun)}, {"wait_for": str(go)}], [FINISH])
    odd = b'{"interaction_id": "--help; $(x)\\u0000", "prompt": "\\ud800 \\u0007 <b>", "options": ["\\udfff"]}'

    async def main() -> None:
        async with world.working(ON) as app:
            run_id = (await submit(app, skill)).id
            await until(begun.exists)
            tmp = world.data_dir / "runs" / run_id / "tmp"
            assert json.loads(await call(tmp, odd + b"\n"))["accepted"] is True
            go.touch()
            asked = await waiting(app, run_id)
            assert asked.pending_interaction is not None
            assert "<b>" in asked.pending_interaction.prompt
            await app.service.reply(run_id, "blue")
            assert (await over(app, run_id)).state is RunState.SUCCEEDED

    run_async(main)


def test_a_question_between_turns_is_refused(world: World) -> None:
    skill = world.skill([PUT], [FINISH])

    async def main() -> None:
        async with world.working(ON) as app:
            asked = await waiting(app, (await submit(app, skill, options=STICKY)).id)
            tmp = world.data_dir / "runs" / asked.id / "tmp"
            answer = json.loads(await call(tmp, json.dumps(QUESTION | {"interaction_id": "late"}).encode() + b"\n"))
            assert answer["accepted"] is False
            await app.service.reply(asked.id, "blue")
            run = await over(app, asked.id)
            assert (run.state, await interactions(app, run)) == (RunState.SUCCEEDED, ["colour"])

    run_async(main)


def test_a_long_data_folder_does_not_matter(tmp_path: Path) -> None:
    world = World(tmp_path / ("long" * 30))
    world.folder.mkdir()
    skill = world.skill([PUT], [FINISH], output=COLOUR)

    async def main() -> None:
        async with world.working(ON) as app:
            asked = await waiting(app, (await submit(app, skill)).id)
            assert tool_results(world, asked) == [(True, RECORDED)]

    run_async(main)
