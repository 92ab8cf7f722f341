"""The effort of a run, with the real programs: what they offer, and what the model was asked."""

from __future__ import annotations

import pytest
from double import ModelDouble, say
from suite import Stage, finish

from askback.core.runs import RunState


@pytest.mark.parametrize("engine", ["codex"], indirect=True)
@pytest.mark.parametrize("profile", ["auto", "sticky_process"])
def test_codex_asks_the_model_for_that_effort(stage: Stage, double: ModelDouble, profile: str) -> None:
    double.play(say(finish()))
    run, _ = stage.play(options={"effort": "high", "interactive_profile": profile})
    assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
    assert double.requests[0].body["reasoning"]["effort"] == "high"


@pytest.mark.parametrize("engine", ["claude", "opencode"], indirect=True)
def test_others_take_the_option_and_answer(stage: Stage, double: ModelDouble) -> None:
    double.play(say(finish()))
    run, _ = stage.play(options={"effort": "high"})
    assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
