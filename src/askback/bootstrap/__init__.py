"""The only code that picks implementations and connects them.

`opened` is the whole program on a data folder. `data_folder` and `engines` check what it needs, and `server` adds the
HTTP side.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from askback.bootstrap.data_folder import own_secrets, prepare_data_folder, registered
from askback.bootstrap.database import open_store, records_of, shelf_of
from askback.bootstrap.engines import check_sandbox, engine_setups, make_spawner, make_workdirs
from askback.bootstrap.telegram import chat_webhooks, make_bot
from askback.bootstrap.telemetry import make_exporter
from askback.core.runs import SHARED
from askback.core.webhooks import WebhookKind
from askback.deletion import Deletion
from askback.engines import registry
from askback.engines.registry import Engines
from askback.files.records import Records
from askback.inheritance import Inheritance
from askback.installed.engines import EnginesHere
from askback.installed.models import ModelLists
from askback.installed.probes import EngineSetup, Probes
from askback.links import AnswerLinks
from askback.process.child import OutputLimits, Spawner
from askback.process.fresh_folders import FreshFolders
from askback.process.isolation import hide_from_other_processes
from askback.process.locks import Instances
from askback.process.pools import Pools
from askback.process.slots import Slots
from askback.process.uploads import Uploads
from askback.process.warm import DropReason, WarmLimits, WarmPool
from askback.process.workdirs import Workdirs
from askback.process.workspace import Workspaces
from askback.recovery import Recovery
from askback.service import Service
from askback.settings import Settings, webhooks
from askback.skills.archive import ZipLimits
from askback.skills.library import Library
from askback.store.base import Store
from askback.submission import Submissions
from askback.telemetry.run_observer import RunObserver
from askback.webhooks.delivery import DeliveryPolicy, Notifications
from askback.webhooks.digest_ledger import DigestLedger
from askback.webhooks.digest_times import DigestTimes
from askback.webhooks.digests import Digests
from askback.webhooks.mail_sender import MailServer
from askback.webhooks.messages import MessageStyle
from askback.work.deadlines import Deadlines
from askback.work.prewarm import Prewarming
from askback.work.retention import Retention, RetentionPolicy
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
    store: Store
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
    serving: bool
    notifications: Notifications | None
    """Only a server has it, like `digests` and `retention`."""
    digests: Digests | None
    retention: Retention | None
    telegram: TelegramBot | None
    """Only a server with a bot in its settings has it."""

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Execute runs within the block; turns in progress at its end go back to the queue."""
        if self.notifications is not None:
            await self.notifications.register()
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(self.worker.run())
            self.vitals.worker = worker
            server_only = (self.recovery, self.vitals) if self.serving else ()
            services = [self.deadlines, self.notifications, self.digests, self.retention, self.telegram, *server_only]
            tasks = [group.create_task(each.run()) for each in services if each is not None]
            try:
                yield
            finally:
                self.worker.stop()
                await worker
                for task in tasks:
                    task.cancel()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """What the other parts of a program are made of."""

    settings: Settings
    serving: bool
    name: str
    instances: Instances
    store: Store
    records: Records
    spawner: Spawner
    engines: Engines
    setups: dict[str, EngineSetup]
    library: Library
    workspaces: Workspaces
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
    def owner(self) -> str:
        return SHARED if self.serving else self.name


@asynccontextmanager
async def opened(settings: Settings, *, serving: bool = False) -> AsyncIterator[App]:
    """The program on the data folder of the settings. A server also restarts the runs of programs that have died."""
    hide_from_other_processes()
    data_dir = settings.data_dir
    prepare_data_folder(data_dir, serving=serving)
    instances = Instances(data_dir / "programs")
    async with AsyncExitStack() as ends:
        store = await open_store(settings)
        ends.push_async_callback(store.close)
        records = records_of(store, settings, serving=serving)
        own = await asyncio.to_thread(own_secrets, settings, records, serving=serving)
        engines, setups = engine_setups(settings, own)
        per_engine = {engine: setup.slots for engine, setup in setups.items() if setup.slots is not None}
        observer, exporter = RunObserver(now), make_exporter(settings.telemetry)
        store.observe(observer)
        if exporter is not None:
            observer.add(exporter.observe)
            ends.push_async_callback(exporter.close)
        pools = Pools()
        ends.callback(pools.close)
        name = ends.enter_context(registered(instances))
        spawner = make_spawner(settings)
        # While the program is still registered: nothing that it started may outlive the registration.
        ends.push_async_callback(spawner.close)
        await check_sandbox(settings, spawner)
        parts = _Parts(
            settings=settings,
            serving=serving,
            name=name,
            instances=instances,
            store=store,
            records=records,
            spawner=spawner,
            engines=engines,
            setups=setups,
            library=open_library(settings, engines, records),
            workspaces=Workspaces(
                data_dir / "runs",
                sign_ins=[name for engine in engines.values() for name in engine.credentials],
                fork_points=settings.retention.questions,
            ),
            workdirs=make_workdirs(settings),
            probes=Probes(data_dir / "probes.json", spawner),
            slots=Slots(settings.slots, per_engine),
            warm=WarmPool(_warm_limits(settings)),
            pools=pools,
            uploads=Uploads(data_dir / "uploads"),
            clock=now,
            observer=observer,
            exporter=exporter,
        )
        yield _app(parts)


def _app(parts: _Parts) -> App:
    store, settings, clock, serving = parts.store, parts.settings, parts.clock, parts.serving
    prewarming = _prewarming(parts)
    recovery = Recovery(
        store=store,
        instances=parts.instances,
        workspaces=parts.workspaces,
        fresh_folders=prewarming.folders,
        clock=clock,
    )
    deletion = Deletion(store=store, workspaces=parts.workspaces, uploads=parts.uploads, pools=parts.pools)
    service = _service(parts, recovery, deletion, prewarming)
    telegram = make_bot(settings, service, store, clock) if serving else None
    return App(
        settings=settings,
        serving=serving,
        clock=clock,
        observer=parts.observer,
        exporter=parts.exporter,
        store=store,
        records=parts.records,
        workspaces=parts.workspaces,
        uploads=parts.uploads,
        slots=parts.slots,
        warm=parts.warm,
        spawner=parts.spawner,
        prewarming=prewarming,
        service=service,
        worker=_worker(parts, prewarming),
        deadlines=Deadlines(
            store=store,
            owners={parts.owner},
            clock=clock,
            announce_sec=settings.notifications.reminders.before_deadline_sec,
        ),
        recovery=recovery,
        deletion=deletion,
        vitals=Vitals(store=store, pools=parts.pools, clock=clock),
        notifications=_notifications(parts, telegram) if serving else None,
        digests=_digests(parts) if serving else None,
        telegram=telegram,
        retention=_retention(parts, deletion) if serving else None,
    )


def _service(parts: _Parts, recovery: Recovery, deletion: Deletion, prewarming: Prewarming) -> Service:
    engines = EnginesHere(
        engines=parts.engines,
        setups=parts.setups,
        probes=parts.probes,
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
        instances=parts.instances,
        recovery=recovery,
        deletion=deletion,
        slots=parts.slots,
        warm=parts.warm,
        clock=parts.clock,
        new_id=new_run_id,
        pools=parts.pools,
        submissions=_submissions(parts, engines, prewarming),
    )


def _submissions(parts: _Parts, engines: EnginesHere, prewarming: Prewarming) -> Submissions:
    inheritance = Inheritance(
        store=parts.store,
        workspaces=parts.workspaces,
        pool=parts.pools.copying,
        engines=parts.engines,
        warm=parts.warm,
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
        new_id=new_run_id,
        private_webhooks=parts.settings.notifications.allow_private,
        longest_turn_sec=parts.settings.limits.turn_sec,
        workdirs=parts.workdirs,
        prewarmed=prewarming,
    )


def _turn_context(parts: _Parts) -> TurnContext:
    limits = parts.settings.limits
    return TurnContext(
        store=parts.store,
        library=parts.library,
        workspaces=parts.workspaces,
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
    """Only a server keeps processes ready: other programs end with their run."""
    notes = parts.settings.data_dir / "prewarmed"
    folders = FreshFolders(parts.workspaces, notes, instances=parts.instances, program=parts.name)
    wanted = {name: setup.prewarm for name, setup in parts.setups.items()} if parts.serving else {}
    return Prewarming(_turn_context(parts), folders, wanted=wanted, new_id=new_run_id)


def _worker(parts: _Parts, prewarming: Prewarming) -> Worker:
    return Worker(
        name=parts.name,
        owners={parts.owner},
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


def _retention(parts: _Parts, deletion: Deletion) -> Retention:
    settings = parts.settings
    return Retention(
        store=parts.store,
        workspaces=parts.workspaces,
        pools=parts.pools,
        uploads=parts.uploads,
        deletion=deletion,
        keeping=RetentionPolicy(
            days=settings.retention.days,
            max_bytes=settings.retention.max_bytes,
            audit_days=settings.retention.audit_days,
        ),
        clock=parts.clock,
    )


def open_library(settings: Settings, engines: Engines | None = None, records: Records | None = None) -> Library:
    """The skills. A command needs no open store for them."""
    known = registry.engines() if engines is None else engines
    limits = ZipLimits(entries=settings.limits.zip_entries, total_bytes=settings.limits.zip_total_bytes)
    return Library(settings.data_dir, settings.skills_dir, limits, known.config_names, shelf_of(settings, records))


def now() -> datetime:
    return datetime.now(UTC)


def new_run_id() -> str:
    """Sorts by time, short enough to type: 9 characters of milliseconds and 7 random ones."""
    number = (int(time.time() * 1000) << 35) | secrets.randbits(35)
    digits = [_ALPHABET[(number >> shift) & 31] for shift in range(75, -5, -5)]
    return "".join(digits)
