"""A process that was started before its run was submitted: how it starts, and how a run's first turn takes it over.

A run gets it only if its turn would start exactly the same: program, arguments, environment, files, sign-in and home.
`_check` is the one place that decides this.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from askback.catalog.probes import EngineSetup, home_files, identity_of, program_path
from askback.core.runs import Mode, Run
from askback.engines.base import Engine, Launch
from askback.process.child import Child, SpawnRequest
from askback.process.locks import FileLock
from askback.worker.turn.ask_tool import AskTool
from askback.worker.turn.context import TurnContext
from askback.worker.turn.observe import RawOutput
from askback.worker.turn.prepare import (
    PreparedTurn,
    Started,
    Unfit,
    copy_sign_in,
    launch_of,
    plain_turn,
    prepare,
    turn_name,
)
from askback.worker.turn.process import (
    GRACE_SEC,
    EngineProcess,
    conversation_of,
    merge_sign_in,
    open_ask_tool,
    private_request,
    spawn_request,
)
from askback.workspace.sign_ins import SignInCopies
from askback.workspace.workspaces import FreshFolders

log = logging.getLogger(__name__)

_MAX_TEMPLATE = 20_000
"""Files of a configured home that are looked at to see whether it has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """Everything that a process depends on, apart from its folder."""

    program: str
    home: tuple[tuple[str, int, int], ...]
    """The files of the configured home."""


class CannotPrewarm(Exception):
    """No process of this engine can be started in advance; the text says why."""


@dataclass(slots=True, kw_only=True, eq=False)
class PrewarmedProcess:
    context: TurnContext
    folders: FreshFolders
    run_id: str
    engine: str
    blueprint: Blueprint
    launch: Launch
    request: SpawnRequest
    child: Child
    lock: FileLock
    sign_in_copies: SignInCopies | None
    ask_tool: AskTool
    on_use: Callable[[], None]
    """Called when a run has taken it over."""
    ended: bool = False

    def is_current(self) -> bool:
        """Whether a process that is started now would be the same."""
        engine, setup = self.context.engines[self.engine], self.context.setups[self.engine]
        copies = self.sign_in_copies
        return (copies is None or copies.current()) and blueprint_of(engine, setup) == self.blueprint

    async def take_over(self, run: Run) -> EngineProcess:
        """The process for the first turn of its run. Raises `CannotStart` or `Unfit`, and must be ended then."""
        started = Started(sign_in_copies=self.sign_in_copies, check=partial(_check, run, self))
        prepared = await prepare(self.context, run, started=started)
        conversation = conversation_of(prepared)
        assert conversation is not None, "its launch is the one of a resident process"
        raw = RawOutput(prepared.workspace, turn_name(run))
        process = EngineProcess(
            run,
            prepared,
            conversation,
            conversation,
            self.child,
            self.lock,
            raw,
            ask_tool=self.ask_tool,
            prewarmed=True,
        )
        resources = AsyncExitStack()
        resources.callback(self.lock.release)
        resources.callback(self.ask_tool.close)
        resources.callback(self.context.workspaces.forget_sign_in, run.id)
        process.own(resources)
        self.folders.hand_over(run.id)
        self.on_use()
        return process

    async def end(self, *, unused: bool = False) -> None:
        """End its process tree. `unused`: no run has its folder, which is removed."""
        if self.ended:
            return
        self.ended = True
        while not await self.child.end(self.run_id, grace_sec=GRACE_SEC, lock=self.lock.path):
            log.error("a prewarmed process cannot be ended, trying again", extra={"run": self.run_id})
        try:
            self.ask_tool.close()
            self.child.close()
            await merge_sign_in(self.run_id, self.sign_in_copies)
            self.context.workspaces.forget_sign_in(self.run_id)
            await asyncio.to_thread(self.folders.remove if unused else self.folders.hand_over, self.run_id)
        finally:
            self.lock.release()


def blueprint_of(engine: Engine, setup: EngineSetup) -> Blueprint:
    path = program_path(setup)
    return Blueprint(program="" if path is None else identity_of(engine, path, setup), home=_files_of(setup.home))


def _files_of(home: Path | None) -> tuple[tuple[str, int, int], ...]:
    """Raises `OSError` for a home that cannot be read."""
    found: list[tuple[str, int, int]] = []
    pending = [] if home is None else [str(home)]
    while pending and len(found) < _MAX_TEMPLATE:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                found.append((entry.path, status.st_size, status.st_mtime_ns))
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return tuple(sorted(found))


# Starting it.


async def start_prewarmed(
    context: TurnContext, folders: FreshFolders, name: str, run_id: str, *, on_use: Callable[[], None]
) -> PrewarmedProcess:
    """Start a process of the engine in a new folder. Raises `CannotPrewarm`, `NotStarted` or `OSError`."""
    engine, setup = context.engines[name], context.setups[name]
    installed = await context.probes.find(engine, setup)
    if installed is None:
        raise CannotPrewarm(f"{setup.command[0]} is not installed")
    if (problem := context.warm_obstacle(name, installed.probe)) is not None:
        raise CannotPrewarm(problem)
    async with AsyncExitStack() as unless_started:
        blueprint = await asyncio.to_thread(blueprint_of, engine, setup)
        unless_started.push_async_callback(asyncio.to_thread, folders.remove, run_id)
        workspace, lock = await asyncio.to_thread(folders.create, run_id, setup.home)
        unless_started.callback(lock.release)
        await asyncio.to_thread(context.workspaces.record_sign_in, run_id)
        unless_started.callback(context.workspaces.forget_sign_in, run_id)
        copies = await asyncio.to_thread(copy_sign_in, context, engine, setup, workspace)
        unless_started.push_async_callback(merge_sign_in, run_id, copies)
        turn = plain_turn(engine, setup, installed.probe, workspace, Mode.INTERACTIVE)
        launch = launch_of(engine, turn, resident=True)
        await asyncio.to_thread(workspace.write_home, home_files(launch, setup.home))
        await asyncio.to_thread(workspace.write_work, launch.work_files)
        request = private_request(context, workspace, setup, turn, launch, lock)
        ask_tool = await open_ask_tool(turn, workspace)
        unless_started.callback(ask_tool.close)
        child = await context.spawner.start(request)
        unless_started.pop_all()
    return PrewarmedProcess(
        context=context,
        folders=folders,
        run_id=run_id,
        engine=name,
        blueprint=blueprint,
        launch=launch,
        request=request,
        child=child,
        lock=lock,
        sign_in_copies=copies,
        ask_tool=ask_tool,
        on_use=on_use,
    )


def _check(run: Run, process: PrewarmedProcess, prepared: PreparedTurn) -> None:
    """Raise `Unfit` unless the turn would start just this process."""
    if process.child.has_exited or process.child.over_limit.is_set():
        raise Unfit("it has ended")
    if process.child.is_stopped:
        raise Unfit("it is suspended")
    if not prepared.resident or prepared.launch != process.launch:
        raise Unfit("the run needs another launch")
    if spawn_request(process.context, run, prepared, process.lock) != process.request:
        raise Unfit("the run needs another environment")
    if not process.is_current():
        raise Unfit("the program, the sign-in or the home has changed")
