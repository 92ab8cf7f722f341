"""Stores the files that only the data folder of this instance has, so that every machine can continue its runs and show them.

A run has no archive of its files if its last turn ended without the setting `files`: before it was set, or before its
data folder was imported. Until the files of all unfinished runs are stored (`Sharing`), the store lets no instance with another
data folder in. The artifacts of runs that ended before that (`EarlierRuns`) take as long as they take.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from askback.background.loops import keep_trying
from askback.background.pools import Pools
from askback.core.errors import AskbackError, Conflict, NotFound, RefusalCode, RunWarning, WarningCode
from askback.core.runs import Run, RunState, TurnKind
from askback.core.signals import FilesStored
from askback.engines.registry import Engines
from askback.fs.archive_writer import TreeChangedWhilePacking
from askback.fs.walk import TreeTooLarge
from askback.process.locks import FileLock
from askback.skills.library import Library
from askback.store.base import Store, move
from askback.worker.turn.prepare import turn_name
from askback.workspace.archives import NotArchived, RunArchives
from askback.workspace.layout import Workspace
from askback.workspace.run_objects import uploaded_package_key
from askback.workspace.snapshots import HomeLost
from askback.workspace.turn_artifacts import store_artifacts, store_earlier
from askback.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)

_AT_ONCE = 8
_SHARING_PAUSE_SEC = 2.0
_EARLIER_PAUSE_SEC = 10.0
NOTE = "earlier-runs-stored"
"""In the data folder, once nothing is left to do: later runs are stored as they end."""


async def _until(is_done: Callable[[], Awaitable[bool]], pause_sec: float, failing: str) -> None:
    async def attempt() -> bool:
        done = await is_done()
        if not done:
            await asyncio.sleep(pause_sec)
        return done

    await keep_trying(attempt, log, failing)


class Sharing:
    """Stores the files of unfinished runs, for which other machines wait.

    A run that is being executed is looked at again when its turn has ended. A sticky run needs its process, not its files.
    """

    def __init__(
        self,
        *,
        store: Store,
        archives: RunArchives,
        workspaces: Workspaces,
        library: Library,
        engines: Engines,
        pools: Pools,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._archives = archives
        self._workspaces = workspaces
        self._library = library
        self._engines = engines
        self._pools = pools
        self._clock = clock
        self._left: list[str] | None = None
        """The runs that are not settled; None: they are not known yet."""

    async def run(self) -> None:
        """Returns when everything is stored."""
        await _until(
            self._is_done, _SHARING_PAUSE_SEC, "files that only this machine has cannot be stored, trying again"
        )

    async def _is_done(self) -> bool:
        if not await self._store.has_unshared_files():
            return True
        if self._left is None:
            await self._pools.skills.run(self._store_installed, admitted=True)
            owned = [run for owner in await self._store.owners() for run in await self._store.owned_by(owner)]
            self._left = [run.id for run in owned if _needs_files(run)]
            if self._left:
                log.info("storing the files of %d runs that may be on this machine alone", len(self._left))
        all_left = tuple(self._left)
        for first in range(0, len(all_left), _AT_ONCE):
            await self._settle_all(all_left[first : first + _AT_ONCE])
        if self._left:
            return False
        await self._store.mark_files(shared=True)
        log.info("the files of all waiting and queued runs are stored")
        return True

    async def _settle_all(self, run_ids: Sequence[str]) -> None:
        assert self._left is not None
        settled = await asyncio.gather(*map(self._settle, run_ids), return_exceptions=True)
        for run_id, result in zip(run_ids, settled, strict=True):
            if result is True:
                self._left.remove(run_id)
        for result in settled:
            if isinstance(result, BaseException):
                raise result

    async def _settle(self, run_id: str) -> bool:
        """Store the files of one run. False if it must be tried again."""
        workspace = self._workspaces.of(run_id)
        if not await asyncio.to_thread(workspace.root.is_dir):
            # Nothing is here: the run has not started, and has no files.
            return True
        lock = await asyncio.to_thread(FileLock.take, workspace.lock_path)
        try:
            # With the lock: from now on, no turn begins in this folder.
            run = await self._store.get(run_id)
            if not _needs_files(run):
                return True
            is_idle = lock is not None and run.state is not RunState.RUNNING
            return is_idle and await self._store_files(run, workspace)
        except NotFound:
            return True
        except OSError as error:
            log.error("the files of a run cannot be stored, trying again: %s", error, extra={"run": run_id})
            return False
        finally:
            if lock is not None:
                lock.release()

    async def _store_files(self, run: Run, workspace: Workspace) -> bool:
        try:
            await self._pools.turns.run(self._prepare, run, workspace, admitted=True)
        except (HomeLost, TreeTooLarge) as problem:
            log.warning("the files of a run are not stored: %s", problem, extra={"run": run.id})
            return True
        if run.env_names:
            await self._archives.save_pad(run.id)
        engine = self._engines.get(run.engine)
        caches = () if engine is None else engine.all_caches
        try:
            kept = await self._archives.save(run, caches, over=False, alive=True)
            signal = FilesStored(epoch=run.epoch, archive_key=kept, at=self._clock())
        except TreeChangedWhilePacking:
            return False
        except NotArchived as problem:
            warning = RunWarning(code=WarningCode.FILES_NOT_KEPT, message=str(problem))
            signal = FilesStored(epoch=run.epoch, archive_key=problem.key, at=self._clock(), warnings=(warning,))
        try:
            await move(self._store, run.id, signal, seen=run)
        except (Conflict, NotFound):
            # An instance has claimed the run, or the run is over.
            await self._archives.delete(signal.archive_key, run)
            return False
        log.info("the files of a run, which only this machine had, are stored", extra={"run": run.id})
        return True

    def _prepare(self, run: Run, workspace: Workspace) -> None:
        """Make the folder what the next turn begins with, and store what is not in the archive. Raises `HomeLost`."""
        if run.state is RunState.QUEUED and not run.starts_session:
            # An interrupted turn has changed the home; the copies from before it are not in the archive.
            answers = run.next_turn.kind is TurnKind.REPLY
            workspace.begin_later_turn(run.next_turn.attempt_number, answers=answers)
        if run.skill.uploaded:
            with _leaving_out_damaged():
                package = self._library.unpacked(workspace.package, run.skill.digest)
                self._library.store_unpacked(package, uploaded_package_key(run.id))
        else:
            self._store_package(run.skill.digest)
        if run.epoch:
            store_artifacts(workspace, turn_name(run))

    def _store_installed(self) -> None:
        for skill in self._library.installed():
            for version in skill.versions:
                self._store_package(version.digest)

    def _store_package(self, digest: str) -> None:
        with _leaving_out_damaged():
            self._library.store(self._library.package(digest))


@contextmanager
def _leaving_out_damaged() -> Iterator[None]:
    """A package that cannot be read is left out: no machine can use it."""
    try:
        yield
    except AskbackError as error:
        if error.code is RefusalCode.FILES_UNAVAILABLE:
            raise
        log.warning("a skill package is not stored: %s", error.message)


def _needs_files(run: Run) -> bool:
    """Whether a further turn needs files of this run that are not stored."""
    if run.state.final or run.kept is not None:
        return False
    return not run.sticky or (run.state is not RunState.WAITING_USER and run.next_turn.kind is TurnKind.START)


class EarlierRuns:
    """Stores the artifacts of runs that ended before the setting `files`."""

    def __init__(self, *, store: Store, workspaces: Workspaces, pools: Pools, data_dir: Path) -> None:
        self._store = store
        self._workspaces = workspaces
        self._pools = pools
        self._note = data_dir / NOTE

    async def run(self) -> None:
        """Returns when everything is stored."""
        await _until(
            self._is_done, _EARLIER_PAUSE_SEC, "artifacts that only this machine has cannot be stored, trying again"
        )

    async def _is_done(self) -> bool:
        if await self._store.has_unshared_files():
            # An instance has worked here without the setting.
            await asyncio.to_thread(self._note.unlink, missing_ok=True)
        elif await asyncio.to_thread(self._note.exists):
            return True
        left = [each for each in await asyncio.to_thread(self._workspaces.run_ids) if not await self._settle(each)]
        if left:
            return False
        await asyncio.to_thread(self._note.touch)
        log.info("the artifacts of all earlier runs on this machine are stored")
        return True

    async def _settle(self, run_id: str) -> bool:
        """Store the artifacts of one run, if nobody has them. False if it must be tried again."""
        try:
            run = await self._store.get(run_id)
        except NotFound:
            return True
        if not run.ended_unstored:
            return True
        workspace = self._workspaces.of(run_id)
        lock = await asyncio.to_thread(FileLock.take, workspace.lock_path)
        if lock is None:
            # Another instance on this data folder is storing it, or removes it.
            return False
        try:
            await self._pools.turns.run(store_earlier, workspace, turn_name(run), admitted=True)
            await self._store.get(run_id)
        except NotFound:
            # It was deleted meanwhile.
            await asyncio.to_thread(self._workspaces.withdraw_stored, run_id)
        finally:
            lock.release()
        return True
