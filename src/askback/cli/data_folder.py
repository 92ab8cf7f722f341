"""Commands on the data folder itself, without a server: its runs, and audited writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from askback.app import App, now, opened
from askback.app.storage import open_store, prepare_data_folder
from askback.cli.connection import system_user
from askback.core.access import Action, audit_entry
from askback.core.labels import NO_LABELS, Labels
from askback.core.runs import SHARED, RunState, UsageKey
from askback.settings.model import Settings
from askback.store.base import Store
from askback.store.pages import AuditFilter, RunFilter
from askback.wire.access import AuditEntry
from askback.wire.artifacts import Artifact
from askback.wire.questions import Interaction
from askback.wire.runs import Event, PendingQuestion, Result, Run
from askback.wire.server import UsageReport, Worker

T = TypeVar("T")


class LocalRuns:
    """The runs of the data folder, with those methods of `AsyncClient` that commands use."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._service = app.service

    async def get_run(self, run_id: str) -> Run:
        run = await self._service.store.get(run_id)
        return Run.of(run, input=await self._service.shown_input(run))

    async def list_runs(
        self, *, state: str | None = None, labels: Labels = NO_LABELS, page_size: int = 50, **where: Any
    ) -> AsyncGenerator[Run]:
        wanted = RunFilter(state=None if state is None else RunState(state), **where)
        store = self._service.restricted_to(labels).store
        async for run in _all_pages(lambda cursor: store.list_runs(wanted, cursor, page_size)):
            yield Run.of(run)

    async def interactions(self, run_id: str) -> list[Interaction]:
        return [Interaction.of(each) for each in await self._service.store.interactions(run_id)]

    async def artifacts(self, run_id: str) -> list[Artifact]:
        return [Artifact.of(each) for each in await self._service.artifacts(run_id)]

    async def result(self, run_id: str) -> Result:
        return Result.of(await self._service.result(run_id))

    async def inbox(self, *, labels: Labels = NO_LABELS) -> AsyncGenerator[PendingQuestion]:
        async for run in _all_pages(self._service.restricted_to(labels).inbox):
            yield PendingQuestion.of(run)

    async def audit(self, **where: Any) -> AsyncGenerator[AuditEntry]:
        async for each in _all_pages(lambda cursor: self._app.store.audit_entries(AuditFilter(**where), cursor)):
            yield AuditEntry.of(each)

    async def workers(self) -> Sequence[Worker]:
        """The programs that execute runs. This one does not count."""
        return await self._app.workers()

    async def cancel(self, run_id: str) -> Run:
        run = await self._service.cancel(run_id, by=system_user())
        # If the program that executed it has died, nobody else ends what is left of its turn.
        return Run.of(await self._app.recovery.restart(run))

    async def usage(self, by: str, *, days: int, labels: Labels) -> UsageReport:
        service = self._service.restricted_to(labels)
        return UsageReport.of(await service.usage(UsageKey(by), days), by=UsageKey(by))

    async def resume(self, run_id: str) -> Run:
        return Run.of(await self._service.resume(run_id, by=system_user()))

    async def delete_run(self, run_id: str) -> None:
        """Delete a run. Deletions that were interrupted are finished, too: no server may be there to do it."""
        await self._app.deletion.finish()
        await self._service.delete(run_id, by=system_user())

    async def follow(self, run_id: str) -> AsyncGenerator[Event]:
        """Every event, past and new ones, until the run is final."""
        async for event in self._service.follow(run_id):
            yield Event.of(event)

    async def left_alone(self, run_id: str) -> str | None:
        """How to continue a run that no program executes. None if one does, or if the run waits or is final."""
        run = await self._service.store.get(run_id)
        if run.state not in (RunState.QUEUED, RunState.RUNNING):
            return None
        if run.owner == SHARED:
            return "its server is not running; start it with: askback serve"
        if await self._service.owned_elsewhere(run):
            return None
        return f"no program executes this run; continue it with: askback run --continue {run.id}"


async def _all_pages(read: Callable[[str | None], Awaitable[Any]]) -> AsyncIterator[Any]:
    cursor: str | None = None
    while True:
        page = await read(cursor)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return


@asynccontextmanager
async def local_runs(settings: Settings) -> AsyncIterator[LocalRuns]:
    async with opened(settings, read_only=True) as app:
        yield LocalRuns(app)


def audited(
    settings: Settings,
    action: Action,
    write: Callable[[], T],
    what: Callable[[T], str],
    check: Callable[[Store], Awaitable[None]] | None = None,
) -> T:
    """Write, then add the entry; `what` names the written object. The log is opened first: without it, nothing is written.

    `check` may refuse the write before it begins.
    """

    async def main() -> T:
        prepare_data_folder(settings.data_dir, serving=False)
        store = await open_store(settings)
        try:
            if check is not None:
                await check(store)
            written = await asyncio.to_thread(write)
            await store.record(audit_entry(system_user(), action, now(), object=what(written)))
        finally:
            await store.close()
        return written

    return asyncio.run(main())
