"""How the writes of requests get into the audit log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request

from askback.core.access import Action, audit_entry
from askback.core.actors import Actor
from askback.http.auth import actor_of
from askback.store.audit_log import AuditStore

_CHANGED = "audit_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    object: str | None
    run_id: str | None = None
    interaction_id: str | None = None


def changed(
    request: Request, what: str | None = None, *, run_id: str | None = None, interaction_id: str | None = None
) -> None:
    """For a handler that has written something outside the database: what the entry in the audit log is about.

    If the handler does not call it, nothing was written, and there is no entry.
    """
    request.scope[_CHANGED] = Changed(object=what, run_id=run_id, interaction_id=interaction_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTrail:
    """Adds entries for writes to files, right after them. The store adds those about runs itself."""

    store: AuditStore
    clock: Callable[[], datetime]

    async def note(self, by: Actor, action: Action, what: Changed) -> None:
        about = {"run_id": what.run_id, "interaction_id": what.interaction_id, "object": what.object}
        await self.store.record(audit_entry(by, action, self.clock(), **about))

    async def note_request(self, request: Request, action: Action | None) -> None:
        """Add the entry of a request whose handler has succeeded."""
        what: Changed | None = request.scope.pop(_CHANGED, None)
        if what is None:
            return
        if action is None or action.with_run:
            raise RuntimeError(f"{request.method} {request.url.path} does not declare what it writes")
        await self.note(actor_of(request), action, what)
