"""Slots: bounded in all and per engine, and new runs start in the order they were queued."""

from datetime import datetime
from itertools import accumulate
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from askback.app import App
from askback.cluster.slots import Slots
from askback.core.events import EventType
from support.data_folder import World, events_of, over, run_async, submit, until


def test_no_more_engines_run_than_there_are_slots(tmp_path: Path) -> None:
    world = World(tmp_path)
    go = tmp_path / "go"
    skill = world.skill([{"touch": "started"}, {"wait_for": str(go)}, {"finish": {"colour": "x"}}])

    async def main() -> None:
        async with world.working("slots = 2\n") as app:
            runs = [await submit(app, skill) for _ in range(8)]
            await until(lambda: len(list(world.data_dir.glob("runs/*/work/started"))) == 2)
            go.touch()
            changes = [change for run in runs for change in await _changes(app, run.id)]
            # Of those that changed at the same moment, one had ended before the next began.
            running = list(accumulate(step for _, step in sorted(changes)))
            assert (max(running), running[-1]) == (2, 0)

    run_async(main)


async def _changes(app: App, run_id: str) -> list[tuple[datetime, int]]:
    """When the run, which is over then, began to run and when it ended: one more, one less."""
    await over(app, run_id)
    steps = {"running": 1, "succeeded": -1}
    states = [(event.at, event.data.get("to")) for event in await events_of(app, run_id)]
    return [(at, steps[to]) for at, to in states if to in steps]


def test_turns_start_in_the_order_they_were_queued(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "x"}}])

    async def main() -> None:
        async with world.working("slots = 1\n") as app:
            runs = [await submit(app, skill) for _ in range(8)]
            started = []
            for run in runs:
                await over(app, run.id)
                (begin,) = [e.at for e in await events_of(app, run.id) if e.type is EventType.TURN_STARTED]
                started.append(begin)
            assert started == sorted(started)

    run_async(main)


def test_an_engines_own_cap_holds_and_does_not_block_the_slots_of_others() -> None:
    slots = Slots(4, {"codex": 1})
    assert slots.take("codex")
    assert not slots.take("codex")
    assert slots.full_engines() == {"codex"}
    assert all(slots.take("gemini") for _ in range(3))
    assert not slots.take("gemini")
    slots.release("codex")
    assert slots.take("codex")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", "c"])), max_size=60))
def test_never_more_are_taken_than_allowed(steps: list[tuple[bool, str]]) -> None:
    slots = Slots(3, {"a": 1, "b": 2})
    held: list[str] = []
    for take, engine in steps:
        if take and slots.take(engine):
            held.append(engine)
        elif not take and engine in held:
            held.remove(engine)
            slots.release(engine)
        assert len(held) <= 3
        assert held.count("a") <= 1
        assert held.count("b") <= 2
        assert slots.free == 3 - len(held)
