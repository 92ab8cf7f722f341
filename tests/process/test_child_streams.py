"""Reading a pipe: at most one chunk before other tasks run, and an end even if nobody closes it."""

import asyncio
import os

from askback.process.streams import chunks


def test_who_prints_without_a_pause_does_not_keep_others_from_their_turn() -> None:
    endless = os.open("/dev/zero", os.O_RDONLY)
    read = 0
    seen: list[int] = []

    async def other() -> None:
        for _ in range(10):
            seen.append(read)
            await asyncio.sleep(0)

    async def main() -> None:
        nonlocal read
        looking = asyncio.ensure_future(other())
        async for chunk in chunks(endless, asyncio.get_running_loop().create_future()):
            read += len(chunk)
            if looking.done() or read > 1 << 24:
                break

    asyncio.run(main())
    os.close(endless)
    assert len(set(seen)) > 5


def test_what_never_ends_is_read_no_further_than_a_pipe_reaches() -> None:
    """A program that outlives the engine may print forever; the engine's output comes before that."""
    endless = os.open("/dev/zero", os.O_RDONLY)
    read = 0

    async def main() -> None:
        nonlocal read
        enough = asyncio.get_running_loop().create_future()
        async for chunk in chunks(endless, enough):
            read += len(chunk)
            if read > 1 << 22 and not enough.done():
                enough.set_result(None)
            if read > 1 << 24:
                break

    asyncio.run(main())
    os.close(endless)
    assert 1 << 22 < read <= (1 << 22) + (1 << 21)
