"""The queue as a worker knows it: what is queued is found with as few reads as possible, and nothing is missed."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from pathlib import Path

import pytest

from askback.core import lifecycle
from askback.core.runs import (
    SHARED,
    Mode,
    Profile,
    ProfileKind,
    Run,
    RunOptions,
    RunRequest,
    RunState,
    SkillRef,
    TurnKind,
    TurnOrder,
)
from askback.core.signals import SlotAcquired
from askback.store.base import move
from askback.store.sqlite import QueueView, SqliteStore
from askback.store.turns import Ticket

pytestmark = pytest.mark.sqlite

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Scene:
    """A store, and the view of it."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.view = QueueView(store, {SHARED})

    async def queue(self, run_id: str, *, owner: str = SHARED) -> Run:
        run = Run(
            id=run_id,
            state=RunState.QUEUED,
            skill=SkillRef(id="skill", version=None, digest="0" * 64),
            engine="scripted",
            mode=Mode.AUTO,
            profile=Profile(kind=ProfileKind.RESUMABLE, reason="it resumed", session_timeout_sec=60),
            options=RunOptions(),
            next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
            owner=owner,
            created_at=NOW,
            updated_at=NOW,
        )
        return await self.store.create(lifecycle.create(run, {"skill": "skill"}), RunRequest(input={}))

    async def claim(self, run_id: str) -> Run:
        return await move(self.store, run_id, SlotAcquired(worker="worker", at=NOW))

    async def heads(self, limit: int = 4, full: Collection[str] = ()) -> list[str]:
        return [run.id for run in await self.view.heads(without_engines=full, limit=limit)]

    def notify(self, *runs: Run) -> bool:
        return self.view.notify({run.id: run for run in runs})


Play = Callable[[Callable[[Scene], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(main: Callable[[Scene], Awaitable[None]]) -> None:
        async def within() -> None:
            store = await SqliteStore.open(tmp_path / "askback.db")
            try:
                await main(Scene(store))
            finally:
                await store.close()

        asyncio.run(within())

    return run


def test_what_is_queued_after_the_first_read_needs_no_other(play: Play) -> None:
    async def main(scene: Scene) -> None:
        assert await scene.heads() == []
        first, second = await scene.queue("a"), await scene.queue("b")
        # Without a report the view does not know of them, so it does not read.
        assert await scene.heads() == []
        assert scene.notify(first, second)
        assert await scene.heads() == ["a", "b"]
        assert await scene.heads() == []

    play(main)


def test_runs_of_others_and_runs_that_are_not_queued_are_not_taken(play: Play) -> None:
    async def main(scene: Scene) -> None:
        assert await scene.heads() == []
        await scene.queue("a")
        assert not scene.notify(await scene.claim("a"))
        scene.notify(await scene.queue("b", owner="another program"))
        assert await scene.heads() == []

    play(main)


def test_a_change_of_another_program_is_read(play: Play) -> None:
    async def main(scene: Scene) -> None:
        assert await scene.heads() == []
        await scene.queue("elsewhere")
        assert scene.view.notify({"elsewhere": None})
        assert await scene.heads() == ["elsewhere"]

    play(main)


def test_a_change_of_another_program_during_a_read_is_read_again(play: Play) -> None:
    async def main(scene: Scene) -> None:
        reading = asyncio.create_task(scene.heads())
        await asyncio.sleep(0)
        # The read has begun, and nobody has its result yet.
        assert scene.view.notify({"elsewhere": None})
        assert await reading == []
        await scene.queue("elsewhere")
        assert await scene.heads() == ["elsewhere"]

    play(main)


def test_more_than_there_are_slots_for_is_read_in_the_order_of_the_queue(play: Play) -> None:
    async def main(scene: Scene) -> None:
        assert await scene.heads() == []
        scene.notify(*[await scene.queue(name) for name in "abc"])
        assert await scene.heads(limit=2) == ["a", "b"]
        for name in "ab":
            await scene.claim(name)
        assert await scene.heads(limit=2) == ["c"]

    play(main)


def test_what_was_not_taken_is_found_again(play: Play) -> None:
    async def main(scene: Scene) -> None:
        run = await scene.queue("a")
        assert await scene.heads() == ["a"]
        scene.view.put_back(Ticket(run=run))
        assert await scene.heads() == ["a"]

    play(main)


def test_a_run_of_an_engine_without_a_slot_is_not_forgotten(play: Play) -> None:
    async def main(scene: Scene) -> None:
        await scene.queue("a")
        assert await scene.heads(full=["scripted"]) == []
        assert await scene.heads() == ["a"]

    play(main)


def test_a_run_that_was_read_is_not_taken_again_when_its_change_is_reported(play: Play) -> None:
    async def main(scene: Scene) -> None:
        run = await scene.queue("a")
        assert await scene.heads() == ["a"]
        scene.notify(run)
        assert await scene.heads() == []
        scene.notify(run.evolve(version=run.version + 1))
        assert await scene.heads() == ["a"]

    play(main)
