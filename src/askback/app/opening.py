"""Opening an instance on the data folder of its settings: what must exist before its components are made."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from askback import __version__
from askback.app import storage
from askback.app.app import App
from askback.app.engines import check_sandbox, engine_setups, make_spawner, make_workdirs, try_sandbox
from askback.app.files import open_files, open_library
from askback.background.outages import OUTAGES
from askback.background.pools import Pools
from askback.cluster.instances import Instances, Role, wall_clock
from askback.core.errors import Invalid, RefusalCode
from askback.core.instances import InstanceFacts
from askback.process.isolation import hide_from_other_processes
from askback.process.tree import boot_id
from askback.settings.model import Settings
from askback.settings.sections import TelemetrySettings
from askback.store.base import Store
from askback.telemetry.run_observer import RunObserver
from askback.workspace.uploads import SharedUploads, Uploads
from askback.workspace.workspaces import Workspaces

if TYPE_CHECKING:
    from askback.store.postgres import PostgresStore
    from askback.telemetry.exporter import Exporter

_OTEL_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
INSTALL_OTEL = "install it with: pip install 'askback[otel]' (with pipx: pipx inject askback 'askback[otel]')"


@asynccontextmanager
async def opened(
    settings: Settings, *, serving: bool = False, role: Role | None = None, read_only: bool = False
) -> AsyncIterator[App]:
    """An instance on the data folder of the settings. `role`: by default a command, or with `serving` a server.

    Servers and workers also restart the runs of instances that have died. One that is `read_only` executes nothing: it may
    be opened while its file store is missing, or another one.
    """
    role = role or (Role.SERVER if serving else Role.COMMAND)
    check_database(settings, role)
    hide_from_other_processes()
    OUTAGES.forget()
    data_dir = settings.data_dir
    storage.prepare_data_folder(data_dir, serving=role.uses_shared_queue)
    storage.prepare_runs_folder(settings)
    if not read_only:
        await storage.refuse_forgotten(settings)
    async with AsyncExitStack() as ends:
        store = await storage.open_store(settings)
        ends.push_async_callback(store.close)
        files = await open_files(settings, store, read_only=read_only)
        if files is None and role.uses_shared_queue:
            await store.mark_files(shared=False)
        records = storage.records_of(store, settings, serving=role.uses_shared_queue)
        secrets = await asyncio.to_thread(storage.own_secrets, settings, records, serving=role.uses_shared_queue)
        database_id = await asyncio.to_thread(
            storage.shared_database_id, records, settings, serving=role.uses_shared_queue
        )
        engines, setups = engine_setups(settings, secrets)
        instances = _make_instances(settings, store)

        def clock() -> datetime:
            return wall_clock() + instances.clock_error()

        observer, exporter = RunObserver(clock), _make_exporter(settings.telemetry)
        store.observe(observer)
        if exporter is not None:
            observer.add(exporter.observe)
            ends.push_async_callback(exporter.close)
        pools = Pools()
        ends.callback(pools.close)
        ends.push_async_callback(instances.leave)
        await instances.register(_facts(settings, role))
        spawner = make_spawner(settings)
        # While the instance is still registered: nothing that it started may outlive the registration.
        ends.push_async_callback(spawner.close)
        instances.on_renewed(spawner.extend_lease)
        if role.executes:
            await check_sandbox(settings, spawner)
        if role.uses_shared_queue:
            await try_sandbox(spawner, executes=role.executes)
        uploads = data_dir / "uploads"
        homes = [setup.resources.disk_bytes for setup in setups.values()]
        yield App(
            settings=settings,
            role=role,
            instances=instances,
            store=store,
            files=files,
            records=records,
            spawner=spawner,
            engines=engines,
            setups=setups,
            library=open_library(settings, engines, records, files),
            workspaces=Workspaces(
                settings.runs,
                notes=data_dir,
                sign_ins=[name for engine in engines.values() for name in engine.credentials],
                fork_points=settings.retention.questions,
                files=files,
                database=database_id,
                # The largest limit on disk that an engine has, if all have one.
                home_bytes=max(homes) if homes and all(homes) else 0,
            ),
            workdirs=make_workdirs(settings),
            pools=pools,
            uploads=Uploads(uploads) if files is None else SharedUploads(uploads, files),
            clock=clock,
            observer=observer,
            exporter=exporter,
        )


def check_database(settings: Settings, role: Role) -> None:
    """Refuse a role that needs a database that several instances share. SQLite belongs to those of one machine."""
    messages = {
        Role.API_SERVER: (
            "`--no-worker` needs PostgreSQL: with SQLite there are no other workers, and no run would ever start"
        ),
        Role.WORKER: "`askback worker` needs PostgreSQL: with SQLite, the server executes the runs itself",
    }
    if storage.is_shared(settings) or role not in messages:
        return
    advice = "set `database` to the address of a PostgreSQL database; see docs/guides/postgresql.md"
    raise Invalid(RefusalCode.SETTINGS_INVALID, f"{messages[role]}; {advice}")


def _make_instances(settings: Settings, store: Store) -> Instances:
    """An instance registers by a file lock or, in PostgreSQL, by a lease."""
    folder = settings.data_dir / "programs"
    address = storage.postgres_address(settings)
    if address is None:
        return Instances(folder)
    # An extra.
    from askback.cluster.lease import LeasedInstances, LeaseTimes

    times = LeaseTimes(lease=settings.fleet.lease_sec)
    return LeasedInstances(folder, cast("PostgresStore", store), address, times)


def _facts(settings: Settings, role: Role) -> InstanceFacts:
    slots = settings.slots if role.executes else 0
    return InstanceFacts(
        kind=role.kind,
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        version=__version__,
        slots=slots,
        free=slots,
        public_url=settings.server.public_url if role.serves else None,
        port=(settings.server.port or None) if role.serves else None,
        lease_sec=settings.fleet.lease_sec,
    )


def lacks_opentelemetry() -> bool:
    """Whether the packages of the extra `otel` are missing."""
    try:
        return any(find_spec(name) is None for name in _OTEL_PACKAGES)
    except ImportError:
        return True


def _make_exporter(settings: TelemetrySettings) -> Exporter | None:
    """What sends telemetry; None if the settings name no collector."""
    if settings.otlp_endpoint is None:
        return None
    if lacks_opentelemetry():
        problem = f"telemetry.otlp_endpoint: OpenTelemetry is not installed; {INSTALL_OTEL}, or remove the setting"
        raise Invalid(RefusalCode.SETTINGS_INVALID, "telemetry cannot be sent", [problem])
    # Loads a lot, and is an extra.
    from askback.telemetry.exporter import Exporter

    return Exporter(settings.otlp_endpoint, settings.otlp_headers)
