"""A program on its data folder: what it says when it cannot begin, and what it leaves when it ends."""

import os
from pathlib import Path

import pytest

from askback.bootstrap import opened
from askback.core.errors import RefusalCode, Unavailable
from support.data_folder import World, run_async


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


def test_a_program_that_ended_leaves_no_name_and_no_mailbox(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working(serving=True):
            assert len(list((world.data_dir / "programs").glob("program-*"))) == 1
            assert len(list((world.data_dir / "wake").iterdir())) == 1
        assert list((world.data_dir / "programs").glob("program-*")) == []
        assert list((world.data_dir / "wake").iterdir()) == []

    run_async(main)
