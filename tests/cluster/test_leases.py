"""Programs on one PostgreSQL database: who is alive, who leads, and what happens to one that cannot renew its lease."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from askback.cluster.instances import Instances, boottime
from askback.core.errors import Unavailable
from askback.core.instances import InstanceFacts, InstanceKind
from askback.process.tree import boot_id
from support.data_folder import run_async
from support.postgres import databases
from support.postgres_proxy import PostgresProxy

FACTS = InstanceFacts(kind=InstanceKind.WORKER, host="here", pid=1, boot_id=boot_id(), version="1")
KILLED = (
    "import sys; from pathlib import Path; from askback.process.locks import InstanceLocks\n"
    "print(InstanceLocks(Path(sys.argv[1])).register()[0], flush=True); sys.stdin.read()"
)


@asynccontextmanager
async def machine(address: str, folder: Path, *, lease_sec: float = 600) -> AsyncIterator[Instances]:
    """The programs as those of one machine see them. Another folder is another machine."""
    from askback.cluster.lease import LeasedInstances, LeaseTimes
    from askback.store.postgres import PostgresStore

    store = await PostgresStore.open(address)
    instances = LeasedInstances(folder, store, address, LeaseTimes(lease=lease_sec))
    try:
        yield instances
    finally:
        await instances.leave()
        await store.close()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0.02)


def register_only(address: str, name: str, *, lease_sec: float) -> None:
    """A program that never renews its lease."""
    from askback.store.postgres.instances import Session

    session = Session(address, name, limit_sec=60)
    session.register(FACTS, instead_of=None, lease_sec=lease_sec, limit_sec=60)
    session.close()


def test_a_registered_program_is_alive_for_all_machines_until_it_leaves(address: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with machine(address, tmp_path / "a") as here, machine(address, tmp_path / "b") as there:
            from askback.store.postgres import steps

            name = await here.register(replace(FACTS, labels=("gpu",), engines=("codex",)))
            formats = {"format": steps.newest(), "queue_format": steps.queue_steps()[-1]}
            assert await there.alive({name, "program-unknown"}) == {name}
            (known,) = await there.living()
            assert (known.name, known.facts) == (name, replace(here.facts, **formats))
            assert known.lease_until is not None
            assert known.lease_until > known.started_at
            await here.leave()
            assert await there.alive({name}) == frozenset()
            assert await there.living() == []

    run_async(main)


def test_what_a_program_says_of_itself_is_written_with_a_renewal(address: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with machine(address, tmp_path / "a", lease_sec=20) as here:
            await here.register(FACTS)
            here.update(replace(FACTS, draining=True, free=3))

            async def is_written() -> bool:
                return [each.facts.draining for each in await here.living()] == [True]

            await eventually(is_written)

    run_async(main)


def test_a_lease_that_is_not_renewed_is_over(address: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with machine(address, tmp_path / "a") as here:
            await here.register(FACTS)
            register_only(address, "program-gone", lease_sec=0.2)
            register_only(address, "program-slow", lease_sec=600)

            async def is_over() -> bool:
                return "program-gone" not in await here.alive({"program-gone"})

            await eventually(is_over)
            assert await here.alive({"program-gone", "program-slow"}) == {"program-slow"}
            assert {each.name for each in await here.living()} == {here.name, "program-slow"}

    run_async(main)


def test_a_program_that_was_killed_on_this_machine_is_dead_before_its_lease_is_over(
    address: str, tmp_path: Path
) -> None:
    folder = tmp_path / "a"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        name = program.stdout.readline().strip()

        async def main() -> None:
            async with machine(address, folder) as here, machine(address, tmp_path / "b") as there:
                await here.register(FACTS)
                await there.register(FACTS)
                register_only(address, name, lease_sec=600)
                assert await here.alive({name}) == {name}
                program.kill()
                program.wait(60)
                assert await here.alive({name}) == frozenset()
                assert await there.alive({name}) == {name}, "another machine cannot know"
                await here.forget_dead()
                assert await here.alive({name}) == await there.alive({name}) == frozenset()

        try:
            run_async(main)
        finally:
            program.kill()


def test_a_copy_of_a_data_folder_says_nothing_of_the_programs_on_the_original(address: str, tmp_path: Path) -> None:
    """As on a cloned machine: the copy has the file of a program that is alive, and nobody holds its lock there."""

    async def main() -> None:
        async with machine(address, tmp_path / "a") as here, machine(address, tmp_path / "b") as there:
            name = await here.register(FACTS)
            await asyncio.to_thread(shutil.copytree, tmp_path / "a", tmp_path / "b")
            assert (tmp_path / "b" / f"{name}.lock").exists()
            await there.register(FACTS)
            assert await there.alive({name}) == {name}
            await there.forget_dead()
            assert await there.alive({name}) == await here.alive({name}) == {name}

    run_async(main)


def test_a_program_whose_row_is_gone_has_lost_its_lease_and_registers_anew(address: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with machine(address, tmp_path / "a", lease_sec=20) as here, machine(address, tmp_path / "b") as there:
            first = await here.register(FACTS)
            deadlines: list[float] = []
            here.on_renewed(deadlines.append)
            await asyncio.to_thread(_remove_row, address, first)
            assert await here.lost()
            told = len(deadlines)
            second = await here.register(here.facts)
            assert first != second == here.name
            assert await there.alive({first, second}) == {second}
            assert len(deadlines) == told + 1
            assert deadlines[-1] > boottime()

    run_async(main)


@pytest.mark.parametrize("doc", ["null", "[]", "{", '{"kind": "worker"}', '{"offer": []}'])
def test_a_program_that_cannot_be_understood_is_alive_and_harms_nobody(address: str, tmp_path: Path, doc: str) -> None:
    """It may be of another version, or somebody has changed its row."""

    async def main() -> None:
        async with machine(address, tmp_path / "a") as here:
            own = await here.register(FACTS)
            register_only(address, "odd", lease_sec=600)
            databases.server.execute(
                f"UPDATE askback.programs SET doc = '{doc}', kind = 'new-kind', host = 'there' WHERE name = 'odd'",
                address.partition("@/")[2].partition("?")[0],
            )
            for found in (await here.known(), await here.living()):
                assert [each.name for each in found] == [own, "odd"]
                assert (found[1].alive, found[1].facts.host, dict(found[1].facts.offer)) == (True, "there", {})
            assert await here.alive({"odd"}) == {"odd"}

    run_async(main)


def _remove_row(address: str, name: str) -> None:
    from askback.store.postgres import instances
    from askback.store.postgres.connection import PostgresConnection

    connection = PostgresConnection.open(address)
    instances.remove(connection, [name])
    connection.close()


@pytest.mark.long
def test_a_program_that_is_cut_off_counts_itself_as_dead_before_others_do(address: str, tmp_path: Path) -> None:
    async def main() -> None:
        with PostgresProxy(address) as proxy:
            async with (
                machine(proxy.address, tmp_path / "a", lease_sec=20) as here,
                machine(address, tmp_path / "b") as there,
            ):
                name = await here.register(FACTS)
                here.seek_lead()
                await here.leads()
                proxy.hang()
                await here.lost()
                assert await there.alive({name}) == {name}
                await here.leads_no_more()
                with pytest.raises(Unavailable):
                    await here.register(FACTS)
                proxy.proceed()
                # Its name is known again only under a new registration.
                again = await here.register(FACTS)
                assert await there.alive({name, again}) == {again}

    run_async(main)


# The leader.


def test_there_is_one_leader_and_another_follows_it(address: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with machine(address, tmp_path / "a", lease_sec=20) as one:
            await one.register(FACTS)
            one.seek_lead()
            await one.leads()
            async with machine(address, tmp_path / "b", lease_sec=20) as two:
                await two.register(FACTS)
                two.seek_lead()
                leads = asyncio.create_task(two.leads())
                two.update(replace(FACTS, free=7))

                async def has_tried() -> bool:
                    return 7 in [each.facts.free for each in await one.living()]

                await eventually(has_tried)
                assert not leads.done()
                await one.leave()
                await leads
                await one.leads_no_more()

    run_async(main)


@pytest.mark.parametrize("lock", ["leader", "recovery"])
def test_a_lock_is_taken_from_a_program_that_is_not_alive(address: str, tmp_path: Path, lock: str) -> None:
    """Its process may be stopped, or its machine be gone: the server does not notice that."""
    from askback.store.postgres.instances import Session

    holder = Session(address, "program-stopped", limit_sec=60)
    holder.register(FACTS, instead_of=None, lease_sec=0.5, limit_sec=60)
    assert holder.take(f"askback {lock}", limit_sec=60)

    async def main() -> None:
        async with machine(address, tmp_path / "a", lease_sec=20) as here:
            await here.register(FACTS)
            if lock == "leader":
                here.seek_lead()
                await here.leads()
            else:
                async with here.exclusive():
                    pass
            assert await here.alive({"program-stopped"}) == frozenset()

    try:
        run_async(main)
    finally:
        with suppress(Exception):
            holder.close()


def test_only_one_program_of_all_machines_restarts_runs_at_a_time(address: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with machine(address, tmp_path / "a") as one, machine(address, tmp_path / "b") as two:
            await one.register(FACTS)
            await two.register(FACTS)
            inside: list[str] = []

            async def work(instances: Instances) -> None:
                for _ in range(3):
                    async with instances.exclusive():
                        inside.append(instances.name)
                        await asyncio.sleep(0)
                        assert inside == [instances.name]
                        inside.clear()

            await asyncio.gather(work(one), work(two))

    run_async(main)
