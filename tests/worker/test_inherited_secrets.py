"""A password of a run stays secret in every run that takes over its input, its session or its files.

The new run may have another skill, or another schema for the same skill: secrecy belongs to the value.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from askback.app.app import App
from askback.core.errors import Conflict
from askback.core.runs import InheritedFiles, Origin, Run, RunState
from askback.runs.submission import Submission
from askback.web.new_run import earlier
from support.data_folder import COLOUR, World, events_of, over, run_async, submit, waiting

PASSWORD = "hunter2-correct-horse"
KEY = "key-of-the-parameters"
PIN = "407"
TEXT, SECRET = {"type": "string"}, {"type": "string", "format": "password"}
ASK = {"ask": {"interaction_id": "ok", "prompt": "Go on?", "options": ["yes", "no"]}}
REPEATS = [
    {"say": f"the password is {PASSWORD}, the key is {KEY}"},
    {"write": {"path": f"artifacts/{PASSWORD}.txt", "text": "x"}},
    {"finish": {"colour": PASSWORD}},
]
GIVEN: dict[str, Any] = {"input": {"city": "Rome", "password": PASSWORD, "pin": PIN}, "parameter": {"key": KEY}}


def form(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


SECRETIVE = {"input": form(city=TEXT, password=SECRET, pin=SECRET), "parameter": form(key=SECRET)}
PUBLIC = {"input": form(city=TEXT, password=TEXT, pin=TEXT, note=TEXT), "parameter": form(key=TEXT)}


async def source_of(world: World, app: App) -> Run:
    """A run that was given secrets, has asked, and is over."""
    skill = world.skill([ASK], [{"finish": {"colour": "red"}}], name="secretive", schemas=SECRETIVE)
    run = await submit(app, skill, **GIVEN)
    await waiting(app, run.id)
    await app.service.reply(run.id, "yes")
    run = await over(app, run.id)
    assert (run.state, run.error) == (RunState.SUCCEEDED, None)
    return run


def uploaded(world: World, *turns: list[Any]) -> Path:
    """A zip with a skill of the same name, whose schemas call nothing secret."""
    files = {
        "SKILL.md": "---\nname: secretive\ndescription: x\n---\nDo it\n",
        "assets/scripted.json": json.dumps({"turns": turns}),
        "assets/output.schema.json": json.dumps(COLOUR),
        "assets/input.schema.json": json.dumps(PUBLIC["input"]),
        "assets/parameter.schema.json": json.dumps(PUBLIC["parameter"]),
    }
    archive = world.folder / "other.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for name, text in files.items():
            made.writestr(f"secretive/{name}", text)
    return archive


async def assert_nothing_shown(app: App, run: Run) -> None:
    """Whatever a reader of the run can look at."""
    assert (run.state, run.error) == (RunState.SUCCEEDED, None)
    events = [dict(each.data) for each in await events_of(app, run.id)]
    result = await app.service.result(run.id)
    package = await app.service.secrets.package(run)
    filled = (await earlier(app.service, run.id, package)).given
    shown = {
        "events": events,
        "result": result.data,
        "names": [each.path for each in result.artifacts],
        "form": [filled["input"], filled["parameter"]],
        "input": await app.service.shown_input(run),
        "summary": run.summary,
        "run": repr(run),
    }
    assert "the password is" in json.dumps(events, default=str), "the engine has repeated it"
    for place, found in shown.items():
        text = json.dumps(found, default=str)
        assert PASSWORD not in text, place
        assert KEY not in text, place
        assert place not in ("form", "input", "summary") or PIN not in text, place


@pytest.mark.contract("J-4", "J-2")
def test_a_fork_with_another_schema_of_the_same_skill_does_not_show_the_password(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            source = await source_of(world, app)
            fork = Submission(
                archive=uploaded(world, [ASK], REPEATS),
                engine="scripted",
                mode="interactive",
                origin=Origin(run_id=source.id, session=True, at="ok"),
                answer="yes",
            )
            run = await over(app, (await app.service.submit(fork)).id)
            await assert_nothing_shown(app, run)
            assert (await app.service.shown_input(run) or {})["city"] == "Rome"

    run_async(main)


@pytest.mark.contract("J-3")
@pytest.mark.parametrize("taken", ["session", "files"])
def test_another_skill_that_continues_a_run_does_not_show_its_password(tmp_path: Path, taken: str) -> None:
    world = World(tmp_path)
    skill = world.skill(REPEATS, REPEATS, REPEATS, REPEATS, name="other", schemas=PUBLIC)

    async def main() -> None:
        async with world.working() as app:
            source = await source_of(world, app)
            files = InheritedFiles.WORKSPACE if taken == "files" else None
            origin = Origin(run_id=source.id, session=taken == "session", files=files)
            note = f"use {PASSWORD} again"
            run = await over(app, (await submit(app, skill, origin=origin, input={"note": note, "city": "Oslo"})).id)
            await assert_nothing_shown(app, run)
            assert run.summary == "Oslo"
            # Nor does the run after that one, although its source was not given the password.
            await app.service.delete(source.id)
            again = Origin(run_id=run.id, session=taken == "session", files=files)
            await assert_nothing_shown(app, await over(app, (await submit(app, skill, origin=again)).id))

    run_async(main)


def test_secrets_that_are_too_long_to_be_inherited_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}], schemas={"input": form(password=SECRET)})

    async def main() -> None:
        async with world.working() as app:
            source = await over(app, (await submit(app, skill, input={"password": "x" * 40_000})).id)
            with pytest.raises(Conflict, match="too long to be masked"):
                await submit(app, skill, origin=Origin(run_id=source.id, session=True), input={"password": "y"})

    run_async(main)
