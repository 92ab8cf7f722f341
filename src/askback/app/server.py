"""The HTTP side of a program: the application with its tokens, links, limits and health check.

Only a server imports this.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from starlette.types import ASGIApp

from askback.access.failed_sign_ins import FailedSignIns
from askback.access.grants import TokenDirectory
from askback.access.sessions import Invitations, Lifetime, Sessions
from askback.access.token_uses import TokenUses
from askback.access.tokens import Tokens
from askback.app import App
from askback.app.data_folder import keep_token
from askback.app.health import Shared, health, make_metrics, readiness, send_metrics, workers
from askback.app.links import make_links, make_tokens
from askback.app.mcp import McpFace
from askback.app.push import make_push
from askback.http.addresses import Addresses, PageLabels, addresses
from askback.http.app import api, application
from askback.http.auth import MCP
from askback.http.bodies import BodyLimits, BodyMemory
from askback.http.context import AuditTrail, Context
from askback.http.quotas import Quotas
from askback.http.streams import MAX_IN_TOTAL, Streams
from askback.settings.model import Settings
from askback.web.app import Pages


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
    """The HTTP side of an opened program."""
    settings, records = app.settings, app.records
    tokens = make_tokens(settings, records, app.clock)
    keep_token(settings, tokens.token)
    uses = TokenUses(records, app.clock)
    key = records.secret("link-key").encode()
    # Engines and the database need files too.
    streams = Streams(max_in_total=min(MAX_IN_TOTAL, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
    metrics = make_metrics(app, streams)
    sessions = Sessions(records, app.clock, tokens.holder, _device(settings))
    look = Shared(partial(health, app))
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
        health=look,
        readiness=Shared(partial(readiness, app)),
        workers=partial(workers, app),
        bodies=BodyLimits(
            run_bytes=settings.limits.body_bytes,
            upload_bytes=settings.limits.upload_bytes,
            values=settings.limits.body_values,
            seconds=settings.limits.body_sec,
        ),
        body_memory=BodyMemory(8 * settings.limits.body_bytes),
        bundle_bytes=settings.limits.bundle_bytes,
        reminders=settings.notifications.reminders.policy,
        quotas=Quotas(usual=settings.quotas, by_name=settings.quotas.tokens),
        audit=AuditTrail(store=app.store, clock=app.clock),
        push=make_push(app, tokens, sessions),
    )
    pages = Pages(
        app.service,
        app.clock,
        look,
        app.store,
        workers=None if app.fleet is None else partial(workers, app),
        device=_device(settings),
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
    return WebServer(
        application=made,
        token=tokens.token,
        streams=context.streams,
        flush=partial(_flush, context, tokens),
        tasks=(
            context.sessions.watch,
            mcp.serve,
            partial(uses.watch, tokens.digests),
            *(() if app.exporter is None else (partial(send_metrics, app, metrics),)),
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


def _flush(context: Context, tokens: TokenDirectory) -> None:
    context.sessions.flush()
    context.token_uses.flush(tokens.digests)


def _device(settings: Settings) -> Lifetime:
    server = settings.server
    return Lifetime(idle=timedelta(days=server.device_idle_days), max_age=timedelta(days=server.device_days))
