"""The gate of one turn: decides on each call of a tool, before the engine makes it.

Whatever is not surely allowed is denied. A decision is stored before the engine gets it, and an approval is used up by that: a
call that was approved once starts at most once, however often the turn is repeated. A gate that the engine has not asked
before its model says something is dead, and ends the turn.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from askback.core.access import Action, audit_entry
from askback.core.actors import ASKBACK
from askback.core.approvals import MAX_INPUT_BYTES, approval_question
from askback.core.errors import Conflict, ErrorCode, RunError, RunWarning, Unavailable, WarningCode
from askback.core.interactions import Json, Question
from askback.core.permissions import Explained, PathUse, Ruling, ToolCall, ToolClass, evaluate, host_of, similar
from askback.core.runs import Mode, Run
from askback.core.signals import CallDecided
from askback.engines.base import Engine
from askback.engines.gates import HookAnswer, HookCall, denied
from askback.engines.launches import SERVER
from askback.fs.paths import open_below
from askback.process.ask_socket import Defer
from askback.process.ask_tool_program import TOOL
from askback.store.base import Store, move
from askback.store.pages import StaleWrite
from askback.text.diff import diff

log = logging.getLogger(__name__)

_MAX_DIFFED_BYTES = 200_000
_WAITS = (
    "This call was not made: it needs the approval of the user, who is asked now. End your turn without further calls of "
    "tools. The answer is the next message that you get."
)
_OTHER_WAITS = (
    "This call was not made: another call of this turn waits for the approval of the user. End your turn now."
)
_IN_SUBAGENT = (
    "This call needs the approval of the user, and a subagent cannot wait for it. Do it yourself, not in a subagent."
)
_NOBODY = "This call needs an approval, and nobody can be asked in this run. It was not made."
_USED_UP = (
    "The user has approved this call once, and it was started once. The turn was interrupted since, so its outcome is unknown. "
    "It is not made again: find out what it has done."
)
_NOT_NOW = "No turn is open in which a tool could be used."
_NOT_READ = "The gate cannot read this call. It was not made."
_TOO_LARGE = f"This call needs an approval, and it is too large to be shown: at most {MAX_INPUT_BYTES:,} bytes."


class Gate:
    def __init__(
        self,
        run: Run,
        engine: Engine,
        *,
        store: Store,
        clock: Callable[[], datetime],
        root: Path,
        parks: bool,
    ) -> None:
        """`root`: the folder that the engine works in. `parks`: a call can be made when the session is resumed."""
        self.failed = asyncio.Event()
        """Set when the engine uses tools without asking."""
        self.warnings: tuple[RunWarning, ...] = ()
        self.question: Question | None = None
        """About the call of this turn that needs an approval."""
        self.on_question: Callable[[Question], None] = lambda question: None
        self._run = run
        self._engine = engine
        self._store = store
        self._clock = clock
        self._root = os.path.realpath(root)
        self._parks = parks
        self._is_alive = False
        self._is_open = True
        self._parked = ""
        """The digest of the call that waits."""
        self._allowed: set[str] = set()
        self._allowed_unnamed = 0
        """Calls that were allowed and of which the engine has not said the id."""

    def close(self) -> None:
        """Allow nothing more: the turn is over."""
        self._is_open = False

    # What the engine prints.

    def model_spoke(self) -> None:
        if not self._is_alive:
            self.failed.set()

    def tool_ended(self, call_id: str, *, ok: bool) -> None:
        """A call that ended well must have been allowed."""
        if not ok or call_id in self._allowed:
            return
        self._allowed_unnamed -= 1
        if self._allowed_unnamed < 0:
            self.failed.set()

    @property
    def is_alive(self) -> bool:
        return self._is_alive and not self.failed.is_set()

    @property
    def error(self) -> RunError:
        what = "used a tool, or let the model speak, without asking the gate of the run's permissions"
        return RunError(
            code=ErrorCode.PERMISSION_GATE_FAILED, message=f"the engine '{self._engine.name}' {what}; it was ended"
        )

    # What the hook asks.

    async def answer(self, payload: Json, defer: Defer) -> dict[str, Json]:
        """What the hook prints, and how it exits. `defer` says whether a call of our own tool is to be deferred."""
        try:
            call = self._engine.read_hook(payload)
        except ValueError:
            return denied(_NOT_READ).message
        self._is_alive = True
        if call is None:
            return HookAnswer().message
        if not self._is_open or self.failed.is_set():
            return denied(_NOT_NOW).message
        try:
            if call.mcp == f"{SERVER}/{TOOL}":
                wait = self._parks and not self._parked and await defer(call.input)
                return (self._engine.park_call(_WAITS) if wait else self.allow(call.call_id)).message
            return (await self._decide(call)).message
        except (Conflict, StaleWrite, Unavailable, OSError) as problem:
            log.warning("a call of a tool is denied: %s", problem, extra={"run": self._run.id})
            return denied(_NOT_NOW).message

    def allow(self, call_id: str | None) -> HookAnswer:
        if call_id is None:
            self._allowed_unnamed += 1
        else:
            self._allowed.add(call_id)
        return self._engine.allow_call()

    async def _decide(self, hooked: HookCall) -> HookAnswer:
        call = await asyncio.to_thread(self._call, hooked)
        permissions = self._run.permissions
        assert permissions is not None
        explained = evaluate(permissions.policies, call)
        if explained.decision is Ruling.ASK and similar(call) in permissions.similar:
            explained = Explained(decision=Ruling.ALLOW, rule=None)
            why = "approved for this run"
        else:
            why = explained.reason
        if self._parked and explained.decision is not Ruling.DENY:
            # An engine may ask twice about one call.
            return self._engine.park_call(_WAITS) if call.digest == self._parked else denied(_OTHER_WAITS)
        match explained.decision:
            case Ruling.ALLOW:
                await self._record(call, Ruling.ALLOW, why)
                return self.allow(hooked.call_id)
            case Ruling.DENY:
                await self._record(call, Ruling.DENY, why)
                return denied(f"This call is not allowed, by {why}. It was not made.")
            case Ruling.ASK:
                return await self._ask(hooked, call, explained)

    async def _ask(self, hooked: HookCall, call: ToolCall, explained: Explained) -> HookAnswer:
        answered = None if self._run.permissions is None else self._run.permissions.answered
        if answered is not None and answered.digest == call.digest:
            if not answered.approved:
                await self._record(call, Ruling.DENY, "the answer of the user")
                return denied(answered.reason)
            try:
                await self._record(call, Ruling.ALLOW, "the approval of the user", uses_approval=True)
            except Conflict:
                await self._record(call, Ruling.DENY, "the approval is used up")
                return denied(_USED_UP)
            return self.allow(hooked.call_id)
        reason = ""
        if self._run.mode is Mode.AUTO:
            reason = _NOBODY
            message = f"a call of the tool {call.tool!r} needed an approval, and was denied"
            self._warn(message)
        elif hooked.is_subagent:
            reason = _IN_SUBAGENT
        elif len(str(call.input).encode(errors="replace")) > MAX_INPUT_BYTES:
            reason = _TOO_LARGE
        if reason:
            await self._record(call, Ruling.DENY, explained.reason)
            return denied(reason)
        changes = await asyncio.to_thread(self._diff, hooked, call)
        await self._record(call, Ruling.ASK, explained.reason)
        self._parked = call.digest
        self.question = approval_question(call, explained, diff=changes, shown_cwd=call.cwd)
        self.on_question(self.question)
        return self._engine.park_call(_WAITS)

    def _warn(self, message: str) -> None:
        warning = RunWarning(code=WarningCode.PERMISSION_NOT_ASKED, message=message)
        if warning not in self.warnings:
            self.warnings = (*self.warnings, warning)

    async def _record(self, call: ToolCall, decision: Ruling, why: str, *, uses_approval: bool = False) -> None:
        """Store a decision. Raises `Conflict` if the run is no longer ours, or its approval is used up."""
        at = self._clock()
        signal = CallDecided(
            epoch=self._run.epoch,
            tool=call.tool[:200],
            digest=call.digest,
            decision=decision,
            rule=why,
            at=at,
            uses_approval=uses_approval,
        )
        about = f"{decision}: {call.digest}"
        audit = audit_entry(ASKBACK, Action.PERMISSION_DECIDE, at, run_id=self._run.id, object=about)
        self._run = await move(self._store, self._run.id, signal, seen=self._run, audit=audit)

    # The call as the policies see it. In a thread: it looks at files.

    def _call(self, hooked: HookCall) -> ToolCall:
        does = hooked.does
        writes = does.kind is ToolClass.EDIT
        real = [None if path is None else os.path.realpath(Path(hooked.cwd) / path) for path in hooked.paths]
        uses = tuple(PathUse(path=path, writes=writes) for path in real)
        content = self._content(real[0]) if writes and real and real[0] is not None else None
        file_digest = None if content is None else hashlib.sha256(content).hexdigest()
        url = hooked.text(does.url)
        return ToolCall(
            tool=hooked.tool,
            kind=does.kind,
            input=hooked.input,
            cwd=os.path.realpath(hooked.cwd),
            root=self._root,
            command=hooked.text(does.command) or "" if does.kind is ToolClass.SHELL else None,
            paths=uses,
            host=None if url is None else host_of(url),
            mcp=hooked.mcp,
            file_digest=file_digest,
        )

    def _content(self, path: str) -> bytes | None:
        """A file in the folder of the engine; None if there is none. Of a large file, its beginning."""
        if not path.startswith(f"{self._root}/"):
            return None
        file = open_below(Path(self._root), path[len(self._root) + 1 :])
        if file is None:
            return None
        with file:
            return file.read(_MAX_DIFFED_BYTES + 1)

    def _diff(self, hooked: HookCall, call: ToolCall) -> str | None:
        """What a call that changes a file will change in it, if that is known."""
        does = hooked.does
        path = call.paths[0].path if call.paths else None
        new = hooked.text(does.content)
        old_part, new_part = (hooked.text(name) for name in does.replaced)
        if path is None or (new is None and (old_part is None or new_part is None)):
            return None
        content = self._content(path) or b""
        if len(content) > _MAX_DIFFED_BYTES or len(new or "") > _MAX_DIFFED_BYTES:
            return None
        before = content.decode(errors="replace")
        if new is None:
            new = before.replace(old_part or "", new_part or "", -1 if hooked.input.get("replace_all") else 1)
        name = os.path.relpath(path, self._root)
        found = diff(before, new)
        lines = (f"--- {name}", f"+++ {name}", *found.lines, *(["[… more lines are left out]"] if found.cut else []))
        return "\n".join(lines)
