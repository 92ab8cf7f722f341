"""Gemini in a folder of the user: its settings come from the home, and nothing is written to the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from double import ModelDouble, say
from suite import Stage, finish, put, reply_in

from askback.core.runs import RunState
from support.data_folder import over
from support.repositories import repository

pytestmark = pytest.mark.parametrize("engine", ["gemini"], indirect=True)

QUESTION = {"interaction_id": "colour", "prompt": "Which colour?"}


@pytest.mark.contract("J-6", "H-8", "H-11")
def test_the_settings_are_in_force_where_gemini_trusts_no_system_settings(
    stage: Stage, double: ModelDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemini skips system settings below a folder that others can write to, and those that are not root's."""
    monkeypatch.setenv("ASKBACK_SANDBOX", "off")
    tmp_path.chmod(0o777)
    stage.add_engine_setting("ask_tool = true")
    repo, skill = repository(tmp_path / "repository"), stage.skill()
    double.play(put(QUESTION), say("I have asked."), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill, workdir=str(repo))
            # With its default settings, Gemini removes what it takes for a damaged session when it starts.
            damaged = stage.session_files(asked)[0].with_name("session-2020-01-01T00-00-deadbeef.jsonl")
            damaged.write_text("{")
            await app.service.reply(asked.id, "blue")
            run = await over(app, asked.id)
            assert (run.state, run.error, run.handle) == (RunState.SUCCEEDED, None, asked.handle)
            assert damaged.exists()
        # What the user has configured is still there.
        settings = json.loads((stage.home(run) / ".gemini" / "settings.json").read_text())
        assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
        assert not (repo / ".gemini").exists()

    stage.run(main)
    assert reply_in("blue") in double.requests[-1].user_texts[-1]
