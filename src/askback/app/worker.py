"""The HTTP side of a worker: its health and metrics. Only a worker imports this."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.types import ASGIApp

from askback.access.failed_sign_ins import FailedSignIns
from askback.app import App
from askback.app.health import Shared, health, make_metrics, readiness, send_metrics
from askback.app.links import make_tokens
from askback.http.app import worker_application


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkerSite:
    application: ASGIApp
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...]
    """What runs while the worker does."""


def worker_site(app: App) -> WorkerSite:
    metrics = make_metrics(app)
    application = worker_application(
        health=Shared(partial(health, app)),
        readiness=Shared(partial(readiness, app)),
        metrics=metrics,
        find=make_tokens(app.settings, app.records, app.clock),
        failures=FailedSignIns(app.settings.server.failed_sign_ins),
    )
    sending = () if app.exporter is None else (partial(send_metrics, app, metrics),)
    return WorkerSite(application=application, tasks=sending)
