"""One program on a data folder, put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from askback.app.roles import Role
from askback.blobs import Files
from askback.cluster.fleet import Fleet
from askback.cluster.instances import Programs
from askback.cluster.offering import Offering
from askback.cluster.recovery import Recovery
from askback.cluster.slots import Slots
from askback.fs.records import Records
from askback.notifications.delivery import Notifications
from askback.notifications.digests import Digests
from askback.process.child import Spawner
from askback.process.warm import WarmPool
from askback.runs.deletion import DeletedRuns, Deletion
from askback.runs.retention import Retention
from askback.runs.service import Service
from askback.settings.model import Settings
from askback.store.base import Store
from askback.telemetry.run_observer import RunObserver
from askback.worker.deadlines import Deadlines
from askback.worker.earlier_runs import EarlierRuns
from askback.worker.fitness import Fitness
from askback.worker.membership import Membership
from askback.worker.prewarm import Prewarming
from askback.worker.sharing import Sharing
from askback.worker.vitals import Vitals
from askback.worker.worker import Worker
from askback.workspace.uploads import Uploads
from askback.workspace.workspaces import Workspaces

if TYPE_CHECKING:
    from askback.notifications.telegram.bot import TelegramBot
    from askback.telemetry.exporter import Exporter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class App:
    """One program on a data folder."""

    settings: Settings
    programs: Programs
    membership: Membership
    store: Store
    files: Files | None
    records: Records
    service: Service
    workspaces: Workspaces
    uploads: Uploads
    slots: Slots
    warm: WarmPool
    prewarming: Prewarming
    spawner: Spawner
    worker: Worker
    deadlines: Deadlines
    recovery: Recovery
    deletion: Deletion
    deleted_runs: DeletedRuns | None
    """Only a program whose database may have runs of other machines has it."""
    vitals: Vitals
    fitness: Fitness
    clock: Callable[[], datetime]
    observer: RunObserver
    exporter: Exporter | None
    role: Role
    fleet: Fleet | None
    """Only a server on PostgreSQL has it."""
    offering: Offering | None
    """Only a program that executes runs of others, on PostgreSQL."""
    notifications: Notifications | None
    """Only a server has it, like `digests` and `retention`."""
    digests: Digests | None
    retention: Retention | None
    sharing: Sharing | None
    """Only a server or worker with `files` has it, like `earlier_runs`."""
    earlier_runs: EarlierRuns | None
    telegram: TelegramBot | None
    """Only a server with a bot in its settings has it."""

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Do what its role is within the block; turns in progress at its end go back to the queue."""
        if self.notifications is not None:
            await self.notifications.register()
        if self.fleet is not None:
            await self.fleet.refresh()
        async with AsyncExitStack() as ends, asyncio.TaskGroup() as group:
            if self.telegram is not None:
                ends.push_async_callback(self.telegram.api.close)
            worker = group.create_task(self.worker.run()) if self.role.executes else None
            self.vitals.worker = worker
            tasks = [group.create_task(each) for each in self._services()]
            try:
                yield
            finally:
                self.worker.stop()
                if worker is not None:
                    await worker
                for task in tasks:
                    task.cancel()

    def _services(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What runs beside the worker in every program. The duties of the leader are in `membership`."""
        yield self.membership.run()
        yield self.fitness.run()
        if self.deleted_runs is not None:
            yield self.deleted_runs.run()
        if not self.role.uses_shared_queue:
            yield self.deadlines.run()
            return
        yield self.vitals.run()
        yield self.recovery.tidy()
        if self.sharing is not None:
            yield self.sharing.run()
        if self.earlier_runs is not None:
            yield self.earlier_runs.run()
        if self.offering is not None:
            yield self.offering.run()
        if self.fleet is not None:
            yield self.fleet.run()
        if self.notifications is not None:
            yield self.notifications.run()
        if self.retention is not None:
            yield self.retention.tidy()
