"""The only file that picks implementations and wires them together."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from askback.core.errors import Invalid, RefusalCode, Unavailable
from askback.core.runs import SHARED, Run
from askback.engines import registry
from askback.engines.base import Engine
from askback.engines.registry import Engines
from askback.probes import EngineSetup, Probes
from askback.process.child import OutputLimits
from askback.process.locks import Programs
from askback.process.workspace import Workspaces
from askback.service import Service
from askback.settings import EngineSettings, Settings, engine_environment, secret_values, user_home
from askback.skills.archive import ZipLimits
from askback.skills.library import Library
from askback.store.base import Store
from askback.store.sqlite import SqliteStore
from askback.work.bench import Bench
from askback.work.deadlines import Deadlines
from askback.work.recovery import Recovery
from askback.work.slots import Slots
from askback.work.turn import execute
from askback.work.worker import Worker

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class App:
    """One program on a data folder."""

    settings: Settings
    store: Store
    service: Service
    workspaces: Workspaces
    worker: Worker
    deadlines: Deadlines
    recovery: Recovery

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Carry runs out for as long as the block lasts; turns in progress at its end go back to the queue."""
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(self.worker.run())
            deadlines = group.create_task(self.deadlines.run())
            try:
                yield
            finally:
                self.worker.stop()
                await worker
                deadlines.cancel()

    async def take_over(self, run_id: str) -> Run:
        """Carry on a run that a program which is gone left behind, also in the middle of a turn."""
        return await self.recovery.take_up(await self.service.adopt(run_id))


@asynccontextmanager
async def opened(settings: Settings, *, serving: bool = False) -> AsyncIterator[App]:
    """Everything wired on the data folder. A serving program also carries on what others left behind."""
    data_dir = _data_folder(settings.data_dir)
    engines, setups = _engines(settings)
    programs = Programs(data_dir / "programs")
    store = await SqliteStore.open(data_dir / "askback.db")
    name, lock = programs.register()
    try:
        yield _wire(settings, data_dir, engines, setups, programs, store, name, serving)
    finally:
        await store.close()
        programs.leave(name, lock)


def _wire(
    settings: Settings,
    data_dir: Path,
    engines: Engines,
    setups: dict[str, EngineSetup],
    programs: Programs,
    store: Store,
    name: str,
    serving: bool,
) -> App:
    library = open_library(settings)
    workspaces = Workspaces(data_dir / "runs")
    probes = Probes(data_dir / "probes.json")
    keeper = SHARED if serving else name
    bench = Bench(
        store=store,
        packages=library,
        workspaces=workspaces,
        locks=data_dir / "locks",
        engines=engines,
        setups=setups,
        probes=probes,
        limits=OutputLimits(line_bytes=settings.limits.line_bytes, turn_bytes=settings.limits.output_bytes),
        clock=now,
    )
    per_engine = {engine: setup.slots for engine, setup in setups.items() if setup.slots is not None}
    return App(
        settings=settings,
        store=store,
        workspaces=workspaces,
        service=Service(
            store=store,
            library=library,
            engines=engines,
            setups=setups,
            probes=probes,
            workspaces=workspaces,
            keeper=keeper,
            is_alive=programs.is_alive,
            clock=now,
            new_id=new_run_id,
            default_engine=settings.default_engine,
        ),
        worker=Worker(
            name=name,
            keepers={keeper},
            store=store,
            slots=Slots(settings.slots, per_engine),
            execute=partial(execute, bench),
            clock=now,
        ),
        deadlines=Deadlines(store=store, keepers={keeper}, clock=now),
        recovery=Recovery(store=store, programs=programs, workspaces=workspaces, clock=now),
    )


def open_library(settings: Settings) -> Library:
    limits = ZipLimits(entries=settings.limits.zip_entries, total_bytes=settings.limits.zip_total_bytes)
    return Library(settings.data_dir, settings.skills_dir, limits)


def now() -> datetime:
    return datetime.now(UTC)


def new_run_id() -> str:
    """Sorts by time, short enough to type: 9 characters of milliseconds and 7 of chance."""
    number = (int(time.time() * 1000) << 35) | secrets.randbits(35)
    digits = [_ALPHABET[(number >> shift) & 31] for shift in range(75, -5, -5)]
    return "".join(digits)


def _data_folder(data_dir: Path) -> Path:
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        message = f"the data folder {data_dir} cannot be made: {error.strerror}; name another with --data-dir"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
    return data_dir


def _engines(settings: Settings) -> tuple[Engines, dict[str, EngineSetup]]:
    engines = registry.engines()
    if unknown := sorted(settings.engines.keys() - engines.keys()):
        problems = [f"engines.{name}: there is no such engine; known: {', '.join(engines)}" for name in unknown]
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings name engines that do not exist", problems)
    if settings.sandbox == "on":
        problems = ["sandbox: 'on' cannot be had in this version; leave it at 'auto' or 'off'"]
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings ask for a sandbox", problems)
    return engines, {name: _setup(engine, settings.engines.get(name)) for name, engine in engines.items()}


def _setup(engine: Engine, given: EngineSettings | None) -> EngineSetup:
    given = given or EngineSettings()
    env = engine_environment(engine.env_allow, given.env)
    return EngineSetup(
        command=given.command or engine.default_command,
        env=env,
        model=given.model,
        home=given.home,
        sign_in_home=given.home or user_home(),
        extra_args=given.extra_args,
        slots=given.slots,
        secrets=secret_values(env),
    )
