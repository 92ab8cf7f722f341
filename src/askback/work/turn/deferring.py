"""Calls of the ask tool that an engine defers: it ends its turn without making the call, and makes it when it resumes.

Whether a session has such a call is noted beside it, in the home, so that it is saved, restored and copied with the session.
"""

from __future__ import annotations

from askback.core.runs import Run, TurnKind
from askback.files import beneath
from askback.process.workspace import Workspace
from askback.work.turn.asking import DeferredCall, fits_result

_MARK = ".askback-deferred"


def note_deferred(workspace: Workspace, *, deferred: bool) -> None:
    """Note at the end of a turn whether its call is deferred."""
    if deferred:
        workspace.write_home({_MARK: b""})
    elif (workspace.home / _MARK).exists():
        beneath.remove(workspace.root, f"{workspace.home.name}/{_MARK}")


def deferred_call(run: Run, workspace: Workspace, prompt: str) -> DeferredCall | None:
    """The call that the session has; its answer is the prompt of the turn, unless that must be a message.

    A turn that was restarted gets a message: perhaps the engine could not make the call.
    """
    if not (workspace.home / _MARK).exists():
        return None
    by_result = run.next_turn.kind is TurnKind.REPLY and run.restarts == 0 and fits_result(prompt)
    return DeferredCall(answer=prompt if by_result else None)
