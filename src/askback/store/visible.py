"""The part of a store that a caller may see: the runs with certain labels, and nothing else.

Everything that HTTP and the page do goes through a `Service` on one of these, if the caller's token is restricted. A run
without the labels is missing here, in the same words as one that does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

from askback.core.access import AuditEntry
from askback.core.errors import Conflict, Forbidden, RefusalCode
from askback.core.events import Event
from askback.core.interactions import InboxOrder, Interaction, Json
from askback.core.labels import Labels
from askback.core.lifecycle import Decision
from askback.core.queue import UNLIMITED, Shares
from askback.core.runs import ClosedQuestion, Run, RunRequest, RunState, UsageKey
from askback.core.webhooks import EVERY_DELIVERY, Delivery, DeliveryView, Webhook
from askback.store.base import Store
from askback.store.listeners import Changes, NewEvents
from askback.store.pages import (
    ANY_LABELS,
    PAGE_BYTES,
    EventPage,
    IdempotencyKey,
    InboxCount,
    InboxFilter,
    LabelSet,
    Page,
    RunFilter,
    RunStats,
    UsageSums,
)

_ANY = InboxFilter()


def visible(store: Store | VisibleStore, labels: Labels) -> VisibleStore:
    """The runs of the store that have these labels as well."""
    wanted = frozenset(labels.items())
    if isinstance(store, VisibleStore):
        return VisibleStore(store.whole, store.labels | wanted)
    return VisibleStore(store, wanted)


class VisibleStore:
    """The operations of `Store` that callers use, each of them only for runs with these labels."""

    def __init__(self, whole: Store, labels: LabelSet) -> None:
        self.whole = whole
        self.labels = labels

    def shows(self, run: Run) -> bool:
        return self.labels <= run.labels.items()

    async def create(
        self,
        decision: Decision,
        request: RunRequest,
        key: IdempotencyKey | None = None,
        webhooks: Sequence[Webhook] = (),
        max_open: int | None = None,
    ) -> Run:
        if not self.shows(decision.run):
            raise Forbidden(RefusalCode.SCOPE_MISSING, "this token may only create runs with its own labels")
        if key is not None:
            # Keys of other labels never meet this one, also if a token of the same name had them.
            key = replace(key, key=f"{json.dumps(sorted(self.labels))} {key.key}")
        try:
            return await self.whole.create(decision, request, key, webhooks, max_open)
        except Conflict as error:
            if error.code is RefusalCode.WORKDIR_IN_USE:
                raise Conflict(error.code, "another run works in this folder and is not over") from None
            raise

    async def apply(self, before: Run, decision: Decision, shares: Shares = UNLIMITED) -> Run:
        await self._check(before.id)
        return await self.whole.apply(before, decision, shares)

    async def get(self, run_id: str) -> Run:
        await self._check(run_id)
        return await self.whole.get(run_id)

    async def request(self, run_id: str) -> RunRequest:
        await self._check(run_id)
        return await self.whole.request(run_id)

    async def result(self, run_id: str) -> Json:
        await self._check(run_id)
        return await self.whole.result(run_id)

    async def list_runs(self, where: RunFilter, cursor: str | None = None, limit: int = 50) -> Page[Run]:
        return await self.whole.list_runs(replace(where, labels=where.labels | self.labels), cursor, limit)

    async def events(self, run_id: str, after: int = 0, limit: int = 1000, max_bytes: int = PAGE_BYTES) -> EventPage:
        await self._check(run_id)
        return await self.whole.events(run_id, after, limit, max_bytes)

    async def last_messages(self, run_id: str, limit: int) -> Sequence[Event]:
        await self._check(run_id)
        return await self.whole.last_messages(run_id, limit)

    async def interactions(self, run_id: str) -> Sequence[Interaction]:
        await self._check(run_id)
        return await self.whole.interactions(run_id)

    async def pending(
        self,
        cursor: str | None = None,
        limit: int = 50,
        where: InboxFilter = _ANY,
        order: InboxOrder = InboxOrder.OLDEST,
    ) -> Page[Run]:
        return await self.whole.pending(cursor, limit, replace(where, labels=where.labels | self.labels), order)

    async def inbox_count(self, where: InboxFilter = _ANY) -> InboxCount:
        return await self.whole.inbox_count(replace(where, labels=where.labels | self.labels))

    async def closed_questions(
        self, cursor: str | None = None, limit: int = 50, labels: LabelSet = ANY_LABELS
    ) -> Page[ClosedQuestion]:
        return await self.whole.closed_questions(cursor, limit, labels | self.labels)

    async def usage_by(self, by: UsageKey, first: date, last: date, labels: LabelSet = ANY_LABELS) -> UsageSums:
        return await self.whole.usage_by(by, first, last, labels | self.labels)

    async def run_stats(self, first: date, last: date, latest: int = 1000, labels: LabelSet = ANY_LABELS) -> RunStats:
        return await self.whole.run_stats(first, last, latest, labels | self.labels)

    async def count_by_state(self, where: RunFilter, most: int) -> Mapping[RunState, int]:
        return await self.whole.count_by_state(replace(where, labels=where.labels | self.labels), most)

    async def deliveries(
        self,
        run_id: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        labels: LabelSet = ANY_LABELS,
        view: DeliveryView = EVERY_DELIVERY,
    ) -> Page[Delivery]:
        if run_id is not None:
            await self._check(run_id)
        return await self.whole.deliveries(run_id, cursor, limit, labels | self.labels, view)

    async def forget(self, run_ids: Sequence[str], audit: AuditEntry | None = None) -> Sequence[str]:
        for run_id in run_ids:
            await self._check(run_id)
        return await self.whole.forget(run_ids, audit)

    def changes(self) -> Changes:
        """A run that another process has changed is looked up when it is needed, and is then checked."""
        return self.whole.changes(self.shows)

    def new_events(self, run_id: str) -> NewEvents:
        return self.whole.new_events(run_id, lambda: self._check(run_id))

    async def _check(self, run_id: str) -> None:
        await self.whole.check_labels(run_id, self.labels)


RunStore = Store | VisibleStore
"""The runs of all callers, or those that one caller may see."""
