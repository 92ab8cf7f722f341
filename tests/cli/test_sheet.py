"""A run on paper: nothing that a server says of it may move the cursor, wherever it says it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from askback.cli.terminal import live, render
from askback.client import Run, RunError, RunState, RunWarning
from askback.core.events import Event, EventType
from askback.core.interactions import Interaction
from askback.core.runs import Mode, Profile, ProfileKind
from askback.wire.questions import Interaction as WireInteraction

EVIL = "x\x1b]0;title\x07\x1b[31m\u202ey"
NOW = datetime.now(UTC)
QUESTION = Interaction(interaction_id=EVIL, prompt=EVIL, kind=EVIL, options=(EVIL,), attempt_number=1, asked_at=NOW)
RUN = Run(
    id=EVIL,
    state=RunState.FAILED,
    skill=EVIL,
    engine=EVIL,
    mode=Mode.AUTO,
    attempt_number=1,
    interactive_profile=Profile(kind=ProfileKind.RESUMABLE, reason=EVIL, session_timeout_sec=1),
    created_at=NOW,
    updated_at=NOW,
    skill_version=EVIL,
    warnings=(RunWarning(code=EVIL, message=EVIL),),
    error=RunError(code=EVIL, message=EVIL, cause=EVIL, detail=EVIL),
)


@pytest.mark.parametrize("run", [RUN, replace(RUN, pending_interaction=WireInteraction.of(QUESTION), error=None)])
def test_nothing_that_a_server_says_moves_the_cursor(run: Run) -> None:
    event = Event(seq=1, run_id=EVIL, type=EventType.RUN_WARNING, at=NOW, data={"code": EVIL, "message": EVIL})
    lines = [render.line(run), *render.page(run, [], []), *render.ending(run), *live.lines(event)]
    assert "x<U+202E>y" in "".join(lines)
    assert not {"\x1b", "\x07", "\u202e"} & set("".join(lines))
