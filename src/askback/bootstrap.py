"""The only file that picks implementations and wires them together."""

from __future__ import annotations

import asyncio
import logging
import resource
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from askback import __version__
from askback.core.errors import FULL_DISK, Invalid, RefusalCode, Unavailable
from askback.core.runs import SHARED, Run
from askback.core.webhooks import Webhook, WebhookKind, mistakes
from askback.engines import registry
from askback.engines.base import Engine
from askback.engines.registry import Engines
from askback.installed.engines import EnginesHere
from askback.installed.probes import EngineSetup, Probes
from askback.process.child import OutputLimits, Spawner
from askback.process.guardian import client
from askback.process.guardian.client import Guardian
from askback.process.guardian.delegation import delegation
from askback.process.isolation import (
    Access,
    Isolation,
    IsolationLevel,
    Network,
    access_of_others,
    close_to_others,
    withdraw_write_access,
)
from askback.process.limits import ResourceLimits
from askback.process.locks import Instances
from askback.process.pools import Pools
from askback.process.sandbox.bubblewrap import Sandboxed, homes_of_people
from askback.process.sandbox.visibility import Hidden, hidden
from askback.process.spawn_direct import Direct
from askback.process.uploads import Uploads
from askback.process.workspace import Workspaces
from askback.service import Service
from askback.settings import EngineSettings, Settings, engine_environment, key_name, secret_values, user_home
from askback.skills.archive import ZipLimits
from askback.skills.library import Library
from askback.store.base import Store
from askback.store.sqlite import SqliteStore
from askback.webhooks.delivery import DeliveryPolicy, Notifications
from askback.work.deadlines import Deadlines
from askback.work.recovery import Recovery
from askback.work.retention import Retention, RetentionPolicy
from askback.work.turn.executor import carrying
from askback.work.turn.prepare import TurnContext
from askback.work.vitals import Vitals
from askback.work.worker import Slots, Worker

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from askback.http.addresses import Addresses
    from askback.http.auth import MainToken
    from askback.http.links import Links
    from askback.http.metrics import Metrics
    from askback.http.sessions import Sessions
    from askback.http.streams import Streams

log = logging.getLogger(__name__)

_DATABASE = "askback.db"
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class App:
    """One program on a data folder."""

    settings: Settings
    store: Store
    service: Service
    workspaces: Workspaces
    uploads: Uploads
    slots: Slots
    spawner: Spawner
    worker: Worker
    deadlines: Deadlines
    recovery: Recovery
    vitals: Vitals
    serving: bool
    notifications: Notifications | None
    """A server's alone, as is `retention`."""
    retention: Retention | None

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Carry runs out for as long as the block lasts; turns in progress at its end go back to the queue."""
        if self.notifications is not None:
            await self.notifications.register()
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(self.worker.run())
            self.vitals.worker = worker
            ours = (self.recovery, self.vitals) if self.serving else ()
            sleepers = [self.deadlines, self.notifications, self.retention, *ours]
            asleep = [group.create_task(each.run()) for each in sleepers if each is not None]
            try:
                yield
            finally:
                self.worker.stop()
                await worker
                for each in asleep:
                    each.cancel()

    async def take_over(self, run_id: str) -> Run:
        """Carry on a run that a program which is gone left behind, also in the middle of a turn."""
        return await self.recovery.restart(await self.service.adopt(run_id))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ground:
    """What the parts of one program stand on."""

    settings: Settings
    serving: bool
    name: str
    programs: Instances
    store: Store
    spawner: Spawner
    engines: Engines
    setups: dict[str, EngineSetup]
    library: Library
    workspaces: Workspaces
    probes: Probes
    slots: Slots
    pools: Pools
    uploads: Uploads

    @property
    def owner(self) -> str:
        return SHARED if self.serving else self.name


_NO_ISOLATION = (
    "Engines run without a sandbox: each can read and change what the user of the server can,"
    " including the server's token, its database and other runs."
)


@asynccontextmanager
async def opened(settings: Settings, *, serving: bool = False) -> AsyncIterator[App]:
    """Everything wired on the data folder. A serving program also carries on what others left behind."""
    close_to_others()
    data_dir = _data_folder(settings.data_dir, serving=serving)
    engines, setups = _engines(settings, _own_secrets(settings, serving=serving))
    programs = Instances(data_dir / "programs")
    per_engine = {engine: setup.slots for engine, setup in setups.items() if setup.slots is not None}
    async with AsyncExitStack() as ends:
        store = await SqliteStore.open(data_dir / _DATABASE)
        ends.push_async_callback(store.close)
        pools = Pools()
        ends.callback(pools.close)
        name = ends.enter_context(_registered(programs))
        spawner = _spawner(settings)
        # Before this program counts as gone: nothing that it started may live on.
        ends.push_async_callback(spawner.close)
        await _check_sandbox(settings, spawner)
        ground = _Ground(
            settings=settings,
            serving=serving,
            name=name,
            programs=programs,
            store=store,
            spawner=spawner,
            engines=engines,
            setups=setups,
            library=open_library(settings),
            workspaces=Workspaces(data_dir / "runs", sign_ins=tuple(_sign_ins(engines))),
            probes=Probes(data_dir / "probes.json", spawner),
            slots=Slots(settings.slots, per_engine),
            pools=pools,
            uploads=Uploads(data_dir / "uploads"),
        )
        yield _wire(ground)


@contextmanager
def _registered(programs: Instances) -> Iterator[str]:
    """The name under which this program is known to live, for as long as it does."""
    try:
        name, lock = programs.register()
    except OSError as error:
        code = RefusalCode.DISK_FULL if error.errno in FULL_DISK else RefusalCode.STORE_UNUSABLE
        message = f"this program cannot be registered in the data folder: {error}; see that the folder is in order"
        raise Unavailable(code, message) from error
    try:
        yield name
    finally:
        programs.leave(name, lock)


def _wire(ground: _Ground) -> App:
    store, settings, serving = ground.store, ground.settings, ground.serving
    recovery = Recovery(store=store, programs=ground.programs, workspaces=ground.workspaces, clock=now)
    return App(
        settings=settings,
        serving=serving,
        store=store,
        workspaces=ground.workspaces,
        uploads=ground.uploads,
        slots=ground.slots,
        spawner=ground.spawner,
        service=_service(ground, recovery),
        worker=_worker(ground),
        deadlines=Deadlines(store=store, owners={ground.owner}, clock=now),
        recovery=recovery,
        vitals=Vitals(store=store, pools=ground.pools, clock=now),
        notifications=Notifications(store=store, sending=_sending(settings), clock=now) if serving else None,
        retention=_retention(ground) if serving else None,
    )


def _service(ground: _Ground, recovery: Recovery) -> Service:
    return Service(
        store=ground.store,
        library=ground.library,
        engines=EnginesHere(
            engines=ground.engines,
            setups=ground.setups,
            probes=ground.probes,
            default_engine=ground.settings.default_engine,
        ),
        workspaces=ground.workspaces,
        owner=ground.owner,
        is_alive=ground.programs.is_alive,
        restart=recovery.restart,
        clock=now,
        new_id=new_run_id,
        queue_reason=ground.slots.reason,
        private_webhooks=ground.settings.notifications.allow_private,
        pools=ground.pools,
    )


def _worker(ground: _Ground) -> Worker:
    limits = ground.settings.limits
    bench = TurnContext(
        store=ground.store,
        packages=ground.library,
        workspaces=ground.workspaces,
        locks=ground.settings.data_dir / "locks",
        engines=ground.engines,
        setups=ground.setups,
        probes=ground.probes,
        spawner=ground.spawner,
        limits=OutputLimits(line_bytes=limits.line_bytes, turn_bytes=limits.output_bytes),
        clock=now,
        pools=ground.pools,
    )
    return Worker(
        name=ground.name,
        owners={ground.owner},
        store=ground.store,
        slots=ground.slots,
        carry=partial(carrying, bench),
        clock=now,
    )


def _sending(settings: Settings) -> DeliveryPolicy:
    """Checked like a run's webhooks; each address once for each kind."""
    given = tuple(
        Webhook(url=each.url, secret=each.secret, kind=WebhookKind(each.kind), states=each.states)
        for each in settings.webhooks
    )
    allow_private = settings.notifications.allow_private
    problems = [
        problem
        for place, webhook in enumerate(given)
        for problem in mistakes(webhook, f"webhooks.{place}", allow_private=allow_private)
    ]
    seen = [(webhook.url, webhook.kind) for webhook in given]
    problems += [f"webhooks.{place}.url: stands there twice" for place, each in enumerate(seen) if each in seen[:place]]
    if problems:
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings of webhooks are wrong", problems)
    return DeliveryPolicy(webhooks=given, allow_private=allow_private, link=settings.notifications.link)


def _retention(ground: _Ground) -> Retention:
    settings = ground.settings
    return Retention(
        store=ground.store,
        workspaces=ground.workspaces,
        pools=ground.pools,
        uploads=ground.uploads,
        keeping=RetentionPolicy(days=settings.retention.days, max_bytes=settings.retention.max_bytes),
        clock=now,
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


def _data_folder(data_dir: Path, *, serving: bool) -> Path:
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        message = f"the data folder {data_dir} cannot be made: {error.strerror}; name another with --data-dir"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
    _close_folder(data_dir, serving=serving)
    return data_dir


def _close_folder(data_dir: Path, *, serving: bool) -> None:
    """Write access to the data folder is enough to run programs as its owner, so only the owner may have it."""
    access = access_of_others(data_dir)
    if access is Access.WRITE:
        if not withdraw_write_access(data_dir, _DATABASE):
            message = f"other users can write to the data folder {data_dir}; make it yours alone: chmod 700 {data_dir}"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
        log.warning("other users could write to the data folder %s; that was withdrawn", data_dir)
    elif access is Access.READ and serving:
        log.warning("other users can look into the data folder %s; close it with: chmod 700 %s", data_dir, data_dir)


def _own_secrets(settings: Settings, *, serving: bool) -> tuple[str, ...]:
    """What an engine could find on this machine and must not tell: the server's token and the key of its links."""
    names = ["link-key", *([] if settings.server.token else ["token"])]
    paths = [settings.data_dir / name for name in names]
    if serving:
        from askback.http.tokens import kept_secret

        found = [kept_secret(path) for path in paths]
    else:
        found = [path.read_text().strip() for path in paths if path.is_file()]
    return (*found, *([settings.server.token] if settings.server.token else []))


def _spawner(settings: Settings) -> Spawner:
    if not client.available():
        return Direct()
    watched = Guardian(delegation())
    if settings.sandbox == "off":
        return watched
    return Sandboxed(
        watched,
        hide=hidden_from_engines(settings),
        show=settings.sandbox_show,
        share=settings.sandbox_share,
        networks=_networks(settings).values(),
    )


def hidden_from_engines(settings: Settings) -> Hidden:
    """What a sandbox never shows."""
    homes = {*homes_of_people(user_home()), *settings.skills_dir}
    homes |= {engine.home for engine in settings.engines.values() if engine.home is not None}
    return hidden(homes=homes, private=[settings.data_dir, *settings.files])


def _networks(settings: Settings) -> dict[str, Network]:
    """What engines are to connect to, by the setting that says so."""
    given = {f"engines.{name}.network": engine.network for name, engine in settings.engines.items()}
    return {key: Network(value) for key, value in {"network": settings.network, **given}.items() if value is not None}


async def _check_sandbox(settings: Settings, spawner: Spawner) -> None:
    """What the settings insist on and cannot be had is refused at the start, and not by the first run."""
    problems: list[str] = []
    isolation: Isolation | None = None
    if settings.sandbox == "on":
        isolation = await spawner.isolation()
        if isolation.level is not IsolationLevel.BUBBLEWRAP:
            problems.append(f"sandbox: {isolation.why_not_more}; {isolation.advice}, or set it to 'auto'")
    for key, network in _networks(settings).items():
        if network is not Network.HOST:
            isolation = isolation or await spawner.isolation()
            problems += _network_problem(key, network, isolation)
    if problems:
        message = "the settings ask for a sandbox that cannot be had here"
        raise Invalid(RefusalCode.SETTINGS_INVALID, message, problems)


def _network_problem(key: str, network: Network, isolation: Isolation) -> list[str]:
    reason = isolation.no_network.get(network)
    if reason is None and not isolation.hides_files:
        reason = f"it needs the sandbox: {isolation.why_not_more}; {isolation.advice}"
    return [f"{key}: '{network}' cannot be had: {reason}; or set it to 'host'"] if reason else []


def _engines(settings: Settings, own_secrets: tuple[str, ...]) -> tuple[Engines, dict[str, EngineSetup]]:
    engines = registry.engines()
    named = {key_name(("engines", name)): name for name in settings.engines} | {
        "default_engine": settings.default_engine
    }
    unknown = sorted(key for key, name in named.items() if name is not None and name not in engines)
    if unknown:
        problems = [f"{key}: there is no such engine; known: {', '.join(engines)}" for key in unknown]
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings name engines that do not exist", problems)
    return engines, {name: _setup(engine, settings, own_secrets) for name, engine in engines.items()}


def _sign_ins(engines: Engines) -> Iterator[str]:
    """The sign-in files of all engines."""
    for engine in engines.values():
        yield from engine.credentials


def _setup(engine: Engine, settings: Settings, own_secrets: tuple[str, ...]) -> EngineSetup:
    given = settings.engines.get(engine.name) or EngineSettings()
    env = engine_environment(engine.env_allow, given.env)
    return EngineSetup(
        command=given.command or engine.default_command,
        env=env,
        model=given.model,
        home=given.home,
        sign_in_home=given.home or user_home(),
        renew_sign_in=given.renew_sign_in,
        extra_args=given.extra_args,
        slots=given.slots,
        secrets=(*secret_values(env), *own_secrets),
        network=Network(given.network or settings.network),
        resources=_resources(settings, given),
    )


def _resources(settings: Settings, given: EngineSettings) -> ResourceLimits:
    limits = settings.limits.model_copy(update=given.limits.model_dump(exclude_none=True))
    return ResourceLimits(
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        cpu_sec=limits.cpu_sec,
        disk_bytes=limits.disk_bytes,
        reserve_bytes=limits.disk_reserve_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WebServer:
    """The application, and what its surroundings need to know of it."""

    application: ASGIApp
    token: str
    streams: Streams
    metrics: Metrics
    sessions: Sessions


def web_server(app: App, port: int) -> WebServer:
    """The HTTP side on an opened data folder. Imported late: only a server needs it."""
    from askback.http.app import application
    from askback.http.bodies import BodyLimits, BodyMemory
    from askback.http.context import Context
    from askback.http.failed_sign_ins import FailedSignIns
    from askback.http.metrics import Metrics
    from askback.http.quotas import Quotas
    from askback.http.sessions import Sessions
    from askback.http.streams import MOST_IN_ALL, Streams
    from askback.http.tokens import kept_secret
    from askback.web.app import Pages

    settings, data_dir = app.settings, app.settings.data_dir
    tokens = _tokens(settings)
    key = kept_secret(data_dir / "link-key").encode()
    # Engines and the database need files too.
    streams = Streams(most_in_all=min(MOST_IN_ALL, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
    context = Context(
        service=app.service,
        uploads=app.uploads,
        links=_links(app, tokens, key),
        sessions=Sessions(data_dir / "sessions.json", now, tokens.holder),
        addresses=_addresses(settings, port, tokens, key),
        streams=streams,
        metrics=Metrics(
            slots_total=app.slots.total, slots_taken=lambda: app.slots.taken, streams=lambda: streams.count
        ),
        health=partial(_health, app),
        bodies=BodyLimits(
            run_bytes=settings.limits.body_bytes,
            upload_bytes=settings.limits.upload_bytes,
            values=settings.limits.body_values,
            seconds=settings.limits.body_sec,
        ),
        body_memory=BodyMemory(8 * settings.limits.body_bytes),
        bundle_bytes=settings.limits.bundle_bytes,
        quotas=Quotas(usual=settings.quotas, by_name=settings.quotas.tokens),
    )
    made = application(
        context,
        Pages(app.service, now, partial(_health, app)),
        tokens=tokens,
        failures=FailedSignIns(settings.server.failed_sign_ins),
    )
    return WebServer(
        application=made,
        token=tokens.token,
        streams=context.streams,
        metrics=context.metrics,
        sessions=context.sessions,
    )


def _links(app: App, tokens: MainToken, key: bytes) -> Links:
    from askback.http.links import Links

    return Links(
        key=key,
        clock=now,
        folder=lambda run_id: app.workspaces.of(run_id).root,
        is_token=lambda token_digest: tokens.holder(token_digest) is not None,
    )


def _addresses(settings: Settings, port: int, tokens: MainToken, key: bytes) -> Addresses:
    from askback.http.addresses import addresses
    from askback.http.links import PageLabels

    def is_valid(token_digest: str) -> bool:
        return tokens.holder(token_digest) is not None

    return addresses(
        listening_on=settings.server.host,
        port=port,
        allowed_hosts=settings.server.allowed_hosts,
        public_url=settings.server.public_url,
        labels=PageLabels(key, digests=tokens.digests, is_valid=is_valid),
    )


def _tokens(settings: Settings) -> MainToken:
    """The server's own token, made if there is none, and the further ones."""
    from askback.http.auth import MainToken
    from askback.http.tokens import Tokens, kept_secret

    own = settings.server.token or kept_secret(settings.data_dir / "token")
    further = Tokens(settings.data_dir / "tokens.json", now)
    return MainToken(token=own, further=further.find, further_digests=further.digests)


async def _health(app: App) -> dict[str, Any]:
    """What `/healthz` says."""
    vitals, database = app.vitals, await app.vitals.database()
    degraded = "degraded" if vitals.lagging or vitals.stuck else "ok"
    isolation = await app.spawner.isolation()
    return {
        "status": degraded if database == "ok" and vitals.worker_alive else "failing",
        "version": __version__,
        "database": database,
        "disk_free_bytes": shutil.disk_usage(app.settings.data_dir).free,
        "slots": {"total": app.slots.total, "taken": app.slots.taken},
        "oldest_queued_sec": vitals.oldest_queued_sec,
        "loop_lag_sec": round(vitals.loop_lag_sec, 3),
        "stuck": vitals.stuck,
        "sandbox": isolation.level,
        "limits": dict((await app.spawner.enforcement()).means),
        "isolation": {
            "files": "run" if isolation.hides_files else "user",
            "shares_folders": bool(isolation.shared),
            "network": min(_networks(app.settings).values(), key=tuple(Network).index),
            "message": _NO_ISOLATION if not isolation.hides_files else "",
        },
    }
