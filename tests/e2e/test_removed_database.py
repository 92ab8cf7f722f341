"""Somebody removes or replaces the database under a running server: nothing is acknowledged that is gone afterwards."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from askback.client import Client, Refused, ServerUnreachable
from askback.core.errors import RefusalCode, Unavailable
from askback.store.sqlite import SqliteStore
from support.data_folder import ASK, FINISH, World
from support.program import until
from support.server import Server

FILES = ("askback.db", "askback.db-wal", "askback.db-shm")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.skill([ASK], [FINISH])
    return world


def _remove_all(data: Path) -> None:
    for name in FILES:
        (data / name).unlink(missing_ok=True)


def _replace(data: Path) -> None:
    """As by somebody who restores a backup."""
    shutil.copyfile(data / "askback.db", data / "backup")
    (data / "backup").rename(data / "askback.db")


def _move_folder(data: Path) -> None:
    data.rename(data.with_name("moved"))


ATTACKS: dict[str, Callable[[Path], None]] = {
    "the file": lambda data: (data / "askback.db").unlink(),
    "its log": lambda data: (data / "askback.db-wal").unlink(),
    "its index": lambda data: (data / "askback.db-shm").unlink(),
    "all of them": _remove_all,
    "replaced": _replace,
    "the folder": _move_folder,
}


def submit(client: Client) -> str:
    return client.create_run("tested", engine="scripted", mode="interactive").id


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_server_without_its_database_refuses_and_says_so(world: World, attack: str) -> None:
    with Server(world) as server, server.client() as client:
        submit(client)
        ATTACKS[attack](world.data_dir)
        with pytest.raises(Refused) as refused:
            submit(client)
        assert (refused.value.code, refused.value.status) == (RefusalCode.STORE_UNUSABLE, 503)
        health = httpx.get(f"{server.url}/healthz").json()
        assert (health["status"], health["database"]) == ("failing", RefusalCode.STORE_UNUSABLE)
        with pytest.raises(Refused):
            submit(client)
        told = [line for line in server.stderr.splitlines() if "askback.store" in line]
        assert len(told) == 1
        assert "is not the file that this program opened" in told[0]
        if attack == "all of them":
            assert not any((world.data_dir / name).exists() for name in FILES), "the server made an empty database"


@pytest.mark.parametrize("attack", [name for name in ATTACKS if name != "the folder"])
def test_nothing_is_acknowledged_that_is_gone_after_a_restart(world: World, attack: str) -> None:
    """Clients submit without a pause while the files vanish. What was acknowledged after that must be there later."""
    acknowledged: list[str] = []
    gone = threading.Event()
    with Server(world) as server:

        def submit_on() -> None:
            with server.client() as client:
                for _ in range(5000):
                    vanished = gone.is_set()
                    try:
                        run_id = submit(client)
                    except (Refused, ServerUnreachable):
                        return
                    if vanished:
                        acknowledged.append(run_id)

        clients = [threading.Thread(target=submit_on) for _ in range(4)]
        for each in clients:
            each.start()
        until(lambda: (world.data_dir / "askback.db-wal").stat().st_size > 100_000)
        ATTACKS[attack](world.data_dir)
        gone.set()
        for each in clients:
            each.join(60)
            assert not each.is_alive()
        server.stop()
    assert acknowledged == []


def test_a_file_that_is_put_back_is_used_again(world: World) -> None:
    with Server(world) as server, server.client() as client:
        first = submit(client)
        database, aside = world.data_dir / "askback.db", world.data_dir / "aside"
        database.rename(aside)
        with pytest.raises(Refused):
            submit(client)
        aside.rename(database)
        second = submit(client)
        server.stop()
    with Server(world) as server, server.client() as client:
        assert {first, second} <= {run.id for run in client.list_runs()}


def test_runs_that_were_acknowledged_outlive_the_removal_of_the_log(world: World) -> None:
    with Server(world) as server, server.client() as client:
        runs = {submit(client) for _ in range(20)}
        (world.data_dir / "askback.db-wal").unlink()
        with pytest.raises(Refused):
            submit(client)
        server.kill()
    with Server(world) as server, server.client() as client:
        assert runs <= {run.id for run in client.list_runs()}


def _crashed(world: World) -> bytes:
    """A data folder as a crash leaves it: the last writes are in the log alone."""
    with Server(world) as server, server.client() as client:
        for _ in range(5):
            submit(client)
        server.kill()
    return (world.data_dir / "askback.db-wal").read_bytes()


def test_a_log_without_its_database_is_refused_and_kept(world: World) -> None:
    log = _crashed(world)
    assert log
    (world.data_dir / "askback.db").unlink()
    with pytest.raises(Unavailable) as refused:
        asyncio.run(SqliteStore.open(world.data_dir / "askback.db"))
    assert refused.value.code is RefusalCode.STORE_CORRUPT
    assert (world.data_dir / "askback.db-wal").read_bytes() == log
    assert not (world.data_dir / "askback.db").exists()


def test_a_log_of_another_database_is_refused_and_kept(world: World, tmp_path: Path) -> None:
    log = _crashed(world)
    other = World(tmp_path / "other")
    other.skill([ASK], [FINISH])
    with Server(other) as server, server.client() as client:
        for _ in range(100):
            submit(client)
        server.stop()
    database = other.data_dir / "askback.db"
    database.with_name("askback.db-wal").write_bytes(log)
    before = database.read_bytes()
    with pytest.raises(Unavailable) as refused:
        asyncio.run(SqliteStore.open(database))
    assert refused.value.code is RefusalCode.STORE_CORRUPT
    assert (database.read_bytes(), database.with_name("askback.db-wal").read_bytes()) == (before, log)
