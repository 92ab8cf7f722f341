"""Statistics of the last days, for the API and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from starlette.requests import Request
from starlette.responses import Response

from askback.core.access import AccessScope
from askback.core.errors import RefusalCode
from askback.core.runs import RunState, Usage
from askback.http.context import Context, json_response
from askback.http.problems import RequestCode
from askback.http.routing import Router
from askback.runs.service import Service
from askback.store.base import Finished, RunStats
from askback.wire import runs as run_wire
from askback.wire import statistics as wire
from askback.wire.requests import StatisticsQuery

router = Router("server")


@router.add(
    "GET /v1/stats",
    "Statistics",
    scopes=(AccessScope.READ,),
    query=StatisticsQuery,
    returns=wire.Statistics,
    description="The statistics.",
    refusals=(RequestCode.REQUEST_INVALID, RefusalCode.INPUT_INVALID),
)
async def get_statistics(request: Request, context: Context, *, query: StatisticsQuery) -> Response:
    """Runs, failures and tokens by day, skill and engine, how long answers took, and what waits now.

    A run counts on the UTC day on which it ended, also after it was deleted. With `label`, and for a token that is
    restricted to labels, deleted runs do not count.
    """
    return json_response(await statistics(context.labelled(query.label), query.days))


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
    return tuple(_day(stats, stats.first + timedelta(days=number)) for number in range(length))


def _day(stats: RunStats, day: date) -> wire.DayStats:
    finished = stats.days.get(day, Finished())
    return wire.DayStats(
        date=day,
        succeeded=finished.succeeded,
        failed=finished.failed,
        canceled=finished.canceled,
        failures=dict(stats.failures.get(day, {})),
        usage=_usage(finished.usage),
    )


def _named(found: Mapping[str, Finished]) -> tuple[wire.NamedStats, ...]:
    return tuple(
        wire.NamedStats(
            name=name,
            succeeded=each.succeeded,
            failed=each.failed,
            canceled=each.canceled,
            usage=_usage(each.usage),
        )
        for name, each in found.items()
    )


def _usage(usage: Usage) -> run_wire.Usage:
    return run_wire.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        total_tokens=usage.total_tokens,
    )
