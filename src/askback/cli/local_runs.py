"""The runs of the data folder, for commands that have no server. Has the methods of `AsyncClient` that they use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from askback.app import App, opened
from askback.cli.system_user import system_user
from askback.core.labels import NO_LABELS, Labels
from askback.core.runs import SHARED, RunState
from askback.core.runs import Run as StoredRun
from askback.settings.model import Settings
from askback.store.pages import AuditFilter, RunFilter
from askback.wire.access import AuditEntry
from askback.wire.artifacts import Artifact
from askback.wire.questions import Interaction
from askback.wire.runs import Event, PendingQuestion, Result, Run
from askback.wire.server import Worker


class LocalRuns:
    def __init__(self, app: App) -> None:
        self._app = app
        self._service = app.service

    async def get_run(self, run_id: str) -> Run:
        run = await self._service.store.get(run_id)
        return Run.of(run, input=await self._service.shown_input(run))

    async def list_runs(
        self,
        *,
        state: str | None = None,
        skill: str | None = None,
        engine: str | None = None,
        labels: Labels = NO_LABELS,
        page_size: int = 50,
    ) -> AsyncGenerator[Run]:
        """Runs, newest first."""
        wanted = RunFilter(state=None if state is None else RunState(state), skill=skill, engine=engine)
        store = self._service.restricted_to(labels).store
        cursor: str | None = None
        while True:
            page = await store.list_runs(wanted, cursor, page_size)
            for run in page.items:
                yield Run.of(run)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def interactions(self, run_id: str) -> list[Interaction]:
        return [Interaction.of(each) for each in await self._service.store.interactions(run_id)]

    async def artifacts(self, run_id: str) -> list[Artifact]:
        return [Artifact.of(each) for each in await self._service.artifacts(run_id)]

    async def result(self, run_id: str) -> Result:
        return Result.of(await self._service.result(run_id))

    async def inbox(self, *, labels: Labels = NO_LABELS) -> AsyncGenerator[PendingQuestion]:
        """The pending questions of all runs, oldest first."""
        service = self._service.restricted_to(labels)
        cursor: str | None = None
        while True:
            page = await service.inbox(cursor)
            for run in page.items:
                yield PendingQuestion.of(run)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        run_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncGenerator[AuditEntry]:
        """The audit log, newest first."""
        where, cursor = AuditFilter(actor=actor, action=action, run_id=run_id, since=since, until=until), None
        while True:
            page = await self._app.store.audit_entries(where, cursor)
            for each in page.items:
                yield AuditEntry.of(each)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def workers(self) -> Sequence[Worker]:
        """The programs that execute runs. This one does not count."""
        return await self._app.workers()

    async def cancel(self, run_id: str) -> Run:
        run = await self._service.cancel(run_id, by=system_user())
        # If the program that executed it has died, nobody else ends what is left of its turn.
        return Run.of(await self._app.recovery.restart(run))

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
        return None if await self._service.owned_elsewhere(run) else _continue(run)


def _continue(run: StoredRun) -> str:
    return f"no program executes this run; continue it with: askback run --continue {run.id}"


@asynccontextmanager
async def local_runs(settings: Settings) -> AsyncIterator[LocalRuns]:
    async with opened(settings, read_only=True) as app:
        yield LocalRuns(app)
