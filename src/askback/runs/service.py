"""The entry point for the command line, HTTP and the page: submit, reply, cancel, results, following.

Everything is validated here before it is stored. The worker executes the turns; the two meet only in the store.
"""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from askback.background.pools import Checkpoint
from askback.cluster.recovery import Recovery
from askback.core.access import Action, AuditEntry, audit_entry
from askback.core.actors import ASKBACK, Actor, Caller
from askback.core.changes import Changes, NoSummary
from askback.core.errors import (
    AlreadyClosed,
    AskbackError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RefusalCode,
    Unavailable,
)
from askback.core.events import Event, EventType
from askback.core.interactions import APPROVAL, InboxOrder, Interaction, InteractionOutcome, Json
from askback.core.labels import Labels
from askback.core.lifecycle import Refusal, Stay, decide
from askback.core.runs import SHARED, Run, RunOptions, RunState, UsageKey
from askback.core.signals import Adopted, CancelRequested, ParkEnded, Replied
from askback.process.locks import is_held
from askback.process.tree import Tree
from askback.runs.continuation import Continuable
from askback.runs.deletion import Deletion
from askback.runs.following import Inbox, InboxPage, RunChanges, RunVersions, read_inbox
from askback.runs.run_events import HISTORY_READS, RunEvents
from askback.runs.submission import Submission, Submissions, check_answer
from askback.skills.templates import masked
from askback.store.base import move
from askback.store.pages import InboxFilter, RunStats, StaleWrite, UsageSums
from askback.store.visible import VisibleStore, visible
from askback.text.diff import Diff, diff
from askback.workspace.artifacts import (
    MAX_LISTED,
    MAX_NAMES,
    PAGE_FILES,
    PAGE_NAMES,
    Artifact,
    ArtifactPage,
    Bundle,
    bounded,
    page_of,
)
from askback.workspace.run_objects import FilesElsewhere
from askback.workspace.turn_artifacts import TurnArtifacts, artifacts_of, has_artifacts_of
from askback.workspace.versions import ArtifactView, Version, with_turns
from askback.workspace.workdir_record import WorkdirRecord

_BACKGROUND_MESSAGES, _BACKGROUND_QUESTIONS, _BACKGROUND_FILES = 3, 20, 100
_MESSAGE_CHARACTERS = 8_000
_MAX_VIEWS = 256
"""Of restricted views. One that is dropped continues for those who have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run left behind when it ended."""

    run: Run
    data: Json
    artifacts: tuple[Artifact, ...]
    more_artifacts: bool = False
    """Whether there are more than one page of them."""
    changes: Changes | None = None
    """What it has changed in its workdir; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """What led to a pending question."""

    messages: tuple[str, ...] = ()
    interactions: tuple[Interaction, ...] = ()
    files: tuple[Artifact, ...] = ()


class QueueReasons(Protocol):
    def reason(self, engine: str, token: str | None) -> str:
        """Why a queued run of this engine has not started yet."""


class Service:
    """`store` is for reading runs, questions and events; every change goes through a method of this class."""

    def __init__(
        self, *, submissions: Submissions, recovery: Recovery, deletion: Deletion, queue: QueueReasons
    ) -> None:
        self.skills = submissions.library
        self.engines = submissions.engines
        self.pools = submissions.pools
        self.secrets = submissions.secrets
        self._workspaces = submissions.workspaces
        self._archives = submissions.archives
        self._owner = submissions.owner
        self._clock = submissions.clock
        self._new_id = submissions.new_id
        self._drop_warm = submissions.continuation.drop_warm
        self._recovery = recovery
        self._queue = queue
        self._history_reads = asyncio.Semaphore(HISTORY_READS)
        self._bind(submissions, deletion)

    def _bind(self, submissions: Submissions, deletion: Deletion) -> None:
        """Everything that reads runs, on one view of the store."""
        self.store = store = submissions.store
        self._submissions = submissions
        self._deletion = deletion
        self._run_events = RunEvents(store, self._history_reads)
        self._waiting = Inbox(store)
        self._run_changes = RunChanges(store)
        self._run_versions = RunVersions(store)
        self._views: OrderedDict[frozenset[tuple[str, str]], Service] = OrderedDict()

    def restricted_to(self, labels: Labels) -> Service:
        """The same service, in which only runs with these labels exist. Callers with the same labels share it."""
        if not labels:
            return self
        key = frozenset(labels.items())
        view = self._views.get(key)
        if view is None:
            view = copy.copy(self)
            store = visible(self.store, labels)
            view._bind(self._submissions.reading(store), replace(self._deletion, store=store))
            self._views[key] = view
        self._views.move_to_end(key)
        while len(self._views) > _MAX_VIEWS:
            self._views.popitem(last=False)
        return view

    async def submit(self, wanted: Submission) -> Run:
        """Validate everything that can be validated, then store a queued run."""
        return await self._submissions.submit(wanted)

    async def continuable(self, run: Run) -> Continuable:
        """What another run could continue of this one."""
        return await self._submissions.continuable(run)

    @property
    def workdirs(self) -> tuple[str, ...]:
        """The folders of this machine that the settings allow runs to work in. None for a restricted caller."""
        return () if isinstance(self.store, VisibleStore) else self._submissions.workdirs.allowed

    @property
    def usual_options(self) -> RunOptions:
        """The options of a run if neither it nor its skill says otherwise."""
        return self._submissions.usual_options

    # Answering and ending.

    async def reply(
        self, run_id: str, response: Json, interaction_id: str | None = None, *, by: Actor = ASKBACK
    ) -> Run:
        """Answer the pending question. The second of two answers is refused, with the name of the first, and changes
        nothing.
        """
        try:
            return await self._reply(run_id, response, interaction_id, by)
        except Conflict as refused:
            if refused.code is not RefusalCode.INTERACTION_NOT_PENDING:
                raise
            raise await self.already_closed(run_id, interaction_id) or refused from None

    async def already_closed(self, run_id: str, interaction_id: str | None = None) -> AlreadyClosed | None:
        """The refusal of an answer to this question, or to the run's last one, if it was closed; says by whom."""
        asked = await self.store.interactions(run_id)
        wanted = [each.closing for each in asked if interaction_id in (None, each.interaction_id)]
        if not wanted or wanted[-1].outcome is InteractionOutcome.PENDING:
            return None
        return AlreadyClosed(str(wanted[-1]), wanted[-1].answered_with)

    async def _reply(self, run_id: str, response: Json, interaction_id: str | None, by: Actor) -> Run:
        run = await self._lost_if_owner_died(await self.store.get(run_id))
        pending = run.pending_interaction
        if pending is None:
            raise Conflict(
                RefusalCode.INTERACTION_NOT_PENDING,
                f"run {run.id} has no pending question; its state is {run.state}",
            )
        wanted = interaction_id or pending.interaction_id
        if pending.kind == APPROVAL and isinstance(by, Caller) and not by.may_approve:
            message = "approving or denying a tool call needs a token with the scope 'approve'"
            raise Forbidden(RefusalCode.SCOPE_MISSING, message)
        if wanted == pending.interaction_id:
            await check_answer(self.pools, pending, response)
        owner = run.owner if await self.owned_elsewhere(run) else self._owner()
        at = self._clock()
        signal = Replied(interaction_id=wanted, response=response, owner=owner, by=by.plain, at=at)
        audit = audit_entry(by, Action.INTERACTION_REPLY, at, run_id=run_id, interaction_id=wanted)
        return await move(self.store, run_id, signal, seen=run, audit=audit)

    async def _lost_if_owner_died(self, run: Run) -> Run:
        """The run, or what it becomes if the program that holds its resident process has died."""
        if not (run.sticky and run.pending_interaction and run.worker) or await self._recovery.instances.alive(
            {run.worker}
        ):
            return run
        run = await self._recovery.restart(run)
        if run.pending_interaction is not None:
            raise Conflict(
                RefusalCode.INTERACTION_NOT_PENDING,
                f"the program that holds the process of run {run.id} has died; the run can no longer be answered",
            )
        return run

    async def reply_with_file(self, run_id: str, file: Path, interaction_id: str, *, by: Actor = ASKBACK) -> Run:
        """Answer with a file. It is copied to the run's inputs, and the engine gets its path."""
        run = await self.store.get(run_id)
        if run.pending_interaction is None or run.pending_interaction.interaction_id != interaction_id:
            message = f"run {run.id} does not ask {interaction_id[:80]!r} now; its state is {run.state}"
            not_asked = Conflict(RefusalCode.INTERACTION_NOT_PENDING, message)
            raise await self.already_closed(run_id, interaction_id) or not_asked
        workspace = self._workspaces.of(run_id)
        # Two answers may have files of the same name; neither may overwrite the other.
        key = f"answer-{run.attempt_number}-{self._new_id()}"
        try:
            path = await self.pools.files.run(workspace.stage_input, key, file)
            await self.pools.files.run(self._workspaces.sync, run_id)
            if run.workdir is not None:
                path = str(workspace.cwd / path)
            return await self.reply(run_id, f"The answer is the file {path}", interaction_id, by=by)
        except (AskbackError, OSError):
            await self.pools.files.run(workspace.drop_input, key, file.name, admitted=True)
            raise

    async def cancel(self, run_id: str, *, by: Actor = ASKBACK) -> Run:
        at = self._clock()
        audit = audit_entry(by, Action.RUN_CANCEL, at, run_id=run_id)
        run = await self._cancel(run_id, CancelRequested(by=by.plain, at=at), audit)
        if run.state.final and run.env_names:
            await self.pools.files.run(self._workspaces.of(run_id).close, admitted=True)
            if self._archives is not None:
                await self._archives.delete_pad(run)
        return run

    async def resume(self, run_id: str, *, by: Actor = ASKBACK) -> Run:
        """Execute a parked run now. Raises `Conflict` if it is not parked."""
        at = self._clock()
        audit = audit_entry(by, Action.RUN_RESUME, at, run_id=run_id)
        return await move(self.store, run_id, ParkEnded(at=at, by=by.plain), audit=audit)

    async def _cancel(self, run_id: str, signal: CancelRequested, audit: AuditEntry) -> Run:
        """A run that waits or is queued is over at once, so its warm process must have ended before."""
        while True:
            run = await self.store.get(run_id)
            if run.state in (RunState.WAITING_USER, RunState.QUEUED) and not run.sticky:
                await self._end_warm(run)
            decision = decide(run, signal)
            if isinstance(decision, Stay):
                return run
            if isinstance(decision, Refusal):
                raise Conflict(decision.code, decision.message)
            with suppress(StaleWrite):
                return await self.store.apply(run, replace(decision, audit=audit))

    async def _end_warm(self, run: Run) -> None:
        """End the warm process of a run without a worker, here or by another program."""

        async def waits() -> bool:
            return (await self.store.get(run.id)).version == run.version

        await self._drop_warm(run.id)
        lock = self._workspaces.of(run.id).lock_path
        if is_held(lock):
            await Tree(mark=run.id, lock=lock).end_idle(waits)

    async def delete(self, run_id: str, *, by: Actor = ASKBACK) -> None:
        """Delete a run that is over, with everything that belongs to it."""
        await self._deletion.delete(run_id, audit_entry(by, Action.RUN_DELETE, self._clock(), run_id=run_id))

    async def take_over(self, run_id: str) -> Run:
        """Execute the run in this program if its owner has died, also in the middle of a turn."""
        run = await self.store.get(run_id)
        if run.owner != self._owner() and await self._recovery.instances.alive({run.owner}):
            raise Conflict(
                RefusalCode.RUN_HELD,
                f"run {run.id} belongs to another askback that is running; answer it there, or with `askback reply {run.id}`",
            )
        signal = Adopted(owner=self._owner(), left_by=run.owner, at=self._clock())
        return await self._recovery.restart(await move(self.store, run_id, signal, seen=run))

    async def owned_elsewhere(self, run: Run) -> bool:
        """Whether another program executes the run: one that is running, or any server."""
        if run.owner in (self._owner(), SHARED):
            return run.owner != self._owner()
        return bool(await self._recovery.instances.alive({run.owner}))

    # Reading.

    async def inbox(
        self,
        cursor: str | None = None,
        limit: int = 50,
        where: InboxFilter = InboxFilter(),  # noqa: B008 a frozen value
        order: InboxOrder = InboxOrder.OLDEST,
    ) -> InboxPage:
        """Pending questions, with their total number."""
        return await read_inbox(self.store, cursor, limit, where, order)

    async def background(self, run_id: str) -> Background:
        """What led to the pending question: of its turn the last messages and the changed files, and the earlier answers."""
        run = await self.store.get(run_id)
        if (pending := run.pending_interaction) is None:
            return Background()
        events = await self.store.last_messages(run_id, _BACKGROUND_MESSAGES + 1)
        starts = [place for place, event in enumerate(events) if event.type is EventType.TURN_STARTED]
        said = events[starts[-1] + 1 if starts else 0 :][-_BACKGROUND_MESSAGES:]
        asked = await self.store.interactions(run_id)
        files: list[Artifact] = []
        with suppress(Unavailable):
            listed = (await self.artifact_page(run_id)).items
            files = [each for each in listed if each.turn == pending.attempt_number]
        closed = [each for each in asked if each.outcome is not InteractionOutcome.PENDING]
        return Background(
            messages=tuple(str(event.data.get("text", ""))[-_MESSAGE_CHARACTERS:] for event in said),
            interactions=tuple(closed[-_BACKGROUND_QUESTIONS:]),
            files=tuple(files[:_BACKGROUND_FILES]),
        )

    async def stats(self, days: int) -> RunStats:
        """The statistics of the last days, today included. Days are UTC days."""
        today = self._clock().astimezone(UTC).date()
        return await self.store.run_stats(today - timedelta(days=days - 1), today)

    async def usage(self, by: UsageKey, days: int) -> UsageSums:
        """What the turns of the last days have used, today included. Days are UTC days."""
        today = self._clock().astimezone(UTC).date()
        return await self.store.usage_by(by, today - timedelta(days=days - 1), today)

    async def shown_input(self, run: Run) -> dict[str, Json] | None:
        """The input of the run without secrets; None if it is large, or if it is unknown which parts are secret."""
        if run.secret_inputs is None:
            return None
        return masked((await self.store.request(run.id)).input, run.secret_inputs)

    async def result(self, run_id: str) -> Result:
        run = await self.store.get(run_id)
        if not run.state.final:
            raise Conflict(RefusalCode.RUN_NOT_FINAL, f"run {run.id} is {run.state}: it has no result yet")
        try:
            page = await self.artifact_page(run_id)
        except FilesElsewhere:
            # The data is here, and the list of artifacts says why it is not.
            page = ArtifactPage(items=(), end=None)
        data, changes = await self.store.result(run_id), await self.changes(run)
        more = page.end is not None
        return Result(run=run, data=data, artifacts=tuple(page.items), more_artifacts=more, changes=changes)

    async def changes(self, run: Run) -> Changes | None:
        """What the run has changed in its workdir at the end of its last turn; None if it has no workdir."""
        if run.workdir is None:
            return None
        record = WorkdirRecord(self._workspaces.of(run.id))
        return await self.pools.files.run(record.changes) or Changes(unavailable=NoSummary.NOT_STARTED)

    async def artifacts(self, run_id: str) -> Sequence[Artifact]:
        """All artifacts that are listed."""
        return (await self.artifact_page(run_id, 0, MAX_LISTED, MAX_NAMES)).items

    async def artifact_page(
        self, run_id: str, after: int = 0, limit: int = PAGE_FILES, max_names: int = PAGE_NAMES
    ) -> ArtifactPage:
        """The artifacts after the first `after`."""
        run = await self.store.get(run_id)
        turn = run.attempt_number if run.state is RunState.RUNNING else None

        def look(checkpoint: Checkpoint) -> tuple[ArtifactView, ArtifactPage]:
            view = self._artifacts_of(run)
            page = page_of(bounded(view.artifacts(checkpoint)), after, limit, max_names)
            return view, replace(page, items=with_turns(view.index(), page.items, turn))

        view, page = await self.pools.files.run_abandonable(look)
        if not page.items or (shown := await self._shown_names(run, view)) is None:
            return page
        # In a thread: there can be a million characters to search.
        with_name = msgspec.structs.replace
        named = await self.pools.files.run(lambda: [with_name(each, path=shown(each.path)) for each in page.items])
        return replace(page, items=named)

    async def _shown_names(self, run: Run, view: ArtifactView) -> Callable[[str], str] | None:
        """How the names of its files are shown; None: as they are.

        At the end of a turn, a file whose name contains a secret gets another name. Until then its name is masked.
        """
        if run.state.final or isinstance(view, TurnArtifacts):
            return None
        return (await self.secrets.redactor(self.store, run)).text

    async def versions(self, run_id: str, path: str) -> Sequence[Version]:
        """The versions of one artifact at the ends of turns, oldest first."""
        run = await self.store.get(run_id)
        return await self.pools.files.run(lambda: self._history(run, path)[1])

    async def diff(self, run_id: str, path: str, from_turn: int, to_turn: int | None) -> Diff | None:
        """What has changed between the ends of two turns; `to_turn` None: until now. None if a content is not stored."""
        run = await self.store.get(run_id)
        had = run.attempt_number
        turns = {"from": from_turn, "to": to_turn}
        if missing := [f"{name}: there is no turn {turn}" for name, turn in turns.items() if turn and turn > had]:
            raise Invalid(RefusalCode.INPUT_INVALID, f"the last turn of run {run_id} is {had}", missing)
        return await self.pools.files.run(self._diff, run, path, from_turn, to_turn)

    def _artifacts_of(self, run: Run) -> ArtifactView:
        """Call it in a thread. Raises `FilesElsewhere`."""
        workspace = self._workspaces.of(run.id)
        if run.ended_unstored and not has_artifacts_of(workspace):
            raise FilesElsewhere(run.id)
        return artifacts_of(workspace)

    def _open(self, run_id: str, path: str, view: ArtifactView) -> BinaryIO:
        opened = view.open(path)
        if opened is None:
            raise NotFound(RefusalCode.ARTIFACT_NOT_FOUND, f"run {run_id} has no such artifact")
        return opened

    def _history(self, run: Run, path: str) -> tuple[ArtifactView, Sequence[Version]]:
        view = self._artifacts_of(run)
        known = view.index().get(path, ())
        if not known:
            self._open(run.id, path, view).close()
        return view, known

    def _diff(self, run: Run, path: str, from_turn: int, to_turn: int | None) -> Diff | None:
        versions, known = self._history(run, path)

        def text_at(turn: int) -> str | None:
            return versions.text(next((each for each in reversed(known) if each.turn <= turn), None))

        before = text_at(from_turn)
        after = versions.text_now(path) if to_turn is None else text_at(to_turn)
        return None if before is None or after is None else diff(before, after)

    async def open_artifact(self, run_id: str, path: str) -> BinaryIO:
        run = await self.store.get(run_id)
        return await self.pools.files.run(lambda: self._open(run_id, path, self._artifacts_of(run)))

    async def bundle(self, run_id: str, max_bytes: int) -> AsyncGenerator[bytes]:
        """All artifacts as one zip file, produced piece by piece on demand."""
        run, pool = await self.store.get(run_id), self.pools.zipping

        def look(checkpoint: Checkpoint) -> tuple[ArtifactView, Bundle]:
            view = self._artifacts_of(run)
            return view, view.bundle(max_bytes, checkpoint)

        view, bundle = await pool.run_abandonable(look)
        return bundle.with_names(await self._shown_names(run, view)).pieces(pool)

    def queue_reason(self, run: Run) -> str | None:
        """Why a queued run does not run yet."""
        return self._queue.reason(run.engine, run.created_by) if run.in_queue else None

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """Every event of the run exactly once, past ones first; ends with the run."""
        async with aclosing(self._run_events.follow(run_id, after)) as following:
            async for events in following:
                for event in events:
                    yield event

    def follow_many(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event]]:
        """Like `follow`, in batches."""
        return self._run_events.follow(run_id, after)

    def follow_pending(self) -> AsyncGenerator[InboxPage]:
        """The oldest pending questions, again after every change of the inbox."""
        return self._waiting.follow()

    def follow_runs(self) -> AsyncGenerator[Sequence[Run]]:
        """Runs as they are created or change their state; see `RunChanges.follow`."""
        return self._run_changes.follow()

    async def changed(self, run_id: str, version: int | None) -> Run:
        """Wait until the run has another version than this one or is final; without one, until it asks its user."""

        def is_new(run: Run) -> bool:
            return run.state.final or (run.settled if version is None else run.version != version)

        return await self._run_versions.wait(run_id, is_new)

    async def settled(self, run_id: str, interaction_id: str) -> None:
        """Wait until the question is closed, however that happens."""
        await self.closed_at(run_id, interaction_id)

    async def closed_at(self, run_id: str, interaction_id: str) -> int:
        """Wait until the question is closed; return the number of the event that closed it."""
        async for event in self.follow(run_id):
            if event.type is EventType.INTERACTION_CLOSED and event.data["interaction_id"] == interaction_id:
                return event.seq
        raise Conflict(RefusalCode.RUN_FINAL, f"run {run_id} ended without closing question {interaction_id!r}")
