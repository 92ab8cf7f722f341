"""Every preset with its real program: what `proven` in it says, and how its failures are reported."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from acp_agents import AGENTS
from clis import NotInstalled
from double import ModelDouble, always, fail, hang, run_shell, say
from suite import Stage, finish, heard, question, reply_in

from askback.core.errors import ErrorCode
from askback.core.runs import ProfileKind, RunState
from askback.engines import registry
from askback.engines.acp import AcpEngine
from askback.process.tree import Tree
from support.data_folder import over

FAST = "grok"
EVERY = [pytest.param(name, marks=pytest.mark.long) for name in AGENTS]
IN_MAKE_TEST = [pytest.param(name, marks=() if name == FAST else pytest.mark.long) for name in AGENTS]
"""One program for the one test that shows most."""


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path, double: ModelDouble, probes: Path) -> Stage:
    agent = AGENTS[request.param]
    try:
        agent.find()
    except NotInstalled as missing:
        pytest.skip(str(missing))
    return Stage(tmp_path, agent, double.url, probes / f"acp-{agent.name}.json")


@pytest.mark.contract("K-1", "K-2", "K-3", "H-6", "H-11")
@pytest.mark.parametrize("stage", IN_MAKE_TEST, indirect=True)
def test_the_model_sees_the_whole_conversation_once_after_two_new_processes(stage: Stage, double: ModelDouble) -> None:
    skill, rest = (
        stage.skill(),
        'What remains is the shade. {"ask_user": {"interaction_id": "shade", "prompt": "Dark?"}}',
    )
    double.play(say(question()), say(rest), say(finish("green")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill)
            assert asked.profile.kind is ProfileKind.RESUMABLE
            assert Tree(mark=asked.id).members() == set()
        async with stage.working() as app:
            await app.service.reply(asked.id, "green, please")
            again = await stage.ask_again(app, asked.id)
            assert (again.handle, again.attempt_number) == (asked.handle, 2)
        async with stage.working() as app:
            await app.service.reply(asked.id, "rather dark")
            run = await over(app, asked.id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            assert run.handle == asked.handle
            assert (await app.service.result(run.id)).data == {"colour": "green"}
            assert (run.usage is not None and run.usage.total_tokens > 0) == stage.engine.usage_is_counted
            (shown,) = (each for each in await app.service.engines.views() if each.name == stage.engine.name)
            engine = registry.get(stage.engine.name)
            assert isinstance(engine, AcpEngine)
            assert shown.version == engine.preset.proven["version"]
            assert shown.interactive_profile is not None
            assert shown.interactive_profile.offers == engine.preset.proven["how"]

    stage.run(main)
    last = "\n".join(double.requests[-1].user_texts)
    assert [last.count(text) for text in (reply_in("green, please"), reply_in("rather dark", "shade"))] == [1, 1]
    assert last.count('the skill "tested"') == 1
    assert [text.strip() for text in double.requests[-1].assistant_texts] == [question(), rest]


@pytest.mark.contract("K-2", "X-1")
@pytest.mark.parametrize("stage", EVERY, indirect=True)
def test_a_session_that_is_gone_is_never_replaced(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(question()), say(finish("red")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill)
        stage.lose_session(asked.id, *stage.engine.sessions)
        async with stage.working() as app:
            await app.service.reply(asked.id, "green")
            run = await over(app, asked.id)
            assert run.error is not None
            assert run.error.code is ErrorCode.SESSION_RESUME_FAILED

    stage.run(main)
    assert "green" not in heard(double.requests[-1])


@pytest.mark.contract("K-1", "X-9", "B-2")
@pytest.mark.parametrize("stage", EVERY, indirect=True)
def test_tools_run_and_a_turn_can_be_cut_off(stage: Stage, double: ModelDouble) -> None:
    skill, held = stage.skill(), hang()
    double.play(held)
    if stage.engine.name != "vibe":
        # Its tools have no shell that the double knows.
        double.play(run_shell("echo wet > artifacts/wall.txt", saying="I paint."), say(finish()))

    async def main() -> None:
        async with stage.working() as app:
            cut = await stage.submit(app, skill, mode="auto")
            assert await asyncio.to_thread(held.reached.wait, 120)
            await app.service.cancel(cut.id)
            assert (await over(app, cut.id)).state is RunState.CANCELED
            assert Tree(mark=cut.id).members() == set()
            if stage.engine.name == "vibe":
                return
            run = await over(app, (await stage.submit(app, skill, mode="auto")).id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            assert [each.path for each in (await app.service.result(run.id)).artifacts] == ["wall.txt"]

    stage.run(main)


REFUSED = {
    # Pi does not say why.
    "pi": ErrorCode.ENGINE_API_ERROR
}


@pytest.mark.contract("K-1", "X-9")
@pytest.mark.parametrize("stage", EVERY, indirect=True)
def test_a_refused_key_is_reported(stage: Stage, double: ModelDouble) -> None:
    double.play(always(fail(401)))
    run, _ = stage.play(mode="auto")
    assert run.error is not None
    assert run.error.code is REFUSED.get(stage.engine.name, ErrorCode.ENGINE_AUTH_REQUIRED)
