"""What only codex has, with the real program: an answer held to the schema, and a key that it would not take by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from clis import KEY, MODEL, Aim
from double import ModelDouble, run_shell, say
from engines_under_test import EngineUnderTest
from suite import Stage, finish, question

from askback.core.runs import RunState
from support.data_folder import COLOUR

CLOSED = {**COLOUR, "additionalProperties": False}


pytestmark = pytest.mark.parametrize("engine", ["codex"], indirect=True)


def test_an_auto_run_is_held_to_a_schema_that_the_api_takes(stage: Stage, double: ModelDouble) -> None:
    double.play(say('{"colour": 7}'), say('{"colour": "red"}'))
    run, data = stage.play(mode="auto", output=CLOSED)
    assert (run.state, data, run.attempt_number) == (RunState.SUCCEEDED, {"colour": "red"}, 2)
    assert [request.asked.schema for request in double.requests] == [CLOSED, CLOSED]


def test_a_run_that_may_ask_is_held_to_no_schema(stage: Stage, double: ModelDouble) -> None:
    double.play(say(question()))

    async def main() -> None:
        async with stage.working() as app:
            await stage.ask(app, stage.skill(output=CLOSED))

    stage.run(main)
    assert double.requests[0].asked.schema is None


def test_a_key_of_the_settings_is_enough(
    engine: EngineUnderTest, double: ModelDouble, tmp_path: Path, probes: Path
) -> None:
    def aim(url: str) -> Aim:
        config = f'openai_base_url = "{url}/v1"\nmodel = "{MODEL}"\n'
        return Aim(env={"OPENAI_API_KEY": KEY}, files={".codex/config.toml": config})

    own = EngineUnderTest(name="codex", aim=aim, sessions=engine.sessions, ask_tool=engine.ask_tool)
    double.play(say(finish()))
    run, _ = Stage(tmp_path, own, double.url, probes / "codex.json").play()
    assert (run.state, run.error) == (RunState.SUCCEEDED, None)
    assert double.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_key_of_the_settings_is_enough_for_one_that_stays_and_stands_in_no_file(
    engine: EngineUnderTest, double: ModelDouble, tmp_path: Path, probes: Path
) -> None:
    def aim(url: str) -> Aim:
        provider = f'name = "d"\nbase_url = "{url}/v1"\nwire_api = "responses"\nrequires_openai_auth = true\n'
        config = f'model = "{MODEL}"\nmodel_provider = "d"\n[model_providers.d]\n{provider}'
        return Aim(env={"OPENAI_API_KEY": KEY}, files={".codex/config.toml": config})

    own = EngineUnderTest(name="codex", aim=aim, sessions=engine.sessions, ask_tool=engine.ask_tool)
    stage = Stage(tmp_path, own, double.url, probes / "codex.json")
    double.play(run_shell("true"), say(question()))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, stage.skill(), options={"interactive_profile": "sticky_process"})
            files = [path for path in stage.home(asked).rglob("*") if path.is_file()]
            assert files
            assert [path for path in files if KEY.encode() in path.read_bytes()] == []

    stage.run(main)
    assert double.requests[0].headers["authorization"] == f"Bearer {KEY}"
