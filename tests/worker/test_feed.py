"""The events of a turn on their way to the store: nobody waits for a way that is closed."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from askback.core.events import EventType, NewEvent
from askback.store.pages import StaleWrite
from askback.store.sqlite import SqliteStore
from askback.worker.turn.observe import EventFeed

EVENT = NewEvent(type=EventType.ASSISTANT_MESSAGE, at=datetime(2030, 1, 1, tzinfo=UTC), data={})


def test_who_waits_for_room_is_let_go_when_events_can_no_longer_be_stored(tmp_path: Path) -> None:
    async def main() -> None:
        store = await SqliteStore.open(tmp_path / "askback.db")
        feed = EventFeed(store, "a-run-that-is-not-there", 1)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            crowd = [group.create_task(feed.put(EVENT)) for _ in range(1000)]
            await asyncio.sleep(0)
            assert not all(task.done() for task in crowd)
            with pytest.raises(StaleWrite):
                await feed.run()
        await feed.put(EVENT)
        await store.close()

    asyncio.run(main())
