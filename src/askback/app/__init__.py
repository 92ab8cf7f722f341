"""The only code that picks implementations and connects them.

`opened` is the whole program on a data folder. `data_folder` and `engines` check what it needs, `assembly` makes it of its
`parts`, and `server` adds the HTTP side.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial

from askback.app.app import App
from askback.app.assembly import assembled
from askback.app.data_folder import own_secrets, prepare_data_folder, prepare_runs_folder
from askback.app.database import open_store, records_of, refuse_forgotten, shared_database_id
from askback.app.engines import check_sandbox, engine_setups, make_spawner, make_workdirs, try_sandbox
from askback.app.files import open_files
from askback.app.fitness import make_store_watch
from askback.app.fleet import share_slots
from askback.app.library import open_library
from askback.app.notifications import delivery_policy
from askback.app.parts import Parts, new_run_id, now
from askback.app.programs import facts, make_programs
from askback.app.roles import Role, check_database
from askback.app.telemetry import make_exporter
from askback.background.outages import OUTAGES
from askback.background.pools import Pools
from askback.catalog.probes import Probes
from askback.cluster.slots import Slots
from askback.process.isolation import hide_from_other_processes
from askback.process.warm import WarmLimits, WarmPool
from askback.settings.model import Settings
from askback.telemetry.run_observer import RunObserver
from askback.workspace.archives import Homes
from askback.workspace.uploads import SharedUploads, Uploads
from askback.workspace.workspaces import Workspaces

__all__ = ["App", "delivery_policy", "new_run_id", "now", "open_library", "opened"]


@asynccontextmanager
async def opened(
    settings: Settings, *, serving: bool = False, role: Role | None = None, read_only: bool = False
) -> AsyncIterator[App]:
    """The program on the data folder of the settings. `role`: by default a command, or with `serving` a server.

    Servers and workers also restart the runs of programs that have died. One that only looks (`read_only`) executes nothing:
    it may be opened while its file store is missing, or another one.
    """
    role = role or (Role.SERVER if serving else Role.COMMAND)
    check_database(settings, role)
    hide_from_other_processes()
    OUTAGES.forget()
    data_dir = settings.data_dir
    prepare_data_folder(data_dir, serving=role.uses_shared_queue)
    prepare_runs_folder(settings)
    if not read_only:
        await refuse_forgotten(settings)
    async with AsyncExitStack() as ends:
        store = await open_store(settings)
        ends.push_async_callback(store.close)
        stored = await open_files(settings, store, read_only=read_only)
        files, blocking = (None, None) if stored is None else (stored.files, stored.blocking)
        if stored is not None:
            ends.push_async_callback(stored.files.close)
            ends.callback(stored.blocking.close)
        elif role.uses_shared_queue:
            await store.mark_files(shared=False)
        records = records_of(store, settings, serving=role.uses_shared_queue)
        own = await asyncio.to_thread(own_secrets, settings, records, serving=role.uses_shared_queue)
        database_id = await asyncio.to_thread(shared_database_id, records, settings, serving=role.uses_shared_queue)
        engines, setups = engine_setups(settings, own)
        per_engine = {engine: setup.slots for engine, setup in setups.items() if setup.slots is not None}
        programs = make_programs(settings, store)

        def clock() -> datetime:
            return now() + programs.clock_error()

        observer, exporter = RunObserver(clock), make_exporter(settings.telemetry)
        store.observe(observer)
        if exporter is not None:
            observer.add(exporter.observe)
            ends.push_async_callback(exporter.close)
        pools = Pools()
        ends.callback(pools.close)
        ends.push_async_callback(programs.leave)
        await programs.register(facts(settings, role))
        spawner = make_spawner(settings)
        # While the program is still registered: nothing that it started may outlive the registration.
        ends.push_async_callback(spawner.close)
        programs.on_renewed(spawner.extend_lease)
        if role.executes:
            await check_sandbox(settings, spawner)
        if role.uses_shared_queue:
            await try_sandbox(spawner, executes=role.executes)
        workspaces = Workspaces(
            settings.runs,
            notes=data_dir,
            sign_ins=[name for engine in engines.values() for name in engine.credentials],
            fork_points=settings.retention.questions,
            files=blocking,
            database=database_id,
        )
        parts = Parts(
            settings=settings,
            role=role,
            programs=programs,
            store=store,
            files=files,
            store_watch=make_store_watch(files, role),
            records=records,
            spawner=spawner,
            engines=engines,
            setups=setups,
            library=open_library(settings, engines, records, blocking),
            workspaces=workspaces,
            homes=None if files is None else Homes(files, workspaces, pools.turns),
            workdirs=make_workdirs(settings),
            probes=Probes(data_dir / "probes.json", spawner),
            slots=Slots(settings.slots, per_engine, partial(share_slots, settings.quotas)),
            warm=WarmPool(_warm_limits(settings)),
            pools=pools,
            uploads=Uploads(data_dir / "uploads")
            if blocking is None
            else SharedUploads(data_dir / "uploads", blocking),
            clock=clock,
            observer=observer,
            exporter=exporter,
        )
        yield assembled(parts)


def _warm_limits(settings: Settings) -> WarmLimits:
    warm = settings.warm
    return WarmLimits(
        processes=warm.max_processes,
        memory_bytes=warm.max_memory_bytes,
        free_bytes=warm.min_free_memory_bytes,
    )
