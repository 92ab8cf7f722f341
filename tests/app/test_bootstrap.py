"""A program on its data folder: what it says when it cannot begin, and what it leaves when it ends."""

import os
from pathlib import Path
from typing import Any

import pytest

from askback.app import opened
from askback.core.errors import RefusalCode, Unavailable
from support.data_folder import World, run_async
from support.postgres import databases

PLACES = (("programs", "program-*"), ("wake", "*"))


def test_a_program_that_cannot_be_registered_says_so_and_leaves_nothing_open(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.data_dir.mkdir()
    (world.data_dir / "programs").touch()

    async def main() -> None:
        before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
        with pytest.raises(Unavailable, match="cannot be registered") as refused:
            async with opened(world.settings()):
                raise AssertionError("it began")
        assert refused.value.code is RefusalCode.STORE_UNUSABLE
        assert set(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208

    run_async(main)


@pytest.mark.databases
def test_a_program_that_ended_leaves_no_name_and_no_mailbox(tmp_path: Path) -> None:
    world = World(tmp_path)
    # On PostgreSQL, programs are notified by the database, and have a row there.
    mailboxes = 1 if world.database is None else 0

    def left() -> tuple[int, int, int]:
        names, waiting = ((world.data_dir / folder).glob(found) for folder, found in PLACES)
        return len(list(names)), len(list(waiting)), len(rows(world))

    async def main() -> None:
        async with world.working(serving=True):
            assert left() == (1, mailboxes, 1 - mailboxes)
        assert left() == (0, 0, 0)

    run_async(main)


def rows(world: World) -> list[Any]:
    if world.database is None:
        return []
    name = world.database.partition("@/")[2].partition("?")[0]
    return databases.server.execute("SELECT name FROM askback.programs", name)
