"""Which folders of runs a machine removes because their runs were deleted elsewhere, and which it must never touch."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.app import App
from askback.background.pools import Pools
from askback.core.errors import Unavailable
from askback.process.locks import FileLock
from askback.runs.deletion import DeletedRuns, Deletion
from askback.workspace.uploads import Uploads
from askback.workspace.workspaces import Workspaces
from support.data_folder import FINISH, World, over, run_async, submit


class Machine:
    """The folders of another machine on the database of an app."""

    def __init__(self, app: App, folder: Path, database: str = "one") -> None:
        self.runs = folder / "runs"
        self.marks = folder / "deleting"
        self.workspaces = Workspaces(self.runs, database=database)
        uploads = Uploads(folder / "uploads")
        deletion = Deletion(store=app.store, workspaces=self.workspaces, uploads=uploads, pools=Pools())
        self.deleted_runs = DeletedRuns(app.store, deletion)

    def has(self, run_id: str) -> bool:
        return (self.runs / run_id).exists()

    def put(self, run_id: str, *, stored: bool = True) -> None:
        """Files of a run; `stored`: a turn has begun here, so the database has the run."""
        (self.runs / run_id / "turns").mkdir(parents=True)
        (self.runs / run_id / "turns" / "0001-01.prompt").write_text("a customer's text")
        if stored:
            self.workspaces.of(run_id).record_database()


async def ended(app: App, world: World) -> str:
    return (await over(app, (await submit(app, world.skill([FINISH]), mode="auto")).id)).id


@pytest.mark.databases
@pytest.mark.contract("J-8")
def test_the_files_of_a_run_that_was_deleted_elsewhere_go_and_those_of_others_stay(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            machine = Machine(app, tmp_path / "other")
            gone, kept = await ended(app, world), await ended(app, world)
            machine.put(gone)
            machine.put(kept)
            await machine.deleted_runs.sweep()
            assert machine.has(gone)
            await app.deletion.delete(gone)
            await machine.deleted_runs.sweep()
            assert not machine.has(gone)
            assert machine.has(kept)
            assert not list(machine.marks.glob("*"))

    run_async(main)


def test_the_files_of_a_run_that_is_being_created_stay(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            machine = Machine(app, tmp_path / "other")
            machine.put("not-yet-stored", stored=False)
            await machine.deleted_runs.sweep()
            assert machine.has("not-yet-stored")

    run_async(main)


def test_the_files_of_runs_of_another_database_stay(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            Machine(app, tmp_path / "other", database="one").put("a-run")
            machine = Machine(app, tmp_path / "other", database="another")
            await machine.deleted_runs.sweep()
            assert machine.has("a-run")

    run_async(main)


def test_a_run_of_an_earlier_version_is_marked_while_it_exists(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            machine = Machine(app, tmp_path / "other")
            run_id = await ended(app, world)
            machine.put(run_id, stored=False)
            await machine.deleted_runs.sweep()
            await app.deletion.delete(run_id)
            await machine.deleted_runs.sweep()
            assert not machine.has(run_id)

    run_async(main)


def test_a_folder_stays_while_a_process_of_its_run_is_alive(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            machine = Machine(app, tmp_path / "other")
            machine.put("deleted")
            lock = FileLock.take(machine.workspaces.of("deleted").lock_path)
            assert lock is not None
            await machine.deleted_runs.sweep()
            assert machine.has("deleted")
            lock.release()
            await machine.deleted_runs.sweep()
            assert not machine.has("deleted")

    run_async(main)


def test_nothing_is_removed_while_the_database_cannot_be_read(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            machine = Machine(app, tmp_path / "other")
            machine.put("deleted")
            database = world.data_dir / "askback.db"
            database.rename(tmp_path / "away.db")
            with pytest.raises(Unavailable):
                await machine.deleted_runs.sweep()
            assert machine.has("deleted")
            (tmp_path / "away.db").rename(database)

    run_async(main)


def test_an_interrupted_removal_is_finished(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            machine = Machine(app, tmp_path / "other")
            machine.put("deleted", stored=False)
            machine.workspaces.mark_for_deletion("deleted")
            await machine.deleted_runs.sweep()
            assert not machine.has("deleted")
            assert not list(machine.marks.glob("*"))

    run_async(main)
