"""What is kept of a run: events without gaps, every turn's raw output, and a stream that misses nothing."""

import asyncio
import json
from pathlib import Path

import pytest

from askback.core.events import Event, EventType
from askback.core.runs import RunState
from support.data_folder import ASK, FINISH, World, events_of, over, run_async, submit, waiting


@pytest.mark.contract("A-2")
def test_events_are_numbered_without_gaps_and_tell_the_whole_story(tmp_path: Path) -> None:
    world = World(tmp_path)
    tool = {"tool": {"name": "shell", "detail": "ls", "output": "file"}}
    skill = world.skill([{"say": "Hello."}, tool, ASK], [{"finish": {"colour": 1}}], [{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "red")
            await over(app, run.id)
            events = await events_of(app, run.id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        types = [event.type for event in events]
        # This run meets no warning, no limit and no deadline, sets no `permissions`, and its engine reports no usage.
        absent = {
            EventType.RUN_WARNING,
            EventType.USAGE,
            EventType.INTERACTION_EXPIRING,
            EventType.PERMISSION_DECIDED,
            EventType.RUN_PARKED,
            EventType.RUN_RESUMED,
        }
        assert set(types) == set(EventType) - absent
        moves = [(event.data["from"], event.data["to"]) for event in events if event.type is EventType.RUN_STATE]
        assert moves == [
            (None, "queued"),
            ("queued", "running"),
            ("running", "waiting_user"),
            ("waiting_user", "queued"),
            ("queued", "running"),
            ("running", "succeeded"),
        ]

    run_async(main)


@pytest.mark.contract("A-3")
def test_the_raw_output_of_every_turn_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"say": "First."}, {"stderr": "a word on stderr"}, ASK], [{"say": "Second."}, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "red")
            await over(app, run.id)
            turns = app.workspaces.of(run.id).turns
        kept = {path.name: path.read_text() for path in turns.iterdir()}
        # The second turn printed nothing to stderr.
        expected = ["001-001.prompt", "001-001.stderr", "001-001.stdout", "002-002.prompt", "002-002.stdout"]
        assert sorted(kept) == expected
        texts = [json.loads(line).get("text", "") for line in kept["001-001.stdout"].splitlines()]
        assert "First." in texts
        assert "a word on stderr" in kept["001-001.stderr"]
        assert "Second." in kept["002-002.stdout"]
        assert "red" in kept["002-002.prompt"]

    run_async(main)


def test_a_follower_gets_every_event_once_whenever_it_comes(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([*({"say": f"message {n}"} for n in range(30)), ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            early = asyncio.create_task(_follow(app, run.id, 0))
            await waiting(app, run.id)
            late = asyncio.create_task(_follow(app, run.id, 0))
            cut = asyncio.create_task(_follow(app, run.id, 7))
            await app.service.reply(run.id, "red")
            await over(app, run.id)
            after = await _follow(app, run.id, 0)
            assert await early == await late == after
            assert await cut == after[7:]
            assert [event.seq for event in after] == list(range(1, len(after) + 1))
            assert after[-1].data["to"] == RunState.SUCCEEDED

    run_async(main)


async def _follow(app: object, run_id: str, after: int) -> list[Event]:
    return [event async for event in app.service.follow(run_id, after)]  # type: ignore[attr-defined]


def test_a_secret_reply_is_in_no_event_and_in_no_view(tmp_path: Path) -> None:
    from askback.wire.questions import Interaction

    world = World(tmp_path)
    ask = {"ask": {"interaction_id": "pin", "prompt": "PIN?", "kind": "secret"}}
    skill = world.skill([ask], [{"finish": {"colour": "thanks"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "hunter2-hunter2")
            await over(app, run.id)
            assert "hunter2" not in str(await events_of(app, run.id))
            (interaction,) = await app.service.store.interactions(run.id)
            assert interaction.response is None, "it is erased once the run is over"
            assert Interaction.of(interaction).response is None
        assert "hunter2-hunter2" in world.prompts(run.id)[1]

    run_async(main)
