"""The server itself: health, metrics, statistics, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from askback.core.runs import RunState
from askback.http.context import Context, json_response
from askback.http.routing import ADMIN, READ, Access, Router
from askback.runs.service import Service
from askback.store.pages import AuditFilter, Finished, RunStats
from askback.telemetry.metrics import CONTENT_TYPE
from askback.wire import server as wire
from askback.wire.access import AuditEntryPage
from askback.wire.requests import AuditQuery, StatisticsQuery, UsageQuery

router = Router("server")
audit_router = Router("audit")


@router.add(
    "GET /healthz",
    "Health",
    access=Access.NOTHING,
    description="The server is healthy.",
    other_statuses={HTTPStatus.SERVICE_UNAVAILABLE: "The server is not healthy; see `status`."},
)
async def health(request: Request, context: Context) -> Response | wire.Health:
    """The state of the server. Requires no token."""
    found = await context.health()
    return json_response(found, HTTPStatus.OK if found.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE)


@router.add(
    "GET /readyz",
    "Readiness",
    access=Access.NOTHING,
    description="The server is ready.",
    other_statuses={HTTPStatus.SERVICE_UNAVAILABLE: "The server is not ready; see the fields."},
)
async def readiness(request: Request, context: Context) -> Response | wire.Readiness:
    """Whether a load balancer should send requests to this server. Requires no token."""
    found = await context.readiness()
    return json_response(found, HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE)


@router.add(
    "GET /metrics",
    "Metrics",
    READ,
    whole_server=True,
    description="Metrics in the Prometheus text format.",
    content={"text/plain": {"schema": {"type": "string"}, "example": "askback_slots 4.0\n"}},
)
async def metrics(request: Request, context: Context) -> Response:
    """Metrics for Prometheus."""
    await context.metrics.refresh(context.service.store)
    return Response(context.metrics.text(), media_type=CONTENT_TYPE)


@router.add("GET /v1/stats", "Statistics", READ)
async def get_statistics(request: Request, context: Context, *, query: StatisticsQuery) -> wire.Statistics:
    """Runs, failures and tokens by day, skill and engine, how long answers took, and what waits now.

    A run counts on the UTC day on which it ended, also after it was deleted. With `label`, and for a token that is
    restricted to labels, deleted runs do not count.
    """
    return await statistics(context.labelled(query.label), query.days)


@router.add("GET /v1/usage", "Usage", READ)
async def get_usage(request: Request, context: Context, *, query: UsageQuery) -> wire.UsageReport:
    """Tokens and costs of turns, also of failed ones, by day, engine, model, skill, token or label.

    A turn counts on the UTC day on which it ended, also after its run was deleted. With `label`, and for a token that is
    restricted to labels, deleted runs do not count. A cost is what an engine reports, and null where none does.
    """
    used = await context.labelled(query.label).usage(query.by, query.days)
    return wire.UsageReport.of(used, by=query.by)


async def statistics(service: Service, days: int) -> wire.Statistics:
    stats = await service.stats(days)
    oldest = (await service.store.pending(limit=1)).items
    asked = oldest[0].pending_interaction if oldest else None
    waits = sorted(stats.answer_sec)
    return wire.Statistics(
        first=stats.first,
        last=stats.last,
        days=_days(stats),
        skills=_named(stats.skills),
        engines=_named(stats.engines),
        answers=wire.AnswerStats(count=len(waits), median_sec=quantile(waits, 0.5), p90_sec=quantile(waits, 0.9)),
        unfinished=wire.Unfinished(
            queued=stats.unfinished[RunState.QUEUED],
            running=stats.unfinished[RunState.RUNNING],
            waiting_user=stats.unfinished[RunState.WAITING_USER],
            oldest_asked_at=asked.asked_at if asked else None,
        ),
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value that this share of the list does not exceed; None for an empty list."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


def _days(stats: RunStats) -> tuple[wire.DayStats, ...]:
    """Every day, also those on which no run ended."""
    length = (stats.last - stats.first).days + 1
    days = [stats.first + timedelta(days=number) for number in range(length)]
    return tuple(
        wire.DayStats.of(stats.days.get(day, Finished()), date=day, failures=dict(stats.failures.get(day, {})))
        for day in days
    )


def _named(found: Mapping[str, Finished]) -> tuple[wire.NamedStats, ...]:
    return tuple(wire.NamedStats.of(each, name=name) for name, each in found.items())


@audit_router.add("GET /v1/audit", "Read the audit log", ADMIN, whole_server=True)
async def list_entries(request: Request, context: Context, *, query: AuditQuery) -> AuditEntryPage:
    """Every write by a person or a program, newest first: who, through which channel, when and what.

    What was refused, and what Askback does by itself, is not in the log. Entries outlive their run; see
    `retention.audit_days`.
    """
    where = AuditFilter(
        actor=query.actor,
        action=None if query.action is None else query.action.value,
        run_id=query.run_id,
        since=query.since,
        until=query.until,
    )
    return AuditEntryPage.of(await context.audit.store.audit_entries(where, query.cursor, query.limit))
