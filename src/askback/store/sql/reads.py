"""The reads of the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from askback.core.errors import Invalid, NotFound, RefusalCode
from askback.core.interactions import InboxOrder, Interaction, Json
from askback.core.queue import UNLIMITED, Shares
from askback.core.runs import ClosedQuestion, Run, RunRequest, RunState
from askback.core.webhooks import EVERY_DELIVERY, DeliveryView
from askback.store.audit_log import AuditFilter, AuditPage
from askback.store.base import (
    ANY_LABELS,
    PAGE_BYTES,
    ClosedPage,
    DeliveryPage,
    EventPage,
    InboxCount,
    InboxFilter,
    LabelSet,
    QueuedRuns,
    RunFilter,
    RunPage,
)
from askback.store.sql import audit, outbox, rows
from askback.store.sql.connection import Connection, StatementSource
from askback.store.sql.labels import label_values, labelled
from askback.store.sql.search import words_of
from askback.text.json_text import clean

_MAX_INTEGER = 2**63 - 1
_MAX_PAGE = 10_000


def get(connection: Connection, run_id: str) -> Run:
    return rows.load_run(_one(connection, "get", run_id)[0])


def existing(connection: Connection, run_ids: Collection[str]) -> frozenset[str]:
    which = {"ids": json.dumps([clean(run_id) for run_id in run_ids])}
    return frozenset(run_id for (run_id,) in connection.fetch(connection.statements("reads")["existing"], which))


def check_labels(connection: Connection, run_id: str, labels: LabelSet) -> None:
    """The same steps and the same refusal for a run with other labels as for one that does not exist."""
    which = label_values(labels) | {"id": clean(run_id)}
    if not connection.fetch(connection.statements("reads")["check_labels"], which):
        raise _missing(run_id)


def request(connection: Connection, run_id: str) -> RunRequest:
    return rows.load_request(*_one(connection, "request", run_id))


def result(connection: Connection, run_id: str) -> Json:
    data = _one(connection, "result", run_id)[0]
    return None if data is None else rows.load(data)


def list_runs(connection: Connection, where: RunFilter, cursor: str | None = None, limit: int = 50) -> RunPage:
    sql, values = filtered(connection, where)
    (before,) = _position(cursor, (_MAX_INTEGER,))
    size = _bounded(limit)
    found, more = connection.fetch_page(
        sql, {"before": before, "limit": size + 1, **values}, size=size, max_bytes=PAGE_BYTES
    )
    return _page([(str(number), doc) for number, doc in found], more)


def filtered(source: StatementSource, where: RunFilter) -> tuple[str, Mapping[str, str | None]]:
    """The SQL of a list and its values."""
    if where.labels:
        return labelled(source, where, "reads", by_state="list_runs", by_label="list_labelled")
    terms, values = conditions(where)
    return source.statements("reads")["list_runs"].format(filters=terms), values


def conditions(where: RunFilter) -> tuple[str, dict[str, str]]:
    """The conditions of a filter as SQL, and their values.

    For a state combined with other filters, finished runs have their own indices. Unfinished runs are few, so the index
    on the state is enough; the unary plus keeps SQLite from choosing another one.
    """
    state = where.state
    more = {"skill": where.skill, "engine": where.engine, "creator": where.creator}
    combined = state is not None and any(more.values())
    over = combined and state is not None and state.final
    wanted = {"ended" if over else "state": state, **more}
    values = {column: clean(value) for column, value in wanted.items() if value is not None}
    plus = "+" if combined and not over else ""
    terms = [f" AND {plus if column in more else ''}{column} = :{column}" for column in values]
    return "".join(terms), values


_INBOX = {
    InboxOrder.OLDEST: ("pending", {"asked_at": -_MAX_INTEGER, "number": 0}),
    InboxOrder.DEADLINE: ("pending_by_deadline", {"due": -_MAX_INTEGER, "asked_at": -_MAX_INTEGER, "number": 0}),
}
"""The statement for each order, and its first position."""
_ANY = InboxFilter()


def pending(
    connection: Connection,
    cursor: str | None = None,
    limit: int = 50,
    where: InboxFilter = _ANY,
    order: InboxOrder = InboxOrder.OLDEST,
) -> RunPage:
    name, start = _INBOX[order]
    after = dict(zip(start, _position(cursor, tuple(start.values())), strict=True))
    size = _bounded(limit)
    wanted = {"skill": _clean(where.skill), "engine": _clean(where.engine), "words": words_of(where.words)}
    wanted |= label_values(where.labels)
    found, more = connection.fetch_page(
        connection.statements("reads")[name],
        {**after, **wanted, "limit": size + 1},
        size=size,
        max_bytes=PAGE_BYTES,
    )
    return _page([(".".join(map(str, position)), doc) for *position, doc in found], more)


def inbox_count(connection: Connection, where: InboxFilter = _ANY) -> InboxCount:
    which = label_values(where.labels) | {"words": words_of(where.words)}
    found = connection.fetch(connection.statements("reads")["inbox_count"], which)
    skills, engines, total = Counter[str](), Counter[str](), 0
    for skill, engine, count, _ in found:
        of_skill, by_engine = where.skill in (None, skill), where.engine in (None, engine)
        skills[skill] += count if by_engine else 0
        engines[engine] += count if of_skill else 0
        total += count if of_skill and by_engine else 0
    newest = max((asked_at for *_, asked_at in found), default=None)
    return InboxCount(
        total=total,
        newest_at=None if newest is None else rows.moment(newest),
        skills=tuple(sorted((+skills).items())),
        engines=tuple(sorted((+engines).items())),
    )


def closed_questions(
    connection: Connection, cursor: str | None = None, limit: int = 50, labels: LabelSet = ANY_LABELS
) -> ClosedPage:
    answered_at, number = _position(cursor, (_MAX_INTEGER, _MAX_INTEGER))
    size = _bounded(limit)
    before = {"answered_at": answered_at, "number": number, "limit": size + 1, **label_values(labels)}
    name = "closed_labelled" if labels else "closed_questions"
    found, more = connection.fetch_page(connection.statements("reads")[name], before, size=size, max_bytes=PAGE_BYTES)
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
    return ClosedPage(items=items, next_cursor=f"{found[-1][0]}.{found[-1][1]}" if more else None)


def events(
    connection: Connection, run_id: str, after: int = 0, limit: int = 1000, max_bytes: int = PAGE_BYTES
) -> EventPage:
    number = _one(connection, "number", run_id)[0]
    size = _bounded(limit)
    span = (number, max(0, min(after, _MAX_INTEGER)), size + 1)
    found, more = connection.fetch_page(connection.statements("reads")["events"], span, size=size, max_bytes=max_bytes)
    return rows.event_page(run_id, found, more=more)


def interactions(connection: Connection, run_id: str) -> Sequence[Interaction]:
    number = _one(connection, "number", run_id)[0]
    found = connection.fetch(connection.statements("reads")["interactions"], (number,))
    return tuple(rows.load_interaction(doc) for (doc,) in found)


def queued(
    connection: Connection,
    owners: Collection[str],
    *,
    without_engines: Collection[str],
    limit: int,
    shares: Shares = UNLIMITED,
) -> QueuedRuns:
    which = {"owners": _set(owners), "without_engines": _set(without_engines), "limit": _bounded(limit)}
    found = connection.fetch(connection.statements("reads")["queued"], which | share_values(shares))
    allowed = QueuedRuns(rows.load_run(doc) for is_allowed, doc in found if is_allowed)
    allowed.held_back = len(allowed) < len(found)
    return allowed


def share_values(shares: Shares) -> dict[str, object]:
    named = {clean(token): limit for token, limit in shares.named.items()}
    return {"usual": shares.usual, "named": json.dumps(named)}


def held_by_token(connection: Connection) -> Mapping[str, int]:
    return dict(connection.fetch(connection.statements("reads")["held_by_token"]))


def longest_queued(connection: Connection, owners: Collection[str]) -> Run | None:
    found = _runs(connection.fetch(connection.statements("reads")["longest_queued"], {"owners": _set(owners)}))
    return found[0] if found else None


def held(connection: Connection, workers: Collection[str] | None = None) -> Sequence[Run]:
    sql = connection.statements("reads")
    if workers is None:
        return _runs(connection.fetch(sql["held"]))
    return _runs(connection.fetch(sql["held_by"], {"workers": _set(workers)}))


def workers(connection: Connection) -> Collection[str]:
    return frozenset(worker for (worker,) in connection.fetch(connection.statements("reads")["workers"]))


def overdue(connection: Connection, owners: Collection[str], at: datetime, limit: int) -> Sequence[Run]:
    which = {"owners": _set(owners), "at": rows.micros(at), "limit": _bounded(limit)}
    return _runs(connection.fetch(connection.statements("reads")["overdue"], which))


def next_deadline(connection: Connection, owners: Collection[str]) -> datetime | None:
    at = connection.value(connection.statements("reads")["next_deadline"], {"owners": _set(owners)})
    return None if at is None else rows.moment(at)


def expiring(
    connection: Connection, owners: Collection[str], at: datetime, before: timedelta, limit: int
) -> Sequence[Run]:
    which = {"owners": _set(owners), "at": rows.micros(at), "limit": _bounded(limit)}
    return _runs(connection.fetch(connection.statements("reads")["expiring"], which | {"before": rows.span(before)}))


def next_expiring(connection: Connection, owners: Collection[str], at: datetime, before: timedelta) -> datetime | None:
    which = {"owners": _set(owners), "at": rows.micros(at), "before": rows.span(before)}
    deadline = connection.value(connection.statements("reads")["next_expiring"], which)
    return None if deadline is None else rows.moment(deadline)


def owners(connection: Connection) -> Collection[str]:
    return frozenset(owner for (owner,) in connection.fetch(connection.statements("reads")["owners"]))


def owned_by(connection: Connection, owner: str) -> Sequence[Run]:
    return _runs(connection.fetch(connection.statements("reads")["owned_by"], (clean(owner),)))


def over(connection: Connection, cursor: str | None = None, limit: int = 50) -> RunPage:
    (after,) = _position(cursor, (0,))
    size = _bounded(limit)
    which = {"after": after, "limit": size + 1}
    found, more = connection.fetch_page(
        connection.statements("deletion")["over"], which, size=size, max_bytes=PAGE_BYTES
    )
    return _page([(str(number), doc) for number, doc in found], more)


def deliveries(
    connection: Connection,
    run_id: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
    labels: LabelSet = ANY_LABELS,
    view: DeliveryView = EVERY_DELIVERY,
) -> DeliveryPage:
    run = None if run_id is None else _one(connection, "number", run_id)[0]
    (before,) = _position(cursor, (_MAX_INTEGER,))
    size = _bounded(limit)
    found = outbox.page(connection, run, before, size + 1, labels, view)
    here = tuple(found[:size])
    return DeliveryPage(items=here, next_cursor=str(here[-1].number) if len(found) > size else None)


def audit_entries(connection: Connection, where: AuditFilter, cursor: str | None = None, limit: int = 50) -> AuditPage:
    (before,) = _position(cursor, (_MAX_INTEGER,))
    return audit.page(connection, where, before, _bounded(limit))


def count_runs(connection: Connection) -> int:
    return int(connection.value(connection.statements("reads")["count_runs"]))


def _one(connection: Connection, name: str, run_id: str) -> Sequence[Any]:
    for row in connection.fetch(connection.statements("reads")[name], (clean(run_id),)):
        return tuple(row)
    raise _missing(run_id)


def _missing(run_id: str) -> NotFound:
    return NotFound(RefusalCode.RUN_NOT_FOUND, f"there is no run {run_id!r}; `askback runs` lists all runs")


def _runs(found: Sequence[Any]) -> Sequence[Run]:
    return tuple(rows.load_run(doc) for (doc,) in found)


def _page(found: Sequence[tuple[str, str]], more: bool) -> RunPage:
    return RunPage(items=tuple(rows.load_run(doc) for _, doc in found), next_cursor=found[-1][0] if more else None)


def _position(cursor: str | None, start: tuple[int, ...]) -> tuple[int, ...]:
    if cursor is None:
        return start
    parts = cursor.split(".")
    try:
        position = tuple(int(part) for part in parts)
    except ValueError:
        position = ()
    if len(position) != len(start) or any(abs(part) > _MAX_INTEGER for part in position):
        message = f"cursor {cursor!r} does not belong to this list; start again without a cursor"
        raise Invalid(RefusalCode.INPUT_INVALID, message)
    return position


def _bounded(limit: int) -> int:
    return max(1, min(limit, _MAX_PAGE))


def _clean(text: str | None) -> str | None:
    return None if text is None else clean(text)


def _set(texts: Collection[str]) -> str:
    return json.dumps(sorted({clean(text) for text in texts}))
