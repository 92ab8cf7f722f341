"""Another program on the same store, for the tests: `other_program.py KIND FOLDER ACTION …`. Says what it did, a line each.

create PREFIX [COUNT]   make runs, without end if there is no count; each is told once it was acknowledged
append RUN EPOCH COUNT  add that many events to a running run, one by one
hear                    say `ready`, then every notification as a JSON list of run ids
reply RUN TEXT          answer the run's question; say `won` or `lost`
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from lives import ask, create, message, name_handle, new_run, reply, start
from stores import opened

from askback.core.errors import Conflict
from askback.store.base import Store
from askback.store.pages import IdempotencyKey


def say(line: str) -> None:
    print(line, flush=True)


async def main(kind: str, folder: str, action: str, *args: str) -> None:
    async with opened(kind, Path(folder)) as store:
        actions: dict[str, Callable[..., Awaitable[None]]] = {
            "append": append,
            "create": make,
            "hear": hear,
            "reply": answer,
        }
        await actions[action](store, *args)


async def make(store: Store, prefix: str, count: str | None = None) -> None:
    numbers: Iterator[int] = itertools.count() if count is None else iter(range(int(count)))
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(make_each(store, prefix, numbers))


async def make_each(store: Store, prefix: str, numbers: Iterator[int]) -> None:
    for number in numbers:
        name = f"{prefix}-{number}"
        run = await create(store, new_run(name), key=IdempotencyKey(key=name, body_digest="digest"))
        run = await start(store, run)
        if number % 2:
            run = await ask(store, await name_handle(store, run))
        say(f"{run.id} {run.version} {run.state}")


async def append(store: Store, run_id: str, epoch: str, count: str) -> None:
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    for number in range(int(count)):
        await store.append(run_id, int(epoch), [message(f"elsewhere {number}")])


async def hear(store: Store) -> None:
    changes = store.changes()
    say("ready")
    while True:
        say(json.dumps(sorted(await changes.wait())))


async def answer(store: Store, run_id: str, text: str) -> None:
    run = await store.get(run_id)
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    try:
        await reply(store, run, text)
        say("won")
    except Conflict:
        say("lost")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
