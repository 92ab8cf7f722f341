"""One program on a data folder, put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from askback.bootstrap.roles import Role
from askback.deletion import Deletion
from askback.files.records import Records
from askback.installed.fleet import Fleet
from askback.installed.offering import Offering
from askback.process.child import Spawner
from askback.process.slots import Slots
from askback.process.uploads import Uploads
from askback.process.warm import WarmPool
from askback.process.workspaces import Workspaces
from askback.programs import Programs
from askback.recovery import Recovery
from askback.service import Service
from askback.settings import Settings
from askback.store.base import Store
from askback.stored_files import Files
from askback.telemetry.run_observer import RunObserver
from askback.webhooks.delivery import Notifications
from askback.webhooks.digests import Digests
from askback.work.deadlines import Deadlines
from askback.work.earlier_runs import EarlierRuns
from askback.work.fitness import Fitness
from askback.work.membership import Membership
from askback.work.prewarm import Prewarming
from askback.work.retention import Retention
from askback.work.sharing import Sharing
from askback.work.vitals import Vitals
from askback.work.worker import Worker

if TYPE_CHECKING:
    from askback.telegram.bot import TelegramBot
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
        if not self.role.shares:
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
