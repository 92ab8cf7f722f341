"""The only file that picks implementations and wires them together."""

from __future__ import annotations

import asyncio
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
from askback.engines_here import EnginesHere
from askback.probes import EngineSetup, Probes
from askback.process import guardian
from askback.process.child import OutputLimits, Spawner
from askback.process.confinement import InForce
from askback.process.direct import Direct
from askback.process.guardian import Guardian
from askback.process.locks import Programs
from askback.process.pools import Pools
from askback.process.privacy import close_to_others
from askback.process.sandbox import Sandboxed
from askback.process.uploads import Uploads
from askback.process.workspace import Workspaces
from askback.service import Service
from askback.settings import EngineSettings, Settings, engine_environment, secret_values, user_home
from askback.skills.archive import ZipLimits
from askback.skills.library import Library
from askback.store.base import Store
from askback.store.sqlite import SqliteStore
from askback.work.bench import Bench
from askback.work.carriers import carrying
from askback.work.deadlines import Deadlines
from askback.work.notifications import Notifications, Sending
from askback.work.recovery import Recovery
from askback.work.retention import Keeping, Retention
from askback.work.slots import Slots
from askback.work.vitals import Vitals
from askback.work.worker import Worker

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from askback.http.metrics import Metrics
    from askback.http.streams import Streams

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
        return await self.recovery.take_up(await self.service.adopt(run_id))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ground:
    """What the parts of one program stand on."""

    settings: Settings
    serving: bool
    name: str
    programs: Programs
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
    def keeper(self) -> str:
        return SHARED if self.serving else self.name


@asynccontextmanager
async def opened(settings: Settings, *, serving: bool = False) -> AsyncIterator[App]:
    """Everything wired on the data folder. A serving program also carries on what others left behind."""
    close_to_others()
    data_dir = _data_folder(settings.data_dir)
    engines, setups = _engines(settings, _own_secrets(settings, serving=serving))
    programs = Programs(data_dir / "programs")
    per_engine = {engine: setup.slots for engine, setup in setups.items() if setup.slots is not None}
    async with AsyncExitStack() as ends:
        store = await SqliteStore.open(data_dir / "askback.db")
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
            workspaces=Workspaces(data_dir / "runs"),
            probes=Probes(data_dir / "probes.json", spawner),
            slots=Slots(settings.slots, per_engine),
            pools=pools,
            uploads=Uploads(data_dir / "uploads"),
        )
        yield _wire(ground)


@contextmanager
def _registered(programs: Programs) -> Iterator[str]:
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
        deadlines=Deadlines(store=store, keepers={ground.keeper}, clock=now),
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
        keeper=ground.keeper,
        is_alive=ground.programs.is_alive,
        take_up=recovery.take_up,
        clock=now,
        new_id=new_run_id,
        queue_reason=ground.slots.reason,
        private_webhooks=ground.settings.notifications.allow_private,
        pools=ground.pools,
    )


def _worker(ground: _Ground) -> Worker:
    limits = ground.settings.limits
    bench = Bench(
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
        keepers={ground.keeper},
        store=ground.store,
        slots=ground.slots,
        carry=partial(carrying, bench),
        clock=now,
    )


def _sending(settings: Settings) -> Sending:
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
    return Sending(webhooks=given, allow_private=allow_private, link=settings.notifications.link)


def _retention(ground: _Ground) -> Retention:
    settings = ground.settings
    return Retention(
        store=ground.store,
        workspaces=ground.workspaces,
        pools=ground.pools,
        uploads=ground.uploads,
        keeping=Keeping(days=settings.retention.days, max_bytes=settings.retention.max_bytes),
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


def _data_folder(data_dir: Path) -> Path:
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        message = f"the data folder {data_dir} cannot be made: {error.strerror}; name another with --data-dir"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
    return data_dir


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
    if not guardian.available():
        return Direct()
    if settings.sandbox == "off":
        return Guardian()
    insisted = settings.sandbox == "on"
    return Sandboxed(Guardian(), home=user_home(), data_dir=settings.data_dir, private_tmp=insisted)


async def _check_sandbox(settings: Settings, spawner: Spawner) -> None:
    """Whoever insists on a sandbox is told at once that there is none, and not by the first run."""
    if settings.sandbox != "on":
        return
    confinement = await spawner.confinement()
    if confinement.in_force is not InForce.BUBBLEWRAP:
        problems = [f"sandbox: {confinement.why_not_more}; {confinement.advice}, or set it to 'auto'"]
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings ask for a sandbox, and there is none here", problems)


def _engines(settings: Settings, own_secrets: tuple[str, ...]) -> tuple[Engines, dict[str, EngineSetup]]:
    engines = registry.engines()
    named = {f"engines.{name}": name for name in settings.engines} | {"default_engine": settings.default_engine}
    unknown = sorted(key for key, name in named.items() if name is not None and name not in engines)
    if unknown:
        problems = [f"{key}: there is no such engine; known: {', '.join(engines)}" for key in unknown]
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings name engines that do not exist", problems)
    return engines, {name: _setup(engine, settings.engines.get(name), own_secrets) for name, engine in engines.items()}


def _setup(engine: Engine, given: EngineSettings | None, own_secrets: tuple[str, ...]) -> EngineSetup:
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
        secrets=(*secret_values(env), *own_secrets),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WebServer:
    """The application, and what its surroundings need to know of it."""

    application: ASGIApp
    token: str
    streams: Streams
    metrics: Metrics


def web_server(app: App, port: int) -> WebServer:
    """The HTTP side on an opened data folder. Imported late: only a server needs it."""
    from askback.http.app import application
    from askback.http.auth import MainToken
    from askback.http.bodies import BodyLimits, BodyMemory
    from askback.http.context import Context
    from askback.http.links import Links
    from askback.http.metrics import Metrics
    from askback.http.quotas import Quotas
    from askback.http.streams import MOST_IN_ALL, Streams
    from askback.http.tokens import Tokens, kept_secret
    from askback.web.app import Pages

    settings, data_dir = app.settings, app.settings.data_dir
    token = settings.server.token or kept_secret(data_dir / "token")
    # Engines and the database need files too.
    streams = Streams(most_in_all=min(MOST_IN_ALL, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
    context = Context(
        service=app.service,
        uploads=app.uploads,
        links=Links(key=kept_secret(data_dir / "link-key").encode(), clock=now),
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
        find=MainToken(token=token, further=Tokens(data_dir / "tokens.json", now).find),
        hosts=_hosts(settings, port),
    )
    return WebServer(application=made, token=token, streams=context.streams, metrics=context.metrics)


def _hosts(settings: Settings, port: int) -> frozenset[str]:
    """The names that a request may be for; any other may be a stranger's name that leads here."""
    host = settings.server.host.lower()
    names = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host}
    with_port = {f"{name}:{port}" for name in names}
    return frozenset({*with_port, *(names if port == 80 else ()), *(h.lower() for h in settings.server.allowed_hosts)})


async def _health(app: App) -> dict[str, Any]:
    """What `/healthz` says."""
    vitals, database = app.vitals, await app.vitals.database()
    degraded = "degraded" if vitals.lagging or vitals.stuck else "ok"
    return {
        "status": degraded if database == "ok" and vitals.worker_alive else "failing",
        "version": __version__,
        "database": database,
        "disk_free_bytes": shutil.disk_usage(app.settings.data_dir).free,
        "slots": {"total": app.slots.total, "taken": app.slots.taken},
        "oldest_queued_sec": vitals.oldest_queued_sec,
        "loop_lag_sec": round(vitals.loop_lag_sec, 3),
        "stuck": vitals.stuck,
        "sandbox": (await app.spawner.confinement()).in_force,
    }
