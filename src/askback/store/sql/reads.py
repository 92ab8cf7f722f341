"""Reads of more than one step: pages of runs, questions, events, deliveries and audit entries, and the queue.

A read of a single statement is in `store.base` alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from askback.core.access import StoredEntry
from askback.core.errors import Invalid, NotFound, RefusalCode
from askback.core.events import Event
from askback.core.interactions import InboxOrder, Interaction, Json
from askback.core.labels import Labels
from askback.core.queue import Shares
from askback.core.runs import SHARED, ClosedQuestion, Run, RunRequest, RunState
from askback.core.webhooks import Delivery, DeliveryView
from askback.store.pages import (
    PAGE_BYTES,
    AuditFilter,
    EventPage,
    InboxCount,
    InboxFilter,
    LabelSet,
    OpenQuestions,
    Page,
    QueuedRuns,
    RunFilter,
    StoredRunCount,
)
from askback.store.sql import outbox, rows
from askback.store.sql.connection import Connection
from askback.store.sql.rows import label_values
from askback.text.json_text import clean

_MAX_INTEGER = 2**63 - 1
_MAX_PAGE = 10_000
Sql = Mapping[str, str]


# One run.


def get(connection: Connection, run_id: str) -> Run:
    return rows.load_run(_one(connection, "get", run_id)[0])


def check_labels(connection: Connection, run_id: str, labels: LabelSet) -> None:
    """The same steps and the same refusal for a run with other labels as for one that does not exist."""
    if not connection.fetch(connection.sql["check_labels"], label_values(labels) | {"id": clean(run_id)}):
        raise _missing(run_id)


def request(connection: Connection, run_id: str) -> RunRequest:
    return rows.load_request(*_one(connection, "request", run_id))


def result(connection: Connection, run_id: str) -> Json:
    data = _one(connection, "result", run_id)[0]
    return None if data is None else rows.load(data)


def events(connection: Connection, run_id: str, after: int, limit: int, max_bytes: int) -> EventPage:
    number = _one(connection, "number", run_id)[0]
    size = bounded(limit)
    which = (number, max(0, min(after, _MAX_INTEGER)), size + 1)
    found, more = connection.fetch_page(connection.sql["events"], which, size=size, max_bytes=max_bytes)
    return rows.event_page(run_id, found, more=more)


def last_messages(connection: Connection, run_id: str, limit: int) -> Sequence[Event]:
    found = connection.fetch(
        connection.sql["last_messages"], {"run": _one(connection, "number", run_id)[0], "limit": limit}
    )
    return rows.event_page(run_id, found, more=False)[::-1]


def interactions(connection: Connection, run_id: str) -> Sequence[Interaction]:
    found = connection.fetch(connection.sql["interactions"], _one(connection, "number", run_id))
    return tuple(rows.load_interaction(doc) for (doc,) in found)


def _one(connection: Connection, name: str, run_id: str) -> Sequence[Any]:
    for row in connection.fetch(connection.sql[name], {"id": clean(run_id)}):
        return tuple(row)
    raise _missing(run_id)


def _missing(run_id: str) -> NotFound:
    return NotFound(RefusalCode.RUN_NOT_FOUND, f"there is no run {run_id!r}; `askback runs` lists all runs")


# Lists of runs.


def runs(connection: Connection, name: str, values: rows.Columns) -> Sequence[Run]:
    """The runs that a statement finds, which selects their documents."""
    return tuple(rows.load_run(doc) for (doc,) in connection.fetch(connection.sql[name], values))


def list_runs(connection: Connection, where: RunFilter, cursor: str | None, limit: int) -> Page[Run]:
    sql, values = filtered(connection.sql, where, "list")
    (before,) = _position(cursor, (_MAX_INTEGER,))
    return _run_page(connection, sql, {**values, "before": before}, limit)


def finished_runs(connection: Connection, cursor: str | None, limit: int) -> Page[Run]:
    (after,) = _position(cursor, (0,))
    return _run_page(connection, connection.sql["finished_runs"], {"after": after}, limit)


def filtered(sql: Sql, where: RunFilter, what: str) -> tuple[str, Mapping[str, str | None]]:
    """The statement for the runs of a filter, and its values. `what` is `list` or `count`.

    Unfinished runs are few, so they are found by their state; the unary plus keeps SQLite from choosing another index.
    Finished runs have indices for a state together with other filters. With labels, they are found by a label.
    """
    state, values = where.state, label_values(where.labels) if where.labels else {}
    more = {"skill": where.skill, "engine": where.engine, "creator": where.creator}
    given = {column: clean(text) for column, text in more.items() if text is not None}
    unfinished = state is not None and not state.final
    plus = "+" if unfinished else ""
    filters = "".join(f" AND {plus}{column} = :{column}" for column in given)
    if where.labels and not unfinished:
        ended = "" if state is None else " AND wanted.ended = :ended"
        statement = sql[f"{what}_labelled"].format(wanted=ended, filters=filters)
        return statement, values | given | ({} if state is None else {"ended": state})
    if state is not None:
        # Only together with another filter: else the index on the state is as good, and has unfinished runs as well.
        column = "ended" if state.final and given else "state"
        filters, given = f" AND {column} = :{column}{filters}", {column: state, **given}
    name = f"{what}_labelled_by_state" if where.labels else f"{what}_runs"
    return sql[name].format(filters=filters), values | given


def _run_page(connection: Connection, sql: str, values: Mapping[str, Any], limit: int) -> Page[Run]:
    """A page of runs by a statement that selects their position, in one or more columns, and their documents."""
    size = bounded(limit)
    found, more = connection.fetch_page(sql, {**values, "limit": size + 1}, size=size, max_bytes=PAGE_BYTES)
    items = tuple(rows.load_run(doc) for *_, doc in found)
    return Page(items=items, next_cursor=".".join(map(str, found[-1][:-1])) if more else None)


# Questions.


_INBOX = {
    InboxOrder.OLDEST: ("pending", {"asked_at": -_MAX_INTEGER, "number": 0}),
    InboxOrder.DEADLINE: ("pending_by_deadline", {"due": -_MAX_INTEGER, "asked_at": -_MAX_INTEGER, "number": 0}),
}
"""The statement for each order, and its first position."""


def pending(connection: Connection, cursor: str | None, limit: int, where: InboxFilter, order: InboxOrder) -> Page[Run]:
    name, start = _INBOX[order]
    after = dict(zip(start, _position(cursor, tuple(start.values())), strict=True))
    wanted = rows.values(skill=where.skill, engine=where.engine) | rows.word_values(where.words)
    return _run_page(connection, connection.sql[name], after | wanted | label_values(where.labels), limit)


def inbox_count(connection: Connection, where: InboxFilter) -> InboxCount:
    which = label_values(where.labels) | rows.word_values(where.words)
    found = connection.fetch(connection.sql["inbox_count"], which)
    skills, engines, total = Counter[str](), Counter[str](), 0
    for skill, engine, count, _ in found:
        of_skill, by_engine = where.skill in (None, skill), where.engine in (None, engine)
        skills[skill] += count if by_engine else 0
        engines[engine] += count if of_skill else 0
        total += count if of_skill and by_engine else 0
    return InboxCount(
        total=total,
        newest_at=rows.moment_or_none(max((asked_at for *_, asked_at in found), default=None)),
        skills=tuple(sorted((+skills).items())),
        engines=tuple(sorted((+engines).items())),
    )


def closed_questions(connection: Connection, cursor: str | None, limit: int, labels: LabelSet) -> Page[ClosedQuestion]:
    answered_at, number = _position(cursor, (_MAX_INTEGER, _MAX_INTEGER))
    size = bounded(limit)
    before = {"answered_at": answered_at, "number": number, "limit": size + 1, **label_values(labels)}
    sql = connection.sql["closed_labelled" if labels else "closed_questions"]
    found, more = connection.fetch_page(sql, before, size=size, max_bytes=PAGE_BYTES)
    items = tuple(
        ClosedQuestion(
            run_id=run_id,
            skill=skill,
            engine=engine,
            state=RunState(state),
            summary=summary,
            interaction=rows.load_interaction(doc),
            labels={} if has is None else rows.load(has),
        )
        for _, _, run_id, skill, engine, state, summary, has, doc in found
    )
    return Page(items=items, next_cursor=f"{found[-1][0]}.{found[-1][1]}" if more else None)


def open_questions(connection: Connection, labels: Labels, at: datetime, limit: int) -> OpenQuestions:
    which = {"at": rows.micros(at), "owner": SHARED, **label_values(frozenset(labels.items()))}
    total = connection.value(connection.sql["count_open_questions"], which)
    oldest = runs(connection, "oldest_open_questions", {**which, "limit": limit})
    return OpenQuestions(total=total, oldest=tuple(oldest))


# The queue.


def queued(
    connection: Connection, owners: Collection[str], without_engines: Collection[str], limit: int, shares: Shares
) -> QueuedRuns:
    which = rows.values(owners=list(owners), without_engines=list(without_engines), limit=bounded(limit))
    found = connection.fetch(connection.sql["queued"], which | share_values(shares))
    allowed = QueuedRuns(rows.load_run(doc) for is_allowed, doc in found if is_allowed)
    allowed.held_back = len(allowed) < len(found)
    return allowed


def share_values(shares: Shares) -> rows.Columns:
    named = {clean(token): limit for token, limit in shares.named.items()}
    return {
        "usual": shares.usual,
        "named": json.dumps(named),
        "engines": json.dumps(dict(shares.engines)),
        "of_any_engine": json.dumps(sorted(map(clean, shares.of_any_engine))),
    }


# What belongs to all runs.


def deliveries(
    connection: Connection, run_id: str | None, cursor: str | None, limit: int, labels: LabelSet, view: DeliveryView
) -> Page[Delivery]:
    """Labels do not matter for the deliveries of one run."""
    (before,) = _position(cursor, (_MAX_INTEGER,))
    size = bounded(limit)
    which = {"before": before, "limit": size + 1, "of_server": view.of_server, **label_values(labels)}
    which |= {"all_devices": view.devices is None, "devices": json.dumps(sorted(view.devices or ()))}
    which |= {} if run_id is None else {"run": _one(connection, "number", run_id)[0]}
    name = "deliveries_of_run" if run_id is not None else "deliveries_labelled" if labels else "deliveries"
    found = connection.fetch(connection.sql[name], which)
    items = tuple(outbox.load_delivery(*row) for row in found[:size])
    return Page(items=items, next_cursor=str(items[-1].number) if len(found) > size else None)


_AUDIT_CONDITIONS = {
    "actor": "actor = :actor",
    "action": "action = :action",
    "run_id": "run_id = :run_id",
    "since": "at >= :since",
    "until": "at < :until",
}


def audit_entries(connection: Connection, where: AuditFilter, cursor: str | None, limit: int) -> Page[StoredEntry]:
    (before,) = _position(cursor, (_MAX_INTEGER,))
    size = bounded(limit)
    given = {name: getattr(where, name) for name in _AUDIT_CONDITIONS}
    wanted = rows.values(**{name: value for name, value in given.items() if value is not None})
    conditions = "".join(f" AND {_AUDIT_CONDITIONS[name]}" for name in wanted)
    sql = connection.sql["audit_entries"].format(conditions=conditions)
    found = connection.fetch(sql, {**wanted, "before": before, "limit": size + 1})
    items = tuple(_audit_entry(*row) for row in found[:size])
    return Page(items=items, next_cursor=str(items[-1].number) if len(found) > size else None)


_AUDIT_COLUMNS = ("name", "via", "action", "run_id", "interaction_id", "object", "address")


def _audit_entry(number: int, at: int, *about: Any) -> StoredEntry:
    return StoredEntry(number=number, at=rows.moment(at), **dict(zip(_AUDIT_COLUMNS, about, strict=True)))


def count_stored_runs(connection: Connection) -> StoredRunCount:
    found: dict[str, int] = dict(connection.fetch(connection.sql["count_stored_runs"]))
    kinds = ("stored", "not_stored", "not_started", "running")
    return StoredRunCount(**{kind: found.get(kind, 0) for kind in kinds}, unfinished=sum(found.values()))


# Pages.


def _position(cursor: str | None, start: tuple[int, ...]) -> tuple[int, ...]:
    if cursor is None:
        return start
    try:
        position = tuple(int(part) for part in cursor.split("."))
    except ValueError:
        position = ()
    if len(position) != len(start) or any(abs(part) > _MAX_INTEGER for part in position):
        message = f"cursor {cursor!r} does not belong to this list; start again without a cursor"
        raise Invalid(RefusalCode.INPUT_INVALID, message)
    return position


def bounded(limit: int) -> int:
    return max(1, min(limit, _MAX_PAGE))
