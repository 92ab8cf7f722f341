"""Runs that meet a limit of the model provider."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from askback.cli.terminal.render import failure
from askback.core.errors import ErrorCode, LimitKind
from askback.core.events import EventType
from askback.core.runs import Run, RunState
from askback.wire.runs import RunError
from support.data_folder import World, events_of, over, run_async, submit


def limited(message: str) -> dict[str, Any]:
    return {"misbehave": "rate_limit", "message": message}


@pytest.mark.contract("U-3")
def test_the_error_of_a_run_has_the_limit_and_its_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([limited("You've hit your usage limit. Please try again in 2h.")])
    ended: list[Run] = []

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill)).id)
            moved = [event for event in await events_of(app, run.id) if event.type is EventType.RUN_STATE]
            assert moved[-1].data["error"]["limit"]["kind"] == "usage_window"
            ended.append(run)

    run_async(main)
    (run,) = ended
    assert run.error is not None
    assert run.error.limit is not None
    assert (run.state, run.error.code) == (RunState.FAILED, ErrorCode.ENGINE_RATE_LIMITED)
    assert run.error.limit.kind is LimitKind.USAGE_WINDOW
    assert run.error.limit.resets_at is not None
    assert run.finished_at is not None
    assert timedelta(hours=1.9) < run.error.limit.resets_at - run.finished_at < timedelta(hours=2)
    shown = list(failure(run.engine, RunError.of(run.error)))
    assert shown[-1] == f"  limit: usage window, until {run.error.limit.resets_at:%Y-%m-%d %H:%M:%S} UTC"


@pytest.mark.contract("U-3")
def test_a_limit_without_a_time_has_none(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([limited("429: slow down; it will be reset at 2026-11-18 02:15:00")])

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill)).id)
            assert run.error is not None
            assert run.error.limit is not None
            assert (run.error.limit.kind, run.error.limit.resets_at) == (LimitKind.RATE, None)
            assert "it is not known when it ends" in list(failure(run.engine, RunError.of(run.error)))[-1]

    run_async(main)
