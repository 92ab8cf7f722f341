"""The models of the installed engines, as their programs list them.

A program is asked in a separate home, with a copy of the sign-in, in the sandbox and within a time limit. Answers are
kept in memory for an hour, refusals for a minute. At most one process per engine is asked at a time, also by several
programs on one data folder.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from askback.catalog.probes import EngineSetup, Installed, home_files, identity_of, sign_in_of
from askback.core.errors import RefusalCode, Unavailable, is_temporary
from askback.core.runs import Mode
from askback.engines.base import Engine, Launch, Model, ModelQuery, NoModels, Stream, Turn
from askback.fs.beneath import remove_tree
from askback.process import tree
from askback.process.child import Child, NotStarted, OutputLimits, Pipe, Spawner, SpawnRequest
from askback.process.locks import FileLock
from askback.process.streams import Line
from askback.text.redaction import Redactor
from askback.workspace.layout import Workspace
from askback.workspace.sign_ins import SignInCopies

log = logging.getLogger(__name__)

MODELS_SEC = 30.0
"""How long a program may take to list its models."""
FRESH_SEC = 3600.0
RETRY_SEC = 60.0
_LIMITS = OutputLimits(line_bytes=1 << 22, turn_bytes=1 << 23)
_POLL_SEC = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """`models` is None if the engine cannot list them, for the `reason`."""

    models: tuple[Model, ...] | None
    reason: str | None
    asked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    workspace: Workspace
    turn: Turn
    launch: Launch
    sign_in: SignInCopies | None


class ModelLists:
    """The models of engines. `folder` is for the homes of programs that list them, `locks` for the locks of those and of sign-ins."""

    def __init__(self, *, folder: Path, locks: Path, spawner: Spawner, clock: Callable[[], datetime]) -> None:
        self._folder = folder
        self._locks = locks
        self._spawner = spawner
        self._clock = clock
        self._known: dict[str, tuple[str, ModelAnswer]] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def find(self, engine: Engine, setup: EngineSetup, installed: Installed | None) -> ModelAnswer:
        """The models of an engine: the last answer if it is recent, otherwise a new one."""
        if installed is None:
            return self._without(f"the engine is not installed; {engine.install}")
        if not engine.lists_models:
            return self._without("the engine does not list its models; name any model that it accepts")
        key = f"{identity_of(engine, installed.path, setup)} {installed.signed_in}"
        async with self._asking.setdefault(engine.name, asyncio.Lock()):
            known = self._known.get(engine.name)
            if known is None or known[0] != key or not self._is_recent(known[1]):
                known = self._known[engine.name] = key, await self._ask(engine, setup, installed)
            return known[1]

    def _is_recent(self, answer: ModelAnswer) -> bool:
        age = (self._clock() - answer.asked_at).total_seconds()
        return 0 <= age < (RETRY_SEC if answer.models is None else FRESH_SEC)

    def _without(self, reason: str) -> ModelAnswer:
        return ModelAnswer(models=None, reason=reason, asked_at=self._clock())

    async def _ask(self, engine: Engine, setup: EngineSetup, installed: Installed) -> ModelAnswer:
        lock = await self._take_lock(engine)
        if lock is None:
            return self._without("another program asks it at the moment; try again")
        try:
            found = await self._answer(engine, setup, installed, lock)
        finally:
            lock.release()
        if isinstance(found, NoModels):
            return self._without(Redactor(setup.secrets).text(f"the engine did not list its models: {found.reason}"))
        if setup.model is not None:
            # The model of the settings is the default of runs, whatever the program says.
            found = [replace(each, is_default=each.id == setup.model) for each in found]
        return ModelAnswer(models=tuple(found), reason=None, asked_at=self._clock())

    async def _take_lock(self, engine: Engine) -> FileLock | None:
        path = self._locks / f"models-{engine.name}.lock"
        for _ in range(max(1, round(MODELS_SEC / _POLL_SEC))):
            if (lock := FileLock.take(path)) is not None:
                return lock
            await asyncio.sleep(_POLL_SEC)
        return None

    async def _answer(
        self, engine: Engine, setup: EngineSetup, installed: Installed, lock: FileLock
    ) -> Sequence[Model] | NoModels:
        workspace = Workspace(self._folder / engine.name)
        prepared = await asyncio.to_thread(self._prepare, engine, setup, installed, workspace)
        query = engine.model_query(prepared.turn)
        # Ending a program ends everything with its mark, also what a program with another data folder has started.
        mark = f"models-{engine.name}-{secrets.token_hex(6)}"
        try:
            async with self._started(prepared, setup, mark, lock) as child:
                return query.finish(await _talk(child, query))
        except NotStarted as error:
            if is_temporary(error):
                message = f"engine '{engine.name}' cannot be asked at the moment: {error}; try again"
                raise Unavailable(RefusalCode.RESOURCE_SHORTAGE, message) from error
            return NoModels(reason=str(error))
        finally:
            await asyncio.to_thread(_clear, prepared)

    def _prepare(self, engine: Engine, setup: EngineSetup, installed: Installed, workspace: Workspace) -> _Prepared:
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
            extra_args=setup.extra_args,
            env=setup.env,
            credentials=workspace.present_in_home(engine.credentials),
        )
        launch = engine.launch_models(turn)
        workspace.write_home(home_files(launch, setup.home))
        workspace.write_work(launch.work_files)
        return _Prepared(workspace=workspace, turn=turn, launch=launch, sign_in=sign_in)

    @asynccontextmanager
    async def _started(
        self, prepared: _Prepared, setup: EngineSetup, mark: str, lock: FileLock
    ) -> AsyncIterator[Child]:
        workspace, launch = prepared.workspace, prepared.launch
        private = {
            "HOME": str(workspace.home),
            "TMPDIR": str(workspace.tmp),
            "PWD": str(workspace.cwd),
            tree.MARK: mark,
        }
        child = await self._spawner.start(
            SpawnRequest(
                argv=launch.argv,
                env={**prepared.turn.env, **private, **launch.env},
                cwd=workspace.cwd,
                stdin=Pipe.OPEN,
                limits=_LIMITS,
                pass_fds=(lock.fd,),
                writable=(workspace.cwd, workspace.home, workspace.tmp),
                readable=setup.files,
                resources=setup.resources,
                network=setup.network,
            )
        )
        try:
            yield child
        finally:
            await child.end(mark, grace_sec=0, lock=lock.path)
            child.close()


async def _talk(child: Child, query: ModelQuery) -> int | None:
    """Let the query and the program talk until the answer is complete. Returns the exit code if the program has ended."""
    over = asyncio.Event()

    async def take(name: str, line: Line) -> None:
        for each in query.feed(Stream(name), line.data):
            await child.send(each.data)
        if query.is_over:
            over.set()

    reading = asyncio.create_task(child.lines(take))
    waiting = asyncio.create_task(over.wait())
    try:
        for each in query.begin():
            await child.send(each.data)
        await asyncio.wait({reading, waiting}, timeout=MODELS_SEC, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else None
    finally:
        reading.cancel()
        waiting.cancel()
        await asyncio.gather(reading, waiting, return_exceptions=True)


def _clear(prepared: _Prepared) -> None:
    """Merge a renewed sign-in into the user's, and remove everything else."""
    try:
        if prepared.sign_in is not None:
            prepared.sign_in.end()
    except OSError as error:
        log.error("a renewed sign-in cannot be saved; sign in again if the engine asks for it: %s", error)
    finally:
        remove_tree(prepared.workspace.root)
