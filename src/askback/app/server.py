"""The HTTP side of a server, with its tokens, links, limits and health check, and that of a worker.

Commands do not import this.
"""

from __future__ import annotations

import asyncio
import functools
import resource
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from askback.access.failed_sign_ins import FailedSignIns
from askback.access.push_subscriptions import Push, Subscriptions
from askback.access.sessions import Invitations, Lifetime, Sessions
from askback.access.tokens import TokenDirectory, Tokens, TokenUses, flush_periodically
from askback.app import App
from askback.app.mcp import McpFace
from askback.app.notifications import make_links, make_tokens
from askback.app.storage import keep_token
from askback.background.loops import SharedCall
from askback.core.webhooks import WebhookKind, reminders_of
from askback.http.addresses import Addresses, PageLabels, addresses
from askback.http.app import api, application, worker_application
from askback.http.auth import MCP
from askback.http.bodies import BodyLimits, BodyMemory
from askback.http.context import AuditTrail, Context
from askback.http.quotas import Quotas
from askback.http.streams import MAX_IN_TOTAL, Streams
from askback.notifications.channels.push import PushChannel
from askback.notifications.channels.webhook import WebhookSender
from askback.settings.model import Settings
from askback.settings.sections import in_bytes
from askback.telemetry.metrics import Gauges, Metrics
from askback.web.app import Pages
from askback.web.page_context import PageContext
from askback.worker.warm_pool import DropReason

if TYPE_CHECKING:
    from askback.notifications.channels.push_encryption import ServerKey

_NO_CONTACT = "mailto:askback@localhost"
"""For push services, if the settings say nothing. A server that phones reach has a public URL."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WebServer:
    """The ASGI application, and what the server around it needs."""

    application: ASGIApp
    token: str
    streams: Streams
    flush: Callable[[], None]
    """Writes when sessions and tokens were last used, at the end."""
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...]
    """What runs while the server does."""


def web_server(app: App, port: int) -> WebServer:
    """The HTTP side of an opened instance."""
    settings, records = app.settings, app.records
    tokens = make_tokens(settings, records, app.clock)
    keep_token(settings, tokens.token)
    uses = TokenUses(records, app.clock)
    key = records.secret("link-key").encode()
    # Engines and the database need files too.
    streams = Streams(max_in_total=min(MAX_IN_TOTAL, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
    metrics = _make_metrics(app, streams)
    sessions = Sessions(records, app.clock, tokens.holder, _device(settings))
    health = SharedCall(app.health.report)
    context = Context(
        service=app.service,
        uploads=app.uploads,
        links=make_links(records, app.workspaces, tokens, app.clock),
        sessions=sessions,
        tokens=Tokens(records, app.clock),
        main_digest=tokens.main_digest,
        token_uses=uses,
        invitations=Invitations(records, app.clock, tokens.holder),
        addresses=_addresses(settings, port, tokens, key),
        streams=streams,
        metrics=metrics,
        health=health,
        readiness=SharedCall(app.health.readiness),
        workers=app.workers,
        bodies=BodyLimits(
            run_bytes=in_bytes(settings.limits.body),
            upload_bytes=in_bytes(settings.limits.upload),
            values=settings.limits.body_values,
            seconds=settings.limits.body_sec,
        ),
        body_memory=BodyMemory(8 * in_bytes(settings.limits.body)),
        bundle_bytes=in_bytes(settings.limits.bundle),
        reminders=settings.notifications.reminders.policy,
        quotas=Quotas(usual=settings.quotas, by_name=settings.quotas.tokens),
        audit=AuditTrail(store=app.store, clock=app.clock),
        push=_make_push(app, tokens, sessions),
    )
    pages = Pages(
        PageContext(
            service=app.service,
            clock=app.clock,
            health=health,
            audit=app.store,
            workers=None if app.fleet is None else app.workers,
            device=_device(settings),
        )
    )
    mcp = McpFace(context, api(context), skill_tools=settings.mcp.skill_tools)
    made = application(
        pages.around(api(context, {MCP: mcp})),
        context,
        pages=pages,
        tokens=tokens,
        current=records.current,
        failures=FailedSignIns(settings.server.failed_sign_ins),
        origins=settings.server.allowed_origins,
    )

    def flush() -> None:
        context.sessions.flush()
        context.token_uses.flush(tokens.digests)

    return WebServer(
        application=made,
        token=tokens.token,
        streams=context.streams,
        flush=flush,
        tasks=(
            partial(flush_periodically, sessions.flush, "the use of browser sessions"),
            mcp.serve,
            partial(flush_periodically, partial(uses.flush, tokens.digests), "when tokens were used"),
            *(() if app.exporter is None else (partial(_send_metrics, app, metrics),)),
        ),
    )


def _addresses(settings: Settings, port: int, tokens: TokenDirectory, key: bytes) -> Addresses:

    def is_valid(token_digest: str) -> bool:
        return tokens.admitted(token_digest) is not None

    return addresses(
        listening_on=settings.server.host,
        port=port,
        allowed_hosts=settings.server.allowed_hosts,
        public_url=settings.server.public_url,
        labels=PageLabels(key, digests=tokens.digests, is_valid=is_valid),
    )


def _device(settings: Settings) -> Lifetime:
    server = settings.server
    return Lifetime(idle=timedelta(days=server.device_idle_days), max_age=timedelta(days=server.device_days))


def _make_push(app: App, tokens: TokenDirectory, sessions: Sessions) -> Push:
    """The instance's notifications use it from now on."""
    settings, notifications = app.settings, app.notifications
    assert notifications is not None, "only a server has an HTTP side"
    subscriptions = Subscriptions(app.records, app.clock, holder=tokens.holder, is_session=sessions.has)
    secret = app.records.secret("push-key")

    @functools.cache
    def key() -> ServerKey:
        # Most servers have no devices, and the library takes a while to import.
        from askback.notifications.channels.push_encryption import ServerKey

        return ServerKey(secret=secret, contact=_contact(settings))

    channel = PushChannel(
        devices=subscriptions,
        key=key,
        shows_text=settings.notifications.push_text,
        store=app.store,
        sender=WebhookSender(allow_private=settings.notifications.allow_private),
        reminders=reminders_of(WebhookKind.PUSH, None, settings.notifications.reminders.policy),
    )
    notifications.channels[WebhookKind.PUSH] = channel
    return Push(
        subscriptions=subscriptions,
        channel=channel,
        changed=notifications.register,
        allow_private=settings.notifications.allow_private,
        clock=app.clock,
    )


def _contact(settings: Settings) -> str:
    public_url = settings.server.public_url
    if settings.notifications.push_contact is not None:
        return settings.notifications.push_contact
    # A push service accepts no other scheme.
    return public_url if public_url is not None and public_url.startswith("https://") else _NO_CONTACT


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkerSite:
    application: ASGIApp
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...]
    """What runs while the worker does."""


def worker_site(app: App) -> WorkerSite:
    metrics = _make_metrics(app)
    application = worker_application(
        health=SharedCall(app.health.report),
        readiness=SharedCall(app.health.readiness),
        metrics=metrics,
        find=make_tokens(app.settings, app.records, app.clock),
        failures=FailedSignIns(app.settings.server.failed_sign_ins),
    )
    sending = () if app.exporter is None else (partial(_send_metrics, app, metrics),)
    return WorkerSite(application=application, tasks=sending)


def _make_metrics(app: App, streams: Streams | None = None) -> Metrics:
    exporter, fleet = app.exporter, app.fleet
    metrics = Metrics(
        Gauges(
            slots_total=app.slots.total if app.role.executes else 0,
            slots_taken=lambda: app.slots.taken,
            workers=lambda: 1 if fleet is None else len(fleet.working),
            streams=lambda: 0 if streams is None else streams.count,
            loop_lag_sec=lambda: app.health.loop_lag_sec,
            warm_processes=lambda: app.warm.count,
            warm_bytes=lambda: app.warm.memory_bytes,
            warm_replies=lambda: {"hit": app.warm.hits, "miss": app.warm.misses},
            prewarmed_processes=lambda: app.prewarming.count,
            prewarmed_starts=lambda: {"hit": app.prewarming.hits, "miss": app.prewarming.misses},
            warm_drops=lambda: {reason: app.warm.drops[reason] for reason in DropReason},
            spans=lambda: {} if exporter is None else exporter.counts,
        ),
        run_labels=app.settings.telemetry.metric_labels,
    )
    if streams is not None:
        streams.measure_lag = metrics.event_lag.observe
    app.observer.measure_commit = metrics.commit.observe
    app.observer.add(metrics.observe)
    return metrics


async def _send_metrics(app: App, metrics: Metrics) -> None:
    """Send the metrics to the collector again and again, and once more at the end."""
    exporter = app.exporter
    assert exporter is not None
    try:
        while True:
            await asyncio.sleep(app.settings.telemetry.metrics_sec)
            if app.role.serves:
                await metrics.refresh(app.store)
            exporter.send_metrics(tuple(metrics.registry.collect()))
    finally:
        exporter.send_metrics(tuple(metrics.registry.collect()))
