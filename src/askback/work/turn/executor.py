"""Who carries a run on: a new process for every turn, or one process that stays for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from askback.core.runs import Run
from askback.work.run_control import RunControl
from askback.work.turn.execute import TurnSignal, execute
from askback.work.turn.prepare import TurnContext
from askback.work.turn.resident import residing
from askback.work.worker import Carrier


@asynccontextmanager
async def carrying(bench: TurnContext, run: Run, stop: RunControl) -> AsyncIterator[Carrier]:
    """The one that suits the run's profile."""
    if run.sticky:
        async with residing(bench, run, stop) as residence:
            yield residence
    else:
        yield TurnByTurn(bench=bench, stop=stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnByTurn:
    bench: TurnContext
    stop: RunControl

    async def turn(self, run: Run) -> TurnSignal:
        return await execute(self.bench, run, self.stop)

    async def hold(self, run: Run) -> None:
        raise AssertionError(f"run {run.id} waits without a process")
