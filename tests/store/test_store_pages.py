"""Pages are bounded in bytes: they end early, always hold something, and lead to the rest."""

from __future__ import annotations

import asyncio

from lives import NOON, finish, new_run, running
from stores import OpenStore

from askback.core.events import EventType, NewEvent
from askback.runs.run_events import RunEvents
from askback.store.pages import PAGE_BYTES


def said(size: int, count: int) -> list[NewEvent]:
    return [NewEvent(type=EventType.ASSISTANT_MESSAGE, at=NOON, data={"text": "x" * size}) for _ in range(count)]


def test_a_page_of_events_ends_at_its_bytes_and_the_next_goes_on(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run())
            await store.append(run.id, run.epoch, [*said(PAGE_BYTES // 4, 9), *said(3 * PAGE_BYTES, 1), *said(1, 5)])
            seen: list[int] = []
            while page := await store.events(run.id, seen[-1] if seen else 0):
                assert len(page) == 1 or sum(len(str(event.data)) for event in page) < PAGE_BYTES + 10_000
                seen += [event.seq for event in page]
                if not page.more:
                    break
            assert seen == list(range(1, len(seen) + 1))
            assert not (await store.events(run.id, seen[-1])).more
            await finish(store, run)
            told = [event.seq async for events in RunEvents(store).follow(run.id) for event in events]
            assert told[: len(seen)] == seen

    asyncio.run(main())
