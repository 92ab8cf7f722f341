"""One instance of Askback on a data folder: what it was opened with, and the components that are made of it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from askback.app.engines import networks, policy_of
from askback.app.notifications import delivery_policy, make_answer_links, make_bot
from askback.app.storage import is_shared
from askback.background.pools import Pools
from askback.blobs.identity import IdentifiedFiles
from askback.catalog.checks import Checks
from askback.catalog.engines import EngineCatalog
from askback.catalog.models import ModelLists
from askback.catalog.probes import EngineSetup, Probes
from askback.catalog.trials import Trials
from askback.cluster.fleet import Fleet, read_workers, worker_of, worker_view
from askback.cluster.instances import Instances, OwnRuns, Role
from askback.cluster.offering import FleetEngines, Offering, make_offer
from askback.cluster.recovery import Recovery
from askback.cluster.slots import Slots
from askback.core.access import MAIN
from askback.core.queue import Shares
from askback.core.runs import OnLimit, RunOptions
from askback.core.webhooks import WebhookKind
from askback.engines.registry import Engines
from askback.fs.records import Records
from askback.notifications.digests import DigestLedger, Digests, DigestTimes
from askback.notifications.outbox import Notifications
from askback.process.child import OutputLimits, Spawner
from askback.runs.continuation import Continuation
from askback.runs.deletion import DeletedRuns, Deletion, Retention, RetentionPolicy
from askback.runs.links import AnswerLinks
from askback.runs.secrets import RunSecrets
from askback.runs.service import Service
from askback.runs.submission import Submissions
from askback.settings.model import Settings
from askback.settings.sections import Quota, Quotas, in_bytes
from askback.skills.library import Library
from askback.store.base import Store
from askback.telemetry.run_observer import RunObserver
from askback.wire import server as wire
from askback.worker.deadlines import Deadlines
from askback.worker.health import Health
from askback.worker.machine import MachineFolders, MachineHealth
from askback.worker.membership import Membership
from askback.worker.turn.context import FLEET_PATIENCE_SEC, PATIENCE_SEC, Shortage, TurnContext
from askback.worker.unshared_files import EarlierRuns, Sharing
from askback.worker.warm import Prewarming
from askback.worker.warm_pool import DropReason, WarmLimits, WarmPool
from askback.worker.worker import Worker
from askback.workspace.archives import RunArchives
from askback.workspace.uploads import SharedUploads, Uploads
from askback.workspace.workdirs import Workdirs
from askback.workspace.workspaces import FreshFolders, Workspaces

if TYPE_CHECKING:
    from askback.notifications.channels.telegram.bot import TelegramBot
    from askback.telemetry.exporter import Exporter


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


@dataclass(frozen=True, kw_only=True, eq=False)
class App:
    """The fields are what was opened. A component is made when it is first used, in the event loop."""

    settings: Settings
    role: Role
    instances: Instances
    store: Store
    files: IdentifiedFiles | None
    records: Records
    spawner: Spawner
    engines: Engines
    setups: dict[str, EngineSetup]
    library: Library
    workspaces: Workspaces
    workdirs: Workdirs
    pools: Pools
    uploads: Uploads | SharedUploads
    clock: Callable[[], datetime]
    observer: RunObserver
    exporter: Exporter | None

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Do the work of its role during the block. Turns in progress at its end go back to the queue."""
        if self.notifications is not None:
            await self.notifications.register()
        if self.fleet is not None:
            await self.fleet.refresh()
        async with AsyncExitStack() as ends, asyncio.TaskGroup() as group:
            if self.telegram is not None:
                ends.push_async_callback(self.telegram.api.close)
            worker = group.create_task(self.worker.run()) if self.role.executes else None
            self.health.worker = worker
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
        """The background services of every instance. Those of the leader are in `membership`."""
        yield self.membership.run()
        yield self.machine.run()
        if is_shared(self.settings):
            # With SQLite, all instances are on one machine, and a deletion removes everything.
            yield DeletedRuns(self.store, self.deletion).run()
        if not self.role.uses_shared_queue:
            yield self.deadlines.run()
            return
        yield self.health.run()
        yield self.recovery.tidy()
        for each in (self.sharing, self.earlier_runs, self.offering, self.fleet, self.notifications):
            if each is not None:
                yield each.run()
        if self.retention is not None:
            yield self.retention.tidy()

    @cached_property
    def own_runs(self) -> OwnRuns:
        return OwnRuns(self.instances, serving=self.role.uses_shared_queue)

    def new_run_id(self) -> str:
        """Sorts by time, short enough to type: 9 characters of milliseconds and 7 random ones."""
        number = (int(self.clock().timestamp() * 1000) << 35) | secrets.randbits(35)
        return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(75, -5, -5))

    @cached_property
    def service(self) -> Service:
        return Service(
            submissions=self._submissions,
            recovery=self.recovery,
            deletion=self.deletion,
            queue=self.slots if self.fleet is None else self.fleet,
        )

    @cached_property
    def _submissions(self) -> Submissions:
        continuation = Continuation(
            store=self.store,
            workspaces=self.workspaces,
            pool=self.pools.copying,
            engines=self.engines,
            drop_warm=self.warm.drop,
            archives=self.archives,
        )
        return Submissions(
            store=self.store,
            library=self.library,
            engines=self.catalog,
            workspaces=self.workspaces,
            continuation=continuation,
            pools=self.pools,
            owner=lambda: self.own_runs.owner,
            clock=self.clock,
            new_id=self.new_run_id,
            private_webhooks=self.settings.notifications.allow_private,
            usual_options=RunOptions(on_limit=OnLimit(self.settings.on_limit), max_park_sec=self.settings.max_park_sec),
            longest_turn_sec=self.settings.limits.turn_sec,
            permissions=policy_of(self.settings),
            workdirs=self.workdirs,
            prewarmed=self.prewarming,
            secrets=RunSecrets(
                library=self.library, workspaces=self.workspaces, pools=self.pools, archives=self.archives
            ),
            archives=self.archives,
        )

    @cached_property
    def catalog(self) -> EngineCatalog:
        here = self.probes if self.role.executes else None
        return EngineCatalog(
            engines=self.engines,
            setups=self.setups,
            source=self.probes if self.fleet is None else FleetEngines(self.fleet, here),
            models=ModelLists(trials=self.trials, clock=self.clock),
            checks=self.checks,
            default_engine=self.settings.default_engine,
        )

    @cached_property
    def probes(self) -> Probes:
        return Probes(self.settings.data_dir / "probes.json", self.spawner, self.checks.applied)

    @cached_property
    def trials(self) -> Trials:
        return Trials(
            folder=self.settings.data_dir / "models", locks=self.settings.data_dir / "locks", spawner=self.spawner
        )

    @cached_property
    def checks(self) -> Checks:
        return Checks(self.settings.data_dir / "engine-checks.json", self.trials, self.clock)

    @cached_property
    def deletion(self) -> Deletion:
        return Deletion(store=self.store, workspaces=self.workspaces, uploads=self.uploads, pools=self.pools)

    @cached_property
    def retention(self) -> Retention | None:
        if not self.role.serves:
            return None
        retention = self.settings.retention
        return Retention(
            store=self.store,
            deletion=self.deletion,
            archives=self.archives,
            policy=RetentionPolicy(days=retention.days, max_bytes=retention.max_bytes, audit_days=retention.audit_days),
            clock=self.clock,
        )

    @cached_property
    def deadlines(self) -> Deadlines:
        return Deadlines(
            store=self.store,
            owners=self.own_runs,
            clock=self.clock,
            announce_sec=self.settings.notifications.reminders.before_deadline_sec,
        )

    @cached_property
    def worker(self) -> Worker:
        return Worker(
            name=lambda: self.instances.name,
            owners=self.own_runs,
            slots=self.slots,
            context=self.turn_context,
            prewarming=self.prewarming,
            machine=self.machine,
        )

    @cached_property
    def turn_context(self) -> TurnContext:
        limits = self.settings.limits
        return TurnContext(
            store=self.store,
            library=self.library,
            workspaces=self.workspaces,
            archives=self.archives,
            machine=self.machine,
            workdirs=self.workdirs,
            locks=self.settings.data_dir / "locks",
            engines=self.engines,
            setups=self.setups,
            probes=self.probes,
            spawner=self.spawner,
            limits=OutputLimits(line_bytes=in_bytes(limits.line), turn_bytes=in_bytes(limits.output)),
            clock=self.clock,
            pools=self.pools,
            spawned=self.observer.spawned,
            printed=self.observer.printed,
            warm=self.warm,
            shortage=Shortage(
                FLEET_PATIENCE_SEC if self._has_others else PATIENCE_SEC,
                relieve=lambda: self.warm.drop_oldest(DropReason.ROOM),
            ),
        )

    @cached_property
    def archives(self) -> RunArchives | None:
        return None if self.files is None else RunArchives(self.files, self.workspaces, self.pools)

    @cached_property
    def warm(self) -> WarmPool:
        warm = self.settings.warm
        limits = WarmLimits(
            processes=warm.max_processes,
            memory_bytes=in_bytes(warm.max_memory),
            free_bytes=in_bytes(warm.min_free_memory),
        )
        return WarmPool(limits)

    @cached_property
    def prewarming(self) -> Prewarming:
        """Only an instance that lasts starts processes in advance: a command ends with its run."""
        wanted = {name: setup.prewarm for name, setup in self.setups.items()} if self.role.uses_shared_queue else {}
        return Prewarming(self.turn_context, self._fresh_folders, wanted=wanted, new_id=self.new_run_id)

    @cached_property
    def _fresh_folders(self) -> FreshFolders:
        notes = self.settings.data_dir / "prewarmed"
        return FreshFolders(self.workspaces, notes, program=lambda: self.instances.name)

    @cached_property
    def slots(self) -> Slots:
        per_engine = {engine: setup.slots for engine, setup in self.setups.items() if setup.slots is not None}
        return Slots(
            self.settings.slots,
            per_engine,
            partial(share_slots, self.settings.quotas),
            ready=lambda: self.machine.problem is None,
        )

    @property
    def _has_others(self) -> bool:
        """Whether other machines can execute the runs of this one."""
        return self.role.uses_shared_queue and is_shared(self.settings)

    @cached_property
    def machine(self) -> MachineHealth:
        settings, files = self.settings, self.files
        folders = MachineFolders(
            data_dir=settings.data_dir,
            runs=settings.runs,
            separate_runs=settings.runs_dir is not None,
            min_free_bytes=in_bytes(settings.limits.min_free_disk),
            recreates=is_shared(settings),
            instances=self.instances,
        )

        async def check_files(thorough: bool) -> None:
            assert files is not None
            await self.pools.storing.run(files.check if thorough else files.confirm)

        return MachineHealth(
            check_folders=folders.check,
            size_of=self.workspaces.size,
            pool=self.pools.checking,
            clock=self.clock,
            has_others=self._has_others,
            check_files=None if files is None or not self.role.executes else check_files,
        )

    @cached_property
    def health(self) -> Health:
        return Health(
            role=self.role,
            store=self.store,
            files=self.files,
            pools=self.pools,
            machine=self.machine,
            slots=self.slots,
            fleet=self.fleet,
            spawner=self.spawner,
            data_dir=self.settings.data_dir,
            networks=networks(self.settings).values(),
            shares_folders=bool(self.settings.sandbox_share),
            telegram=lambda: None if self.telegram is None else self.telegram.state,
            draining=lambda: self.worker.draining,
            clock=self.clock,
        )

    @cached_property
    def sharing(self) -> Sharing | None:
        """Only a server or worker with `files` has it, like `earlier_runs`."""
        if self.archives is None or not self.role.uses_shared_queue:
            return None
        return Sharing(
            store=self.store,
            archives=self.archives,
            workspaces=self.workspaces,
            library=self.library,
            engines=self.engines,
            pools=self.pools,
            clock=self.clock,
        )

    @cached_property
    def earlier_runs(self) -> EarlierRuns | None:
        if self.archives is None or not self.role.uses_shared_queue:
            return None
        data_dir = self.settings.data_dir
        return EarlierRuns(store=self.store, workspaces=self.workspaces, pools=self.pools, data_dir=data_dir)

    @cached_property
    def recovery(self) -> Recovery:
        return Recovery(
            store=self.store,
            instances=self.instances,
            workspaces=self.workspaces,
            fresh_folders=self._fresh_folders,
            clock=self.clock,
            check_sec=1.0 if is_shared(self.settings) else None,
        )

    @cached_property
    def membership(self) -> Membership:
        leading = (self.deadlines, self.recovery, self.digests, self.retention, self.telegram)
        duties = [each.run for each in leading if each is not None] if self.role.serves else []
        return Membership(instances=self.instances, worker=self.worker, recovery=self.recovery, duties=duties)

    @cached_property
    def fleet(self) -> Fleet | None:
        """None unless this is a server on PostgreSQL."""
        if not (self.role.serves and is_shared(self.settings)):
            return None
        return Fleet(
            partial(read_workers, self.instances),
            own=lambda: self.instances.name,
            slots=self.slots if self.role.executes else None,
            held=self.store.held_by_token,
            share=partial(share_slots, self.settings.quotas),
        )

    @cached_property
    def offering(self) -> Offering | None:
        """None unless this instance executes the runs of others, on PostgreSQL."""
        if not (self.role.executes and self._has_others):
            return None
        return Offering(
            instances=self.instances,
            engines=self.engines,
            setups=self.setups,
            probes=self.probes,
            slots=self.slots,
            only=self.settings.worker.engines if self.role is Role.WORKER else (),
            labels=self.settings.worker.labels if self.role is Role.WORKER else {},
            draining=lambda: self.worker.draining,
            problem=lambda: self.worker.problem,
            engines_changed=self.worker.look_again,
        )

    async def workers(self) -> Sequence[wire.Worker]:
        """The instances that execute runs. With SQLite, that is this server."""
        if is_shared(self.settings):
            return [worker_view(each) for each in await read_workers(self.instances)]
        if not self.role.serves:
            return []
        reports = await self.service.engines.reports()
        found = {each.engine.name: each.installed for each in reports if each.installed is not None}
        worker = self.worker
        offer = make_offer(self.slots, found, labels={}, draining=worker.draining, problem=worker.problem)
        (instance,) = await self.instances.living()
        return [worker_view(worker_of(replace(instance, facts=replace(instance.facts, offer=offer.document))))]

    # Notifications, which only a server sends.

    @cached_property
    def notifications(self) -> Notifications | None:
        if not self.role.serves:
            return None
        return Notifications(
            store=self.store,
            policy=delivery_policy(self.settings),
            clock=self.clock,
            answer_links=self._answer_links,
            channels={} if self.telegram is None else {WebhookKind.TELEGRAM: self.telegram.channel},
        )

    @cached_property
    def digests(self) -> Digests | None:
        if not self.role.serves:
            return None
        digest = self.settings.notifications.digest
        return Digests(
            store=self.store,
            policy=delivery_policy(self.settings),
            times=DigestTimes(at=digest.times, zone=digest.zone) if digest.at else None,
            ledger=DigestLedger(self.records),
            clock=self.clock,
            answer_links=self._answer_links,
        )

    @cached_property
    def _answer_links(self) -> AnswerLinks | None:
        return make_answer_links(self.settings, self.store, self.records, self.workspaces, self.clock)

    @cached_property
    def telegram(self) -> TelegramBot | None:
        """Only a server with a bot in its settings has it."""
        return make_bot(self.settings, self.service, self.store, self.clock) if self.role.serves else None


def share_slots(quotas: Quotas, total: int, engines: Mapping[str, int]) -> Shares:
    """By default, no token can take all slots, or all slots of one of these engines.

    The server's own token can, unless the settings give it quotas, and a token with its own limit is held to that alone.
    """

    def share(quota: Quota) -> int:
        return max(1, total - 1) if quota.running is None else quota.running

    named = {name: share(quota) for name, quota in quotas.tokens.items()}
    return Shares(
        usual=share(quotas),
        named={MAIN: None, **named},
        engines={engine: max(1, slots - 1) for engine, slots in engines.items()},
        of_any_engine=frozenset(
            {MAIN} - quotas.tokens.keys() | {name for name, quota in quotas.tokens.items() if quota.running is not None}
        ),
    )
