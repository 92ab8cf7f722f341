"""The operations of the tools, through the HTTP API: start a run, wait for it, answer, read its result."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from askback.client import AsyncClient, Conflict, Forbidden, NotFound, Refused
from askback.core.labels import MCP_CALL
from askback.core.runs import Mode, RunState
from askback.mcp.envelope import Envelope, RunSkill, envelope_of
from askback.wire.questions import Interaction
from askback.wire.runs import Result, Run

T = TypeVar("T")
Progress = Callable[[float, str], Awaitable[None]]
"""Reports the seconds so far, and what happens."""
BY_MCP = {"Askback-Via": "mcp"}
"""Names the channel of the calls for the audit log."""
PROGRESS_SEC = 10.0
MAX_LINKS = 1000
_REMEMBERED = timedelta(minutes=10)
"""How long after the end of a run the same call still finds it: a client may have given up a moment before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One caller of tools. A missing scope makes an envelope smaller, it does not hide the run that was started."""

    client: AsyncClient
    identity: str
    """The digest of the token: the calls of different tokens never meet."""
    urls: Remembered[str]
    """The links that were made for questions, so that every question gets one per caller."""
    forms: OpenForms
    _writes: set[asyncio.Task[Any]] = field(default_factory=set)

    async def submit(self, wanted: RunSkill) -> tuple[Run, bool]:
        """The run of this call, and whether the call had started it before."""
        if wanted.idempotency_key:
            return await self._create(wanted, wanted.idempotency_key, {}), False
        given = [self.identity, wanted.skill, wanted.engine, wanted.mode, wanted.input, wanted.parameter]
        digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:32]
        earlier = await self._earlier(digest)
        if earlier is not None and (
            earlier.finished_at is None or datetime.now(UTC) - earlier.finished_at < _REMEMBERED
        ):
            return earlier, True
        key = f"mcp-{digest}-{'' if earlier is None else earlier.id}"
        return await self._create(wanted, key, {MCP_CALL: digest}), False

    async def _create(self, wanted: RunSkill, key: str, labels: dict[str, str]) -> Run:
        return await self._write(
            self.client.create_run(
                wanted.skill,
                engine=wanted.engine or None,
                mode=wanted.mode or await self._usual_mode(wanted.skill),
                input=wanted.input,
                parameter=wanted.parameter,
                labels=labels or None,
                idempotency_key=key,
            )
        )

    async def _usual_mode(self, skill_id: str) -> str | None:
        """Interactive if the skill supports it: an MCP client has a user."""
        try:
            modes = (await self.client.skill(skill_id)).execution_modes
        except (Forbidden, NotFound):
            return None
        return Mode.INTERACTIVE if Mode.INTERACTIVE in modes else None

    async def _earlier(self, digest: str) -> Run | None:
        """The newest run of the same call. A token without `read` cannot look, and finds it by the key alone.

        Only a run of the same token: the label is readable, so another token could create a run with it.
        """
        try:
            async for run in self.client.list_runs(labels={MCP_CALL: digest}, mine=True, page_size=1):
                return run
        except Forbidden:
            pass
        return None

    async def reply(self, run_id: str, interaction_id: str, answer: Any) -> Run:
        return await self._write(self.client.reply(run_id, interaction_id, answer))

    async def cancel(self, run_id: str) -> Run:
        return await self._write(self.client.cancel(run_id))

    async def settled(self, run: Run, until: float, progress: Progress) -> Run:
        """The run when it asks or is over, or as it is at that moment of the monotonic clock."""
        began = time.monotonic()
        try:
            while not run.settled and (left := until - time.monotonic()) > 0:
                run = await self.client.get_run(run.id, wait_sec=min(left, PROGRESS_SEC))
                if not run.settled:
                    await progress(time.monotonic() - began, f"run {run.id} is {run.state}")
        except Forbidden:
            pass
        return run

    async def closed(self, run: Run, interaction_id: str, until: float, progress: Progress) -> Run:
        """The run when somebody has answered this question elsewhere, or as it is at that moment."""
        began, etag = time.monotonic(), None

        def asks() -> bool:
            asked = run.pending_interaction
            return run.state is RunState.WAITING_USER and asked is not None and asked.interaction_id == interaction_id

        while asks() and (left := until - time.monotonic()) > 0:
            found = await self.client.changed_run(run.id, etag, wait_sec=min(left, PROGRESS_SEC))
            if found is not None:
                run, etag = found
            else:
                await progress(time.monotonic() - began, f"run {run.id} waits for its user")
        return run

    async def envelope(self, run: Run, *, found: bool = False) -> Envelope:
        asked = run.pending_interaction if run.state is RunState.WAITING_USER else None
        url = None if asked is None else await self.answer_url(run.id, asked)
        may_read = await self._may_read(run)
        return envelope_of(run, await self._result(run), answer_url=url, found=found, may_read=may_read)

    async def _may_read(self, run: Run) -> bool:
        """Whether the token can wait for the run, or get its output. A question needs neither."""
        if run.state is RunState.WAITING_USER:
            return True
        try:
            await self.client.get_run(run.id)
        except Forbidden:
            return False
        except NotFound:
            pass
        return True

    async def _result(self, run: Run) -> Result | None:
        if not run.state.final:
            return None
        try:
            return await self.client.result(run.id)
        except (Forbidden, NotFound):
            return None

    def key_of(self, run_id: str, asked: Interaction) -> Question:
        """The key of what is remembered about this question, for this caller alone."""
        return self.identity, run_id, f"{asked.interaction_id} {asked.asked_at}"

    async def answer_url(self, run_id: str, asked: Interaction) -> str | None:
        """A page for this question alone. None if the token may not answer, or the question was just closed."""
        key = self.key_of(run_id, asked)
        if (known := self.urls.find(key)) is not None:
            return known
        try:
            link = await self._write(self.client.link(run_id))
        except (Forbidden, NotFound, Conflict):
            return None
        except Refused as error:
            if error.status >= 500:
                raise
            return None
        self.urls.put(key, link.url)
        return link.url

    async def _write(self, writing: Coroutine[Any, Any, T]) -> T:
        """Complete a write even if the call is canceled."""
        task = asyncio.ensure_future(writing)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)


MAX_FORMS_PER_CALLER = 32
Question = tuple[str, str, str]
"""The caller, the run and the question."""


class Remembered(Generic[T]):
    """One value for each question. The oldest are forgotten."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[Question, T] = OrderedDict()

    def find(self, question: Question) -> T | None:
        return self._known.get(question)

    def put(self, question: Question, value: T) -> None:
        self._known[question] = value
        while len(self._known) > self._limit:
            self._known.popitem(last=False)


class OpenForms:
    """Unanswered forms: one for each question, where a newer form replaces the older, and a limited number per caller."""

    def __init__(self, max_per_caller: int = MAX_FORMS_PER_CALLER) -> None:
        self._max_per_caller = max_per_caller
        self._open: dict[Question, asyncio.Task[Any]] = {}

    def add(self, question: Question, form: asyncio.Task[Any]) -> None:
        """Track a form until it is done. Cancels the form that it replaces, or the oldest form of a caller with too many."""
        others = [each for each in self._open if each[0] == question[0] and each != question]
        surplus = others[: max(0, len(others) + 1 - self._max_per_caller)]
        for each in (question, *surplus):
            if (replaced := self._open.pop(each, None)) is not None:
                replaced.cancel()
        self._open[question] = form

        def forget(done: asyncio.Task[Any]) -> None:
            if self._open.get(question) is done:
                del self._open[question]

        form.add_done_callback(forget)
