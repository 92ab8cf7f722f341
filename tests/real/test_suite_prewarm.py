"""Askback with every real engine that can be prewarmed: a run's first turn in a process that was there before the run."""

from __future__ import annotations

import pytest
from double import ModelDouble, say
from suite import WARM, Stage, can_be_warm, finish, heard, question, reply_in

from askback.app import App
from askback.core.events import EventType
from askback.core.runs import RunState
from askback.process import tree
from askback.worker.claimed_run import Parked
from support.data_folder import events_of, over, until, waiting


@pytest.fixture(autouse=True)
def prewarmed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_be_warm(stage.engine.name):
        pytest.skip(f"{stage.engine.name} is not prewarmed")
    monkeypatch.setenv(f"ASKBACK_ENGINES__{stage.engine.name.upper()}__PREWARM", "1")


async def ready(app: App) -> Parked:
    def found() -> list[Parked]:
        return [each for each in app.warm.prewarmed if not each.reserved and each.memory_bytes]

    await until(lambda: len(found()) == 1)
    return found()[0]


async def processes(app: App, run_id: str) -> list[str]:
    events = await events_of(app, run_id)
    return [each.data["process"] for each in events if each.type is EventType.TURN_STARTED and "process" in each.data]


@pytest.mark.contract("V-6")
def test_a_run_starts_in_a_process_that_was_ready_and_resumes_without_it(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(question()), say(question("Which size?", "size")), say(finish("green")))

    async def main() -> None:
        async with stage.working(WARM, serving=True) as app:
            first = await ready(app)
            assert not double.requests
            run = await waiting(app, (await stage.submit(app, skill)).id)
            assert run.id == first.run_id
            await until(lambda: app.warm.find(run.id) is not None)
            kept = app.warm.find(run.id)
            assert kept is not None
            assert kept.pid == first.pid
            second = await ready(app)
            assert second.run_id != run.id
            await app.service.reply(run.id, "green")
            await waiting(app, run.id)
            # The session that the process has left is complete.
            await app.warm.drop(run.id)
            assert tree.Tree(mark=run.id).members() == set()
            await app.service.reply(run.id, "large")
            run = await over(app, run.id)
            assert (run.state, run.error, run.warnings, run.restarts) == (RunState.SUCCEEDED, None, (), 0)
            assert await processes(app, run.id) == ["prewarmed", "warm", "new"]
        assert tree.Tree(mark=second.run_id).members() == set()
        assert [each.name for each in (stage.data_dir / "runs").iterdir()] == [run.id]

    stage.run(main)
    told = "\n".join(double.requests[-1].user_texts)
    assert 'the skill "tested"' in heard(double.requests[0])
    assert [told.count(text) for text in ('the skill "tested"', reply_in("green"), reply_in("large", "size"))] == [
        1
    ] * 3
