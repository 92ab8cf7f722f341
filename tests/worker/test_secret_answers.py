"""An engine repeats the secret that its user gave it: it is masked wherever Askback shows or keeps what engines say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from askback.core.runs import RunState
from askback.text.redaction import MASK
from support.data_folder import World, events_of, over, run_async, submit, waiting

SECRET = "hunter2-correct-horse"
ASK_SECRET = {"ask": {"interaction_id": "password", "kind": "secret", "prompt": "Password?"}}
REPEAT = [
    {"say": "you said {{reply}}"},
    {"tool": {"name": "login {{reply}}", "detail": "{{reply}}", "output": "ok {{reply}}"}},
]
AGAIN = {"ask": {"interaction_id": "next", "prompt": "Is {{reply}} right?", "options": ["yes {{reply}}"]}}


def holders(folder: Path, secret: str) -> set[str]:
    """The files that hold the secret, but for the engine's own home, where its session has to have it."""
    found = [path for path in folder.rglob("*") if path.is_file() and not {"home", "snapshots"} & set(path.parts)]
    return {str(path.relative_to(folder)) for path in found if secret.encode() in path.read_bytes()}


@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
def test_a_secret_answer_that_the_engine_repeats_is_masked_everywhere(tmp_path: Path, profile: str) -> None:
    world = World(tmp_path)
    finish = {"finish": {"colour": "{{replies}} and again"}}
    skill = world.skill([ASK_SECRET], [*REPEAT, AGAIN], [{"say": "still {{replies}}!"}, finish])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, options={"interactive_profile": profile})
            await waiting(app, run.id)
            await app.service.reply(run.id, SECRET, "password")
            asked = await waiting(app, run.id)
            assert asked.pending_interaction is not None
            assert SECRET not in repr(asked)
            await app.service.reply(run.id, "yes", "next")
            ended = await over(app, run.id)
            assert ended.state is RunState.SUCCEEDED, ended.error
            events = json.dumps([dict(event.data) for event in await events_of(app, run.id)], default=str)
            assert SECRET not in events
            assert MASK in events
            result = await app.store.result(run.id)
            assert SECRET not in json.dumps(result)
            assert SECRET not in repr(await app.store.interactions(run.id))

    run_async(main)
    # The program has ended, and with it the log of the database.
    assert holders(world.data_dir, SECRET) == set()


def test_a_secret_is_known_again_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK_SECRET], [AGAIN], [{"say": "still {{replies}}!"}, {"finish": {"colour": "blue"}}])
    ids: list[str] = []

    async def first() -> None:
        async with world.working(serving=True) as app:
            run = await submit(app, skill)
            ids.append(run.id)
            await waiting(app, run.id)
            await app.service.reply(run.id, SECRET, "password")
            await waiting(app, run.id)

    async def second() -> None:
        async with world.working(serving=True) as app:
            await app.service.reply(ids[0], "yes", "next")
            await over(app, ids[0])
            assert SECRET not in repr(await events_of(app, ids[0]))

    run_async(first)
    run_async(second)
    assert holders(world.data_dir, SECRET) == set()


@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
def test_the_names_of_files_do_not_tell_the_secret(tmp_path: Path, profile: str) -> None:
    world = World(tmp_path)
    written = [{"write": {"path": f"artifacts/{path}", "text": path.removeprefix("{{reply}}/")[:1]}} for path in NAMED]
    output = {
        "type": "object",
        "properties": {"report": {"type": "string", "x-type": "artifact"}},
        "required": ["report"],
    }
    finish = {"finish": {"report": "artifacts/report of {{reply}}.md"}}
    skill = world.skill([ASK_SECRET], [*written, {"touch": "written"}, {"wait_for": "seen"}, finish], output=output)

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, options={"interactive_profile": profile})
            await waiting(app, run.id)
            await app.service.reply(run.id, SECRET, "password")
            work = app.workspaces.of(run.id).cwd
            while not (work / "written").exists():
                await asyncio.sleep(0.01)
            shown = [each.path for each in await app.service.artifacts(run.id)]
            assert len(shown) == len(NAMED)
            assert SECRET not in repr(shown)
            (work / "seen").touch()
            ended = await over(app, run.id)
            assert ended.state is RunState.SUCCEEDED, ended.error
            result = await app.service.result(run.id)
            assert result.data == {"report": f"artifacts/report of {MASK}.md"}
            assert {each.path for each in result.artifacts} == {
                *(f"report of {MASK}.md", f"a {MASK} {MASK}", f"{MASK}/b", "plain"),
            }
            for each in result.artifacts:
                with await app.service.open_artifact(run.id, each.path) as file:
                    assert file.read() == each.path.removeprefix(f"{MASK}/")[:1].encode()

    run_async(main)


NAMED = ("report of {{reply}}.md", "a {{reply}} {{reply}}", "{{reply}}/b", "plain")


def test_a_turn_that_fails_does_not_tell_the_secret(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill(
        [ASK_SECRET], [{"stderr": "refused: {{reply}}"}, {"misbehave": "api_error", "message": "no: {{reply}}"}]
    )

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            await waiting(app, run.id)
            await app.service.reply(run.id, SECRET, "password")
            ended = await over(app, run.id)
            assert ended.state is RunState.FAILED
            assert SECRET not in repr(ended)

    run_async(main)
    assert holders(world.data_dir, SECRET) == set()


def test_a_secret_that_is_a_word_of_the_protocol_does_not_break_the_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK_SECRET], [{"say": "fine"}, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            await waiting(app, run.id)
            await app.service.reply(run.id, "turn.completed", "password")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)
