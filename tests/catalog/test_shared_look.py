"""A look at the health of a program, for everyone who asks at the same time."""

from __future__ import annotations

import asyncio

from askback.background.loops import SharedCall


def test_those_who_ask_at_the_same_time_share_one_look() -> None:
    async def main() -> None:
        looks, may_end = 0, asyncio.Event()

        async def look() -> int:
            nonlocal looks
            looks += 1
            await may_end.wait()
            return looks

        shared = SharedCall(look)
        asking = [asyncio.create_task(shared()) for _ in range(200)]
        await asyncio.sleep(0)
        # Somebody who leaves takes nothing from the others.
        asking[0].cancel()
        await asyncio.sleep(0)
        may_end.set()
        assert await asyncio.gather(*asking[1:]) == [1] * 199
        assert await shared() == 2

    asyncio.run(main())
