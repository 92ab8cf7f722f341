"""Statistics: finished runs added up by day, and counts. What a read costs does not depend on the number of finished runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

from askback.core.runs import Run, RunState, Usage, UsageKey
from askback.store.pages import ANY_LABELS, Finished, LabelSet, RunFilter, RunStats, UsageSum, UsageSums
from askback.store.sql import reads, rows
from askback.store.sql.connection import Connection
from askback.store.sql.rows import label_values
from askback.text.json_text import clean

MAX_NAMES = 50
"""How many skills and engines are listed, those with the most runs first."""
_MAX_DAYS = 1000
_MAX_LATEST = 10_000
_MAX_TOKENS = 10**12
"""What one run counts at most: a sum must fit into the database, whatever an engine reports."""
_FIRST_DAY = date(1970, 1, 1)
_UNFINISHED = (RunState.QUEUED, RunState.RUNNING, RunState.WAITING_USER)


def add_finished(connection: Connection, run: Run) -> None:
    """Count a run that has just ended, on the day of its end. The tokens of all its turns count on that day."""
    usage = run.usage or Usage()
    tokens = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens or 0,
        "total_tokens": usage.total_tokens,
    }
    kind = {
        "day": _number((run.finished_at or run.updated_at).astimezone(UTC).date()),
        "skill": clean(run.skill.id),
        "engine": clean(run.engine),
        "state": run.state,
        "code": run.error.code if run.state is RunState.FAILED and run.error is not None else "",
    }
    bounded = {name: max(0, min(count, _MAX_TOKENS)) for name, count in tokens.items()}
    connection.execute(connection.sql["add_finished"], kind | bounded)


def add_usage(connection: Connection, number: int, run: Run, usage: Usage) -> None:
    """Record what a turn has used, by model, on the day of its end."""
    about = {
        "run": number,
        "day": _number(run.updated_at.astimezone(UTC).date()),
        "engine": clean(run.engine),
        "skill": clean(run.skill.id),
        "creator": None if run.created_by is None else clean(run.created_by),
        "labels": rows.dump(run.labels) if run.labels else None,
    }
    for place, each in enumerate(usage.by_model):
        counts = {name: getattr(each, name) for name in _COUNTS}
        bounded = {name: None if count is None else max(0, min(count, _MAX_TOKENS)) for name, count in counts.items()}
        # A turn counts once, with its first model.
        turn = {"turns": int(place == 0), "model": None if each.model is None else clean(each.model)}
        connection.execute(connection.sql["add_usage"], about | turn | bounded | {"cost_usd": each.cost_usd})


def usage_by(connection: Connection, by: UsageKey, first: date, last: date, labels: LabelSet) -> UsageSums:
    """The most used first, except days; and the sum of all. A turn of a run with several labels counts for each."""
    which = {"first": _number(first), "last": _number(last), "limit": _MAX_DAYS, **label_values(labels)}
    total = connection.fetch(connection.sql["usage_total"], which)
    found = connection.fetch(connection.sql[f"usage_by_{by}"], which)
    if by is UsageKey.DAY:
        found = [(_date(day).isoformat(), *rest) for day, *rest in sorted(found)]
    return UsageSums(first=first, last=last, total=_used(None, *total[0]), items=tuple(_used(*row) for row in found))


_COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


def _used(name: str | None, turns: int | None, *counts: Any) -> UsageSum:
    tokens = {key: None if count is None else int(count) for key, count in zip(_COUNTS, counts, strict=False)}
    cost, with_cost = counts[len(_COUNTS) :]
    return UsageSum(name=name, turns=int(turns or 0), **tokens, cost_usd=cost, turns_with_cost=int(with_cost or 0))


def run_stats(connection: Connection, first: date, last: date, latest: int, labels: LabelSet) -> RunStats:
    days = finished_by(connection, "day", first, last, _MAX_DAYS, labels)
    return RunStats(
        first=first,
        last=last,
        days={_date(int(day)): finished for day, finished in sorted(days.items())},
        failures=_failures(connection, first, last, labels),
        skills=finished_by(connection, "skill", first, last, MAX_NAMES, labels),
        engines=finished_by(connection, "engine", first, last, MAX_NAMES, labels),
        unfinished={
            state: connection.value(connection.sql["count_in_state"], label_values(labels) | {"state": state})
            for state in _UNFINISHED
        },
        answer_sec=answer_times(connection, first, latest, labels),
    )


def answer_times(connection: Connection, first: date, latest: int, labels: LabelSet = ANY_LABELS) -> tuple[float, ...]:
    """In seconds, of the latest questions that were answered since that day."""
    since = rows.micros(datetime.combine(first, time(), UTC))
    which = {"latest": max(1, min(latest, _MAX_LATEST)), "since": since, **label_values(labels)}
    found = connection.fetch(connection.sql["answer_times_labelled" if labels else "answer_times"], which)
    return tuple(micros / 1_000_000 for (micros,) in found)


def count_by_state(connection: Connection, where: RunFilter, most: int) -> Mapping[RunState, int]:
    counts: dict[RunState, int] = {}
    for state in RunState:
        sql, values = reads.filtered(connection.sql, replace(where, state=state), "count")
        counts[state] = int(connection.value(sql, {**values, "most": max(1, most)}))
    return counts


def adding_up_by(sql: Mapping[str, str], column: str, labels: LabelSet = ANY_LABELS) -> str:
    """The statement that adds up by `day`, `skill` or `engine`."""
    return _of(sql, labels, sql["finished_by"].format(column=column))


def _of(sql: Mapping[str, str], labels: LabelSet, statement: str) -> str:
    """A statement about `daily_runs`, for runs with these labels."""
    return f"{sql['labelled_days']} {statement}" if labels else statement


def finished_by(
    connection: Connection,
    column: str,
    first: date,
    last: date,
    limit: int,
    labels: LabelSet = ANY_LABELS,
) -> dict[str, Finished]:
    which = {"first": _number(first), "last": _number(last), "limit": limit, **label_values(labels)}
    found = connection.fetch(adding_up_by(connection.sql, column, labels), which)
    return {
        str(name): Finished(
            succeeded=succeeded or 0,
            failed=failed or 0,
            canceled=canceled or 0,
            usage=Usage(input_tokens=input_, output_tokens=output, cached_tokens=cached, total_tokens=total),
        )
        for name, succeeded, failed, canceled, input_, output, cached, total in found
    }


def _failures(connection: Connection, first: date, last: date, labels: LabelSet) -> Mapping[date, Mapping[str, int]]:
    span = {"first": _number(first), "last": _number(last), **label_values(labels)}
    found: defaultdict[date, dict[str, int]] = defaultdict(dict)
    for day, code, count in connection.fetch(_of(connection.sql, labels, connection.sql["failures"]), span):
        found[_date(day)][code] = count
    return dict(found)


def _number(day: date) -> int:
    return (day - _FIRST_DAY).days


def _date(number: int) -> date:
    return date.fromordinal(_FIRST_DAY.toordinal() + number)
