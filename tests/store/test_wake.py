"""The mailboxes by which programs on one data folder tell each other what changed."""

from __future__ import annotations

import asyncio
import shutil
import socket
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from askback.store.sqlite.wake import Wake

pytestmark = pytest.mark.sqlite

Heard = list[Collection[str] | None]


@contextmanager
def mailbox(folder: Path, heard: Heard | None = None) -> Iterator[Wake]:
    wake = Wake.open(folder, ([] if heard is None else heard).append)
    try:
        yield wake
    finally:
        wake.close()


async def until_heard(heard: Heard) -> Heard:
    async with asyncio.timeout(60):
        while not heard:
            await asyncio.sleep(0)
    return heard


def test_others_hear_and_the_sender_does_not(tmp_path: Path) -> None:
    async def main() -> None:
        mine: Heard = []
        first: Heard = []
        second: Heard = []
        with mailbox(tmp_path, mine) as sender, mailbox(tmp_path, first), mailbox(tmp_path, second):
            sender.send(["a", "b"])
            assert await until_heard(first) == [{"a", "b"}]
            assert await until_heard(second) == [{"a", "b"}]
            assert mine == []

    asyncio.run(main())


def test_messages_that_came_together_are_told_together(tmp_path: Path) -> None:
    async def main() -> None:
        heard: Heard = []
        with mailbox(tmp_path) as sender, mailbox(tmp_path, heard):
            sender.send(["a"])
            sender.send(["b"])
            assert await until_heard(heard) == [{"a", "b"}]

    asyncio.run(main())


def test_a_mailbox_that_ran_over_tells_that_any_run_may_have_changed(tmp_path: Path) -> None:
    async def main() -> None:
        heard: Heard = []
        with mailbox(tmp_path) as sender, mailbox(tmp_path, heard):
            for number in range(2000):
                sender.send([str(number)])
            assert (await until_heard(heard))[0] is None

    asyncio.run(main())


def test_one_program_that_does_not_listen_keeps_nothing_from_another(tmp_path: Path) -> None:
    async def main() -> None:
        heard: Heard = []
        deaf = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(5)]
        for number, each in enumerate(deaf):
            each.bind(str(tmp_path / f"deaf-{number}.sock"))
        with mailbox(tmp_path) as sender, mailbox(tmp_path, heard):
            for number in range(100):
                sender.send(["x" * 4000, str(number)])
                heard.clear()
                await until_heard(heard)
        for each in deaf:
            each.close()

    asyncio.run(main())


def test_a_message_that_would_be_too_long_is_told_as_any_run(tmp_path: Path) -> None:
    async def main() -> None:
        heard: Heard = []
        with mailbox(tmp_path) as sender, mailbox(tmp_path, heard):
            sender.send([f"run-{number}" for number in range(10_000)])
            assert await until_heard(heard) == [None]

    asyncio.run(main())


@pytest.mark.parametrize("message", [b"", b"\xff", b"{}", b"[1]", b'["a"'])
def test_what_is_no_message_is_taken_as_any_run(tmp_path: Path, message: bytes) -> None:
    async def main() -> None:
        heard: Heard = []
        with mailbox(tmp_path, heard), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            [address] = tmp_path.iterdir()
            stranger.sendto(message, str(address))
            assert await until_heard(heard) == [None]

    asyncio.run(main())


def test_the_mailbox_of_a_dead_program_is_removed(tmp_path: Path) -> None:
    async def main() -> None:
        dead = tmp_path / "dead.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
            gone.bind(str(dead))
        (tmp_path / "note.txt").touch()
        with mailbox(tmp_path) as sender:
            assert dead.exists()
            sender.send(["a"])
            assert not dead.exists()
        assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]

    asyncio.run(main())


def test_a_wake_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "wake"
        with mailbox(folder) as sender:
            shutil.rmtree(folder)
            sender.send(["a"])

    asyncio.run(main())


def test_only_the_owner_can_reach_a_mailbox(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "wake"
        with mailbox(folder):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            [path] = folder.iterdir()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    asyncio.run(main())


def test_a_data_folder_with_a_long_path_has_mailboxes_too(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / ("long" * 30) / "wake"
        heard: Heard = []
        with mailbox(folder) as sender, mailbox(folder, heard):
            sender.send(["a"])
            assert await until_heard(heard) == [{"a"}]
            assert len(list(folder.iterdir())) == 2
        assert list(folder.iterdir()) == []

    asyncio.run(main())
