"""Inputs, parameters and variables that are secret: masked wherever the engine repeats them, from the first moment on."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from askback.core.runs import RunState
from askback.text.redaction import MASK
from support.data_folder import World, events_of, over, run_async, submit, waiting

PASSWORD, API_KEY, TOKEN = "hunter2-correct-horse", "battery-staple-77", "env-value-4711"
SECRETS = (PASSWORD, API_KEY, TOKEN)
SCHEMAS: dict[str, Any] = {
    "input": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "password": {"type": "string", "format": "password"}},
    },
    "parameter": {"type": "object", "properties": {"api_key": {"type": "string", "writeOnly": True}}},
}
GIVEN: dict[str, Any] = {
    "input": {"city": "Rome", "password": PASSWORD},
    "parameter": {"api_key": API_KEY},
    "env": {"SHOP_TOKEN": TOKEN},
}
REPEATED = "{{input.password}} {{parameter.api_key}}"


def shown(text: str) -> bool:
    return any(secret in text for secret in SECRETS)


@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
def test_a_password_of_the_input_that_the_engine_repeats_is_masked_everywhere(tmp_path: Path, profile: str) -> None:
    world = World(tmp_path)
    ask = {"ask": {"interaction_id": "next", "prompt": f"Is {REPEATED} right?", "options": [f"yes {REPEATED}"]}}
    first = [{"say": f"got {REPEATED}"}, {"tool": {"name": "login", "detail": REPEATED, "output": REPEATED}}, ask]
    skill = world.skill(first, [{"say": f"still {REPEATED}"}, {"finish": {"colour": REPEATED}}], schemas=SCHEMAS)

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, options={"interactive_profile": profile}, **GIVEN)
            asked = await waiting(app, run.id)
            assert not shown(repr(asked))
            await app.service.reply(run.id, "yes", "next")
            ended = await over(app, run.id)
            assert ended.state is RunState.SUCCEEDED, ended.error
            events = json.dumps([dict(event.data) for event in await events_of(app, run.id)], default=str)
            assert MASK in events
            assert not shown(events)
            assert await app.store.result(run.id) == {"colour": f"{MASK} {MASK}"}
            turns = app.workspaces.of(run.id).turns
            stored = [path for path in turns.rglob("*") if path.is_file()]
            assert stored
            assert not any(shown(path.read_text()) for path in stored)

    run_async(main)


@pytest.mark.parametrize(("kind", "limit"), [("say", 256_000), ("tool", 16_000)])
def test_no_part_of_a_password_is_left_where_a_long_text_is_cut(tmp_path: Path, kind: str, limit: int) -> None:
    world = World(tmp_path)
    text = "a" * (limit - 10) + "{{input.password}}"
    step = {"say": text} if kind == "say" else {"tool": {"name": "login", "detail": text, "output": text}}
    skill = world.skill([step, {"finish": {"colour": "blue"}}], schemas=SCHEMAS)

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, mode="auto", **GIVEN)
            ended = await over(app, run.id)
            assert ended.state is RunState.SUCCEEDED, ended.error
            events = json.dumps([dict(event.data) for event in await events_of(app, run.id)], default=str)
            assert "a" * 1000 in events
            assert PASSWORD[:4] not in events

    run_async(main)


def test_names_of_files_are_masked_while_the_turn_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    names = ["{{input.password}}.md", "{{parameter.api_key}}/b", f"of {TOKEN}", "plain"]
    written = [{"write": {"path": f"artifacts/{name}", "text": "x"}} for name in names]
    skill = world.skill(
        [*written, {"touch": "written"}, {"wait_for": "seen"}, {"finish": {"colour": "blue"}}], schemas=SCHEMAS
    )
    masked = {f"{MASK}.md", f"{MASK}/b", f"of {MASK}", "plain"}

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, **GIVEN)
            work = app.workspaces.of(run.id).cwd
            while not (work / "written").exists():
                await asyncio.sleep(0.01)
            assert {each.path for each in await app.service.artifacts(run.id)} == masked
            packed = b"".join([piece async for piece in await app.service.bundle(run.id, 1 << 20)])
            assert set(zipfile.ZipFile(io.BytesIO(packed)).namelist()) == masked
            (work / "seen").touch()
            ended = await over(app, run.id)
            assert ended.state is RunState.SUCCEEDED, ended.error
            assert {each.path for each in (await app.service.result(run.id)).artifacts} == masked

    run_async(main)
