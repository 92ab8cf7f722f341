"""The tables of Procrastinate: of an older package, they are upgraded by what the installed one adds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from lives import create, new_run

from askback.core.errors import Unavailable
from askback.core.runs import SHARED
from askback.store.turns import Room
from support import postgres
from support.postgres import databases


@pytest.fixture
def empty() -> Iterator[str]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    address = databases.server.make_database(empty=True)
    yield address
    name = address.partition("@/")[2].partition("?")[0]
    databases.server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def make_older(address: str, last: str) -> None:
    """Our tables, and those of a Procrastinate whose last migration was this one."""
    from procrastinate.schema import SchemaManager

    from askback.store.postgres import steps
    from askback.store.postgres.connection import PostgresConnection

    with closing(PostgresConnection.open(address)) as connection:
        connection.execute("CREATE SCHEMA askback")
        connection.execute("CREATE TABLE migrations (version BIGINT PRIMARY KEY, applied_at TIMESTAMPTZ DEFAULT now())")
        for step in steps.steps():
            connection.raw.execute(step.script.encode())
            connection.execute("INSERT INTO migrations (version) VALUES (:version)", {"version": step.version})
        for name in steps.queue_steps():
            if name <= last:
                connection.raw.execute((Path(SchemaManager.get_migrations_path()) / f"{name}.sql").read_bytes())
                connection.execute("INSERT INTO queue_migrations (name) VALUES (:name)", {"name": name})


@pytest.mark.contract("M-1")
def test_the_tables_of_an_older_procrastinate_are_upgraded(empty: str) -> None:
    from askback.store.postgres import PostgresStore, status, upgrade

    make_older(empty, "03.01.00_99")

    async def main() -> None:
        with pytest.raises(Unavailable, match="askback database upgrade"):
            await PostgresStore.open(empty)
        before = (await asyncio.to_thread(upgrade, empty)).before
        assert not before.fits
        assert before.found == before.known
        after = await asyncio.to_thread(status, empty)
        assert after.fits
        assert len(after.queue) > len(before.queue)
        store = await PostgresStore.open(empty)
        run = await create(store, new_run())
        turns = store.turns({SHARED})
        found = await turns.take(Room(total=1, engines={"scripted": 1}))
        assert [ticket.run for ticket in found] == [run]
        await turns.close()
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 120))
