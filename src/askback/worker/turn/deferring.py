"""Calls of the ask tool that an engine defers: it ends its turn without making the call, and makes it when it resumes.

Whether a session has such a call is noted beside it, in the home, so that it is saved, restored and copied with the session.
The engine can write there as well. A note that it forges only makes its next message the result of a call.
"""

from __future__ import annotations

from askback.core.runs import Run, TurnKind
from askback.engines.base import Engine
from askback.fs import beneath
from askback.worker.turn.asking import DeferredCall, fits_result
from askback.workspace.layout import Workspace

_MARK = ".askback-deferred"


def note_deferred(workspace: Workspace, *, deferred: bool) -> None:
    """Note at the end of a turn whether its call is deferred."""
    if deferred:
        workspace.write_home({_MARK: b""})
    else:
        beneath.remove(workspace.root, _path(workspace))


def deferred_call(run: Run, engine: Engine, workspace: Workspace, prompt: str) -> DeferredCall | None:
    """The call that the session has; its answer is the prompt of the turn, unless that must be a message.

    A turn that was restarted gets a message: perhaps the engine could not make the call.
    """
    if not engine.takes_ask_tool:
        return None
    if not beneath.has_file(workspace.root, _path(workspace)):
        # Perhaps something else is there, which nobody but the engine has put there.
        note_deferred(workspace, deferred=False)
        return None
    by_result = run.next_turn.kind is TurnKind.REPLY and run.restarts == 0 and fits_result(prompt)
    return DeferredCall(answer=prompt if by_result else None)


def _path(workspace: Workspace) -> str:
    return f"{workspace.home.name}/{_MARK}"
