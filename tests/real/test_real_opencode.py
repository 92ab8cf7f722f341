"""What only opencode has, with the real program: settings of every folder above, a title, and models by provider."""

from __future__ import annotations

import pytest
from double import ModelDouble, say
from suite import Stage, finish

from askback.core.errors import ErrorCode
from askback.core.runs import RunState

pytestmark = pytest.mark.parametrize("engine", ["opencode"], indirect=True)


def test_settings_above_the_workspace_are_not_taken_up_and_no_title_is_asked_for(
    stage: Stage, double: ModelDouble
) -> None:
    (stage.folder / "opencode.json").write_text("this is no configuration")
    double.play(say(finish()))
    run, data = stage.play()
    assert (run.state, run.error, data) == (RunState.SUCCEEDED, None, {"colour": "blue"})
    assert double.side_requests == ()


@pytest.mark.contract("E-5", "X-9")
def test_a_model_that_is_not_there_is_named_in_the_error(stage: Stage) -> None:
    run, _ = stage.play(options={"model": "--help"})
    assert run.state is RunState.FAILED
    assert run.error is not None
    assert run.error.code is ErrorCode.ENGINE_API_ERROR
    assert run.error.detail is not None
    assert "Model not found: --help" in run.error.detail
