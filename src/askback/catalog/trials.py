"""Processes of an engine outside of any run: in a separate home, with a copy of the sign-in, and in the sandbox.

Each engine has at most one trial at a time, also by several programs on one data folder.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from askback.catalog.probes import EngineSetup, Installed, home_files, sign_in_of
from askback.core.errors import RefusalCode, Unavailable, is_temporary
from askback.core.runs import Mode
from askback.engines.base import Engine, EngineEvent, Launch, Send, Stream, Turn
from askback.fs.beneath import remove_tree
from askback.process import tree
from askback.process.child import Child, NotStarted, OutputLimits, Pipe, Spawner, SpawnRequest
from askback.process.locks import FileLock
from askback.process.streams import Line
from askback.workspace.layout import Workspace
from askback.workspace.sign_ins import SignInCopies

log = logging.getLogger(__name__)

_LOCK_SEC = 30.0
_LIMITS = OutputLimits(line_bytes=1 << 22, turn_bytes=1 << 23)
_POLL_SEC = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """`turn` is the first turn of a session in the trial's folders."""

    engine: Engine
    setup: EngineSetup
    turn: Turn
    workspace: Workspace
    sign_in: SignInCopies | None
    spawner: Spawner
    lock: FileLock

    @asynccontextmanager
    async def process(self, launch: Launch) -> AsyncIterator[Child]:
        """A process, whose whole tree is killed after the block. Raises `NotStarted`, or `Unavailable` in a shortage."""
        workspace, setup = self.workspace, self.setup
        await asyncio.to_thread(self._write, launch)
        # Ending a program ends everything with its mark, also what a program with another data folder has started.
        mark = f"trial-{self.engine.name}-{secrets.token_hex(6)}"
        private = {
            "HOME": str(workspace.home),
            "TMPDIR": str(workspace.tmp),
            "PWD": str(workspace.cwd),
            tree.MARK: mark,
        }
        request = SpawnRequest(
            argv=launch.argv,
            env={**self.turn.env, **private, **launch.env},
            cwd=workspace.cwd,
            stdin=Pipe.OPEN,
            limits=_LIMITS,
            pass_fds=(self.lock.fd,),
            writable=(workspace.cwd, workspace.home, workspace.tmp),
            readable=setup.files,
            resources=setup.resources,
            network=setup.network,
        )
        try:
            child = await self.spawner.start(request)
        except NotStarted as error:
            if not is_temporary(error):
                raise
            message = f"engine '{self.engine.name}' cannot be asked at the moment: {error}; try again"
            raise Unavailable(RefusalCode.RESOURCE_SHORTAGE, message) from error
        try:
            yield child
        finally:
            await child.end(mark, grace_sec=0, lock=self.lock.path)
            child.close()

    def _write(self, launch: Launch) -> None:
        self.workspace.write_home(home_files(launch, self.setup.home))
        self.workspace.write_work(launch.work_files)

    def clear(self) -> None:
        """Merge a renewed sign-in into the user's, and remove everything else."""
        try:
            if self.sign_in is not None:
                self.sign_in.end()
        except OSError as error:
            log.error("a renewed sign-in cannot be saved; sign in again if the engine asks for it: %s", error)
        finally:
            remove_tree(self.workspace.root)


class Trials:
    """`folder` is for the homes of the programs, `locks` for their locks and those of sign-ins."""

    def __init__(self, *, folder: Path, locks: Path, spawner: Spawner) -> None:
        self._folder = folder
        self._locks = locks
        self._spawner = spawner

    @asynccontextmanager
    async def begin(self, engine: Engine, setup: EngineSetup, installed: Installed) -> AsyncIterator[Trial | None]:
        """A trial of an engine; None if another program has one for too long."""
        lock = await self._take_lock(engine)
        if lock is None:
            yield None
            return
        try:
            trial = await asyncio.to_thread(self._prepare, engine, setup, installed, lock)
            try:
                yield trial
            finally:
                await asyncio.to_thread(trial.clear)
        finally:
            lock.release()

    async def _take_lock(self, engine: Engine) -> FileLock | None:
        path = self._locks / f"models-{engine.name}.lock"
        for _ in range(max(1, round(_LOCK_SEC / _POLL_SEC))):
            if (lock := FileLock.take(path)) is not None:
                return lock
            await asyncio.sleep(_POLL_SEC)
        return None

    def _prepare(self, engine: Engine, setup: EngineSetup, installed: Installed, lock: FileLock) -> Trial:
        workspace = Workspace(self._folder / engine.name)
        # A program that was killed may have left its folder.
        remove_tree(workspace.root)
        for folder in (workspace.cwd, workspace.tmp):
            folder.mkdir(parents=True, mode=0o700)
        workspace.begin_first_turn(setup.home)
        credentials = sign_in_of(engine, setup, self._locks)
        sign_in = None if credentials is None else credentials.copy_into(workspace.home)
        turn = Turn(
            prompt="",
            mode=Mode.AUTO,
            attempt_number=1,
            command=setup.command,
            cwd=str(workspace.cwd),
            home=str(workspace.home),
            skill_dir="skill",
            probe=installed.probe,
            model=setup.model,
            may_ask=False,
            extra_args=setup.extra_args,
            env=setup.env,
            credentials=workspace.present_in_home(engine.credentials),
        )
        return Trial(
            engine=engine,
            setup=setup,
            turn=turn,
            workspace=workspace,
            sign_in=sign_in,
            spawner=self._spawner,
            lock=lock,
        )


async def talk(
    child: Child,
    said: Iterable[EngineEvent],
    feed: Callable[[Stream, bytes], Iterable[EngineEvent]],
    is_over: Callable[[], bool],
    seconds: float,
) -> int | None:
    """Send what is said, and what `feed` answers to the program's lines, until it is over. Returns the exit code of a program that has ended."""
    over = asyncio.Event()

    async def take(name: str, line: Line) -> None:
        await send(feed(Stream(name), line.data))

    async def send(events: Iterable[EngineEvent]) -> None:
        for each in events:
            if isinstance(each, Send):
                await child.send(each.data)
        if is_over():
            over.set()

    reading = asyncio.create_task(child.lines(take))
    waiting = asyncio.create_task(over.wait())
    try:
        await send(said)
        await asyncio.wait({reading, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else None
    finally:
        reading.cancel()
        waiting.cancel()
        await asyncio.gather(reading, waiting, return_exceptions=True)
