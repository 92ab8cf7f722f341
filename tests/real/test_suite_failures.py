"""Askback with every real engine whose model fails: each failure ends the run with its own code, and soon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from double import ModelDouble, Step, always, break_off, fail, nobody_listens, say
from engines_under_test import EngineUnderTest
from suite import Stage, question

from askback.core.errors import ErrorCode
from askback.core.runs import RunState
from askback.process.tree import Tree
from support.data_folder import over


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    step: Callable[[str | None], Step]
    """For what an error says; None: whatever the protocol has."""
    code: ErrorCode


FAILURES = {
    "unauthorized": Failure(step=lambda body: fail(401, body=body), code=ErrorCode.ENGINE_AUTH_REQUIRED),
    "too_many_requests": Failure(step=lambda body: fail(429, body=body), code=ErrorCode.ENGINE_RATE_LIMITED),
    "server_error": Failure(step=lambda body: fail(500, body=body), code=ErrorCode.ENGINE_API_ERROR),
    "broken_off": Failure(step=lambda _: break_off(), code=ErrorCode.ENGINE_API_ERROR),
}


@pytest.mark.contract("X-9", "T-6")
@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_model_ends_the_run_with_its_own_code(stage: Stage, double: ModelDouble, name: str) -> None:
    failure = FAILURES[name]
    double.play(always(failure.step(stage.engine.error_body)))
    run, data = stage.play()
    assert (run.state, data) == (RunState.FAILED, None)
    assert run.error is not None
    assert (run.error.code, run.error.cause) == (failure.code, None)
    assert run.error.detail
    assert Tree(mark=run.id).members() == set()


@pytest.mark.contract("X-9")
def test_where_nobody_listens_the_run_ends_as_unreachable(
    engine: EngineUnderTest, tmp_path: Path, probes: Path
) -> None:
    with nobody_listens() as url:
        stage = Stage(tmp_path, engine, url, probes / f"{engine.name}.json")
        run, _ = stage.play()
        stage.keep_probes()
    assert run.state is RunState.FAILED
    assert run.error is not None
    assert (run.error.code, run.error.cause) == (ErrorCode.ENGINE_UNREACHABLE, None)
    assert Tree(mark=run.id).members() == set()


@pytest.mark.contract("X-9")
def test_a_resumed_turn_that_fails_in_its_session_keeps_the_finer_code(stage: Stage, double: ModelDouble) -> None:
    double.play(say(question()), always(fail(500, body=stage.engine.error_body)))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, stage.skill())
            await app.service.reply(asked.id, "green")
            run = await over(app, asked.id)
            assert run.error is not None
            assert (run.error.code, run.error.cause) == (ErrorCode.ENGINE_API_ERROR, None)

    stage.run(main)
