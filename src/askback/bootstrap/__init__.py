"""The only code that picks implementations and connects them.

`opened` is the whole program on a data folder. `data_folder` and `engines` check what it needs, and `server` adds the
HTTP side.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from askback.bootstrap.data_folder import own_secrets, prepare_data_folder, prepare_runs_folder
from askback.bootstrap.database import open_store, postgres_address, records_of, shelf_of
from askback.bootstrap.engines import check_sandbox, engine_setups, make_spawner, make_workdirs
from askback.bootstrap.files import command_files, open_files
from askback.bootstrap.fleet import make_fleet, make_offering
from askback.bootstrap.programs import facts, make_programs
from askback.bootstrap.roles import Role, check_database
from askback.bootstrap.telegram import chat_webhooks, make_bot
from askback.bootstrap.telemetry import make_exporter
from askback.core.webhooks import WebhookKind
from askback.deletion import Deletion
from askback.engines import registry
from askback.engines.registry import Engines
from askback.files.records import Records
from askback.inheritance import Inheritance
from askback.installed.engines import EnginesHere
from askback.installed.fleet import Fleet
from askback.installed.fleet_engines import FleetEngines
from askback.installed.models import ModelLists
from askback.installed.offering import Offering
from askback.installed.probes import EngineSetup, Probes
from askback.links import AnswerLinks
from askback.process.child import OutputLimits, Spawner
from askback.process.fresh_folders import FreshFolders
from askback.process.homes import Homes
from askback.process.isolation import hide_from_other_processes
from askback.process.pools import Pools
from askback.process.shared_uploads import SharedUploads
from askback.process.slots import Slots
from askback.process.uploads import Uploads
from askback.process.warm import DropReason, WarmLimits, WarmPool
from askback.process.workdirs import Workdirs
from askback.process.workspace import Workspaces
from askback.programs import OwnRuns, Programs
from askback.recovery import Recovery
from askback.service import Service
from askback.settings import Settings, webhooks
from askback.skills.archive import ZipLimits
from askback.skills.library import Library
from askback.skills.package_archives import PackageArchives
from askback.store.base import Store
from askback.stored_files import Files
from askback.stored_files.blocking import BlockingFiles
from askback.submission import Submissions
from askback.telemetry.run_observer import RunObserver
from askback.webhooks.delivery import DeliveryPolicy, Notifications
from askback.webhooks.digest_ledger import DigestLedger
from askback.webhooks.digest_times import DigestTimes
from askback.webhooks.digests import Digests
from askback.webhooks.mail_sender import MailServer
from askback.webhooks.messages import MessageStyle
from askback.work.deadlines import Deadlines
from askback.work.earlier_runs import EarlierRuns
from askback.work.membership import Membership
from askback.work.prewarm import Prewarming
from askback.work.retention import Retention, RetentionPolicy
from askback.work.sharing import Sharing
from askback.work.turn.context import TurnContext
from askback.work.turn.shortage import Shortage
from askback.work.vitals import Vitals
from askback.work.worker import Worker

if TYPE_CHECKING:
    from askback.telegram.bot import TelegramBot
    from askback.telemetry.exporter import Exporter

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """What the other parts of a program are made of."""

    settings: Settings
    role: Role
    programs: Programs
    store: Store
    files: Files | None
    records: Records
    spawner: Spawner
    engines: Engines
    setups: dict[str, EngineSetup]
    library: Library
    workspaces: Workspaces
    homes: Homes | None
    workdirs: Workdirs
    probes: Probes
    slots: Slots
    warm: WarmPool
    pools: Pools
    uploads: Uploads
    clock: Callable[[], datetime]
    observer: RunObserver
    exporter: Exporter | None

    @property
    def own_runs(self) -> OwnRuns:
        return OwnRuns(self.programs, serving=self.role.shares)

    def owner(self) -> str:
        return self.own_runs.owner

    def new_run_id(self) -> str:
        return new_run_id(self.clock())

    @property
    def serving(self) -> bool:
        return self.role.serves


@asynccontextmanager
async def opened(
    settings: Settings, *, serving: bool = False, role: Role | None = None, looking: bool = False
) -> AsyncIterator[App]:
    """The program on the data folder of the settings. `role`: by default a command, or with `serving` a server.

    Servers and workers also restart the runs of programs that have died. One that only looks (`looking`) executes nothing:
    it may be opened while its store of files is missing, or another one.
    """
    role = role or (Role.SERVER if serving else Role.COMMAND)
    check_database(settings, role)
    hide_from_other_processes()
    data_dir = settings.data_dir
    prepare_data_folder(data_dir, serving=role.shares)
    prepare_runs_folder(settings)
    async with AsyncExitStack() as ends:
        store = await open_store(settings)
        ends.push_async_callback(store.close)
        stored = await open_files(settings, store, looking=looking)
        files, blocking = (None, None) if stored is None else (stored.files, stored.blocking)
        if stored is not None:
            ends.push_async_callback(stored.files.close)
            ends.callback(stored.blocking.close)
        elif role.shares:
            await store.note_files(shared=False)
        records = records_of(store, settings, serving=role.shares)
        own = await asyncio.to_thread(own_secrets, settings, records, serving=role.shares)
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
        workspaces = Workspaces(
            settings.runs,
            notes=data_dir,
            sign_ins=[name for engine in engines.values() for name in engine.credentials],
            fork_points=settings.retention.questions,
            files=blocking,
        )
        parts = _Parts(
            settings=settings,
            role=role,
            programs=programs,
            store=store,
            files=files,
            records=records,
            spawner=spawner,
            engines=engines,
            setups=setups,
            library=open_library(settings, engines, records, blocking),
            workspaces=workspaces,
            homes=None if files is None else Homes(files, workspaces, pools.turns),
            workdirs=make_workdirs(settings),
            probes=Probes(data_dir / "probes.json", spawner),
            slots=Slots(settings.slots, per_engine),
            warm=WarmPool(_warm_limits(settings)),
            pools=pools,
            uploads=Uploads(data_dir / "uploads")
            if blocking is None
            else SharedUploads(data_dir / "uploads", blocking),
            clock=clock,
            observer=observer,
            exporter=exporter,
        )
        yield _app(parts)


def _app(parts: _Parts) -> App:
    store, settings, clock, serving = parts.store, parts.settings, parts.clock, parts.serving
    prewarming = _prewarming(parts)
    recovery = Recovery(
        store=store,
        programs=parts.programs,
        workspaces=parts.workspaces,
        fresh_folders=prewarming.folders,
        clock=clock,
        check_sec=None if postgres_address(settings) is None else 1.0,
    )
    deletion = Deletion(store=store, workspaces=parts.workspaces, uploads=parts.uploads, pools=parts.pools)
    fleet = make_fleet(settings, parts.role, parts.programs, parts.slots)
    service = _service(parts, recovery, deletion, prewarming, fleet)
    telegram = make_bot(settings, service, store, clock) if serving else None
    worker = _worker(parts, prewarming)
    deadlines = _deadlines(parts)
    digests = _digests(parts) if serving else None
    retention = _retention(parts, deletion) if serving else None
    leading = (deadlines, recovery, digests, retention, telegram) if serving else ()
    duties = [each.run for each in leading if each is not None]
    return App(
        settings=settings,
        role=parts.role,
        fleet=fleet,
        offering=_offering(parts, worker),
        clock=clock,
        observer=parts.observer,
        exporter=parts.exporter,
        programs=parts.programs,
        membership=Membership(programs=parts.programs, worker=worker, recovery=recovery, duties=duties),
        store=store,
        files=parts.files,
        records=parts.records,
        workspaces=parts.workspaces,
        uploads=parts.uploads,
        slots=parts.slots,
        warm=parts.warm,
        spawner=parts.spawner,
        prewarming=prewarming,
        service=service,
        worker=worker,
        deadlines=deadlines,
        recovery=recovery,
        deletion=deletion,
        vitals=Vitals(store=store, files=parts.files, pools=parts.pools, clock=clock),
        notifications=_notifications(parts, telegram) if serving else None,
        digests=digests,
        telegram=telegram,
        retention=retention,
        sharing=_sharing(parts),
        earlier_runs=_earlier_runs(parts),
    )


def _service(
    parts: _Parts, recovery: Recovery, deletion: Deletion, prewarming: Prewarming, fleet: Fleet | None
) -> Service:
    engines = EnginesHere(
        engines=parts.engines,
        setups=parts.setups,
        source=parts.probes if fleet is None else FleetEngines(fleet, parts.probes if parts.role.executes else None),
        models=ModelLists(
            folder=parts.settings.data_dir / "models",
            locks=parts.settings.data_dir / "locks",
            spawner=parts.spawner,
            clock=parts.clock,
        ),
        default_engine=parts.settings.default_engine,
    )
    return Service(
        store=parts.store,
        library=parts.library,
        engines=engines,
        workspaces=parts.workspaces,
        owner=parts.owner,
        programs=parts.programs,
        recovery=recovery,
        deletion=deletion,
        queue=parts.slots if fleet is None else fleet,
        warm=parts.warm,
        clock=parts.clock,
        new_id=parts.new_run_id,
        pools=parts.pools,
        submissions=_submissions(parts, engines, prewarming),
        homes=parts.homes,
    )


def _submissions(parts: _Parts, engines: EnginesHere, prewarming: Prewarming) -> Submissions:
    inheritance = Inheritance(
        store=parts.store,
        workspaces=parts.workspaces,
        pool=parts.pools.copying,
        engines=parts.engines,
        warm=parts.warm,
        homes=parts.homes,
    )
    return Submissions(
        store=parts.store,
        library=parts.library,
        engines=engines,
        workspaces=parts.workspaces,
        inheritance=inheritance,
        pools=parts.pools,
        owner=parts.owner,
        clock=parts.clock,
        new_id=parts.new_run_id,
        private_webhooks=parts.settings.notifications.allow_private,
        longest_turn_sec=parts.settings.limits.turn_sec,
        workdirs=parts.workdirs,
        prewarmed=prewarming,
        homes=parts.homes,
    )


def _turn_context(parts: _Parts) -> TurnContext:
    limits = parts.settings.limits
    return TurnContext(
        store=parts.store,
        library=parts.library,
        workspaces=parts.workspaces,
        homes=parts.homes,
        workdirs=parts.workdirs,
        locks=parts.settings.data_dir / "locks",
        engines=parts.engines,
        setups=parts.setups,
        probes=parts.probes,
        spawner=parts.spawner,
        limits=OutputLimits(line_bytes=limits.line_bytes, turn_bytes=limits.output_bytes),
        clock=parts.clock,
        pools=parts.pools,
        printed=parts.observer.printed,
        warm=parts.warm,
        shortage=Shortage(relieve=lambda: parts.warm.drop_oldest(DropReason.ROOM)),
    )


def _prewarming(parts: _Parts) -> Prewarming:
    """Only a program that lasts keeps processes ready: a command ends with its run."""
    notes = parts.settings.data_dir / "prewarmed"
    folders = FreshFolders(parts.workspaces, notes, program=lambda: parts.programs.name)
    wanted = {name: setup.prewarm for name, setup in parts.setups.items()} if parts.role.shares else {}
    return Prewarming(_turn_context(parts), folders, wanted=wanted, new_id=parts.new_run_id)


def _offering(parts: _Parts, worker: Worker) -> Offering | None:
    return make_offering(
        parts.settings,
        parts.role,
        parts.programs,
        engines=parts.engines,
        setups=parts.setups,
        probes=parts.probes,
        slots=parts.slots,
        worker=worker,
    )


def _deadlines(parts: _Parts) -> Deadlines:
    return Deadlines(
        store=parts.store,
        owners=parts.own_runs,
        clock=parts.clock,
        announce_sec=parts.settings.notifications.reminders.before_deadline_sec,
    )


def _worker(parts: _Parts, prewarming: Prewarming) -> Worker:
    return Worker(
        name=lambda: parts.programs.name,
        owners=parts.own_runs,
        slots=parts.slots,
        context=prewarming.context,
        prewarming=prewarming,
    )


def _warm_limits(settings: Settings) -> WarmLimits:
    warm = settings.warm
    return WarmLimits(
        processes=warm.max_processes,
        memory_bytes=warm.max_memory_bytes,
        free_bytes=warm.min_free_memory_bytes,
    )


def _answer_links(parts: _Parts) -> AnswerLinks | None:
    from askback.bootstrap.links import make_answer_links

    return make_answer_links(parts.settings, parts.store, parts.records, parts.workspaces, parts.clock)


def _notifications(parts: _Parts, telegram: TelegramBot | None) -> Notifications:
    return Notifications(
        store=parts.store,
        policy=delivery_policy(parts.settings),
        clock=parts.clock,
        answer_links=_answer_links(parts),
        channels={} if telegram is None else {WebhookKind.TELEGRAM: telegram.channel},
    )


def _digests(parts: _Parts) -> Digests:
    digest = parts.settings.notifications.digest
    return Digests(
        store=parts.store,
        policy=delivery_policy(parts.settings),
        times=DigestTimes(at=digest.times, zone=digest.zone) if digest.at else None,
        ledger=DigestLedger(parts.records),
        clock=parts.clock,
        answer_links=_answer_links(parts),
    )


def delivery_policy(settings: Settings) -> DeliveryPolicy:
    notifications, email = settings.notifications, settings.notifications.email
    server = (
        None
        if email.url is None
        else MailServer(url=email.url, user=email.user, password=email.password, allow_plaintext=email.allow_plaintext)
    )
    return DeliveryPolicy(
        webhooks=(*webhooks(settings), *chat_webhooks(settings)),
        allow_private=notifications.allow_private,
        link=notifications.link,
        style=MessageStyle(
            answer_buttons=notifications.allow_answer_buttons, sender=email.sender, zone=notifications.zone
        ),
        mail_server=server,
    )


def _sharing(parts: _Parts) -> Sharing | None:
    if parts.homes is None or not parts.role.shares:
        return None
    return Sharing(
        store=parts.store,
        homes=parts.homes,
        workspaces=parts.workspaces,
        library=parts.library,
        engines=parts.engines,
        pools=parts.pools,
        clock=parts.clock,
    )


def _earlier_runs(parts: _Parts) -> EarlierRuns | None:
    if parts.homes is None or not parts.role.shares:
        return None
    data_dir = parts.settings.data_dir
    return EarlierRuns(store=parts.store, workspaces=parts.workspaces, pools=parts.pools, data_dir=data_dir)


def _retention(parts: _Parts, deletion: Deletion) -> Retention:
    settings = parts.settings
    return Retention(
        store=parts.store,
        workspaces=parts.workspaces,
        pools=parts.pools,
        uploads=parts.uploads,
        homes=parts.homes,
        deletion=deletion,
        keeping=RetentionPolicy(
            days=settings.retention.days,
            max_bytes=settings.retention.max_bytes,
            audit_days=settings.retention.audit_days,
        ),
        clock=parts.clock,
    )


def open_library(
    settings: Settings,
    engines: Engines | None = None,
    records: Records | None = None,
    files: BlockingFiles | None = None,
) -> Library:
    """`records` and `files` are those of a program that is open. A command needs neither."""
    if files is None:
        files = command_files(settings)
    known = registry.engines() if engines is None else engines
    return Library(
        settings.data_dir,
        settings.skills_dir,
        ZipLimits(entries=settings.limits.zip_entries, total_bytes=settings.limits.zip_total_bytes),
        known.config_names,
        shelf=shelf_of(settings, records),
        archives=None if files is None else PackageArchives(files),
    )


def now() -> datetime:
    return datetime.now(UTC)


def new_run_id(at: datetime) -> str:
    """Sorts by time, short enough to type: 9 characters of milliseconds and 7 random ones."""
    number = (int(at.timestamp() * 1000) << 35) | secrets.randbits(35)
    digits = [_ALPHABET[(number >> shift) & 31] for shift in range(75, -5, -5)]
    return "".join(digits)
