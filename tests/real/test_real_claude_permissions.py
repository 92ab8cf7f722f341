"""Permissions with the real Claude: a call that waits for a person is parked in the session, and made when it is approved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from double import ModelDouble, Request, Step, always, call_tool, hang, say
from double.script import CallTool
from suite import Server, Stage, finish, heard

from askback.app import App
from askback.core.errors import ErrorCode
from askback.core.runs import Run, RunState
from askback.process import tree
from support.data_folder import over, until

pytestmark = pytest.mark.parametrize("engine", ["claude"], indirect=True)

ASK = {"rules": [{"tool": "shell", "match": {"command": "touch"}, "decision": "ask"}], "default": "allow"}
DENY = {"rules": [{"tool": "shell", "match": {"command": "touch"}, "decision": "deny"}], "default": "allow"}


def touch(name: str = "made") -> Step:
    """A call that says by the file system how often it was made."""
    command = f"touch {name} && echo once >> {name}.log"
    return call_tool("Bash", {"command": command, "description": "make a file"})


def times(stage: Stage, run: Run, name: str = "made") -> int:
    log = stage.data_dir / "runs" / run.id / "work" / f"{name}.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


async def ask(app: App, stage: Stage, permissions: Any = ASK, **rest: Any) -> Run:
    run = await stage.ask(app, stage.skill(), permissions=permissions, **rest)
    assert run.pending_interaction is not None
    assert run.pending_interaction.kind == "approval"
    assert not tree.Tree(mark=run.id).members()
    return run


async def succeeded(app: App, run: Run) -> Run:
    ended = await over(app, run.id)
    assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)
    return ended


@pytest.mark.contract("G-1")
@pytest.mark.parametrize(("policy", "expected"), [({"default": "allow"}, 1), (DENY, 0)])
def test_rules_allow_and_deny_calls(stage: Stage, double: ModelDouble, policy: Any, expected: int) -> None:
    double.play(touch(), say(finish("blue")))
    run, _ = stage.play(permissions=policy)
    assert (run.state, run.error, times(stage, run)) == (RunState.SUCCEEDED, None, expected)
    if not expected:
        assert "not allowed, by the rule 'shell touch'" in double.requests[-1].tool_results[-1]


@pytest.mark.contract("G-2", "G-3")
def test_an_approved_call_is_made_exactly_once_after_everything_was_killed(stage: Stage, double: ModelDouble) -> None:
    double.play(touch(), say(finish("blue")))
    servers = [Server(stage)]

    async def main() -> None:
        async with stage.client() as app:
            run = await stage.ask_again(app, (await stage.submit(app, stage.skill(), permissions=ASK)).id)
            assert times(stage, run) == 0
            servers[0].kill()
        async with stage.working(serving=True) as app:
            await app.service.reply(run.id, "approve")
            await succeeded(app, run)
            assert times(stage, run) == 1

    try:
        stage.run(main)
    finally:
        servers[0].kill()
    # The model has asked once, and sees the genuine result of that call.
    _, second = double.requests
    assert len(second.tool_results) == 1
    assert "approv" not in heard(second)


@pytest.mark.contract("G-3")
def test_a_denied_call_is_never_made_and_the_model_gets_the_reason(stage: Stage, double: ModelDouble) -> None:
    double.play(touch(), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            run = await ask(app, stage)
            await app.service.reply(run.id, "not in this folder")
            await succeeded(app, run)
            assert times(stage, run) == 0

    stage.run(main)
    assert "not in this folder" in double.requests[-1].tool_results[-1]


def beside(*calls: CallTool) -> Step:
    return replace(calls[0], beside=calls[1:])


def shell(command: str) -> CallTool:
    return CallTool(name="Bash", arguments={"command": command, "description": "x"})


@pytest.mark.contract("G-6")
@pytest.mark.parametrize("gated_first", [True, False])
def test_calls_beside_one_that_waits(stage: Stage, double: ModelDouble, gated_first: bool) -> None:
    gated, plain = shell("touch made && echo once >> made.log"), shell("echo once >> other.log")
    double.play(beside(*((gated, plain) if gated_first else (plain, gated))), always(say(finish("blue"))))

    async def main() -> None:
        async with stage.working() as app:
            run = await ask(app, stage)
            before = times(stage, run, "other")
            await app.service.reply(run.id, "approve")
            await succeeded(app, run)
            assert times(stage, run) == 1
            assert times(stage, run, "other") == before

    stage.run(main)
    assert len(double.requests[-1].tool_results) == 2


@pytest.mark.contract("G-6")
def test_of_two_calls_that_need_an_approval_one_is_asked_about(stage: Stage, double: ModelDouble) -> None:
    one, other = shell("touch made && echo once >> made.log"), shell("touch b && echo once >> b.log")
    double.play(beside(one, other), always(say(finish("blue"))))

    async def main() -> None:
        async with stage.working() as app:
            run = await ask(app, stage)
            await app.service.reply(run.id, "approve")
            await succeeded(app, run)
            assert times(stage, run) + times(stage, run, "b") == 1

    stage.run(main)
    assert len(double.requests[-1].tool_results) == 2


@pytest.mark.contract("G-3", "B-1")
def test_an_approval_is_used_up_if_the_turn_is_interrupted(stage: Stage, double: ModelDouble) -> None:
    pause = hang()
    double.play(touch(), pause, always(say(finish("blue"))))
    servers = [Server(stage)]

    async def main() -> None:
        async with stage.client() as app:
            run = await stage.ask_again(app, (await stage.submit(app, stage.skill(), permissions=ASK)).id)
            await app.service.reply(run.id, "approve")
            await until(pause.reached.is_set)
            assert times(stage, run) == 1
        servers[0].kill()
        pause.release()
        async with stage.working(serving=True) as app:
            await succeeded(app, run)
            assert times(stage, run) == 1

    try:
        stage.run(main)
    finally:
        pause.release()
        servers[0].kill()
    assert any("started once" in each for each in double.requests[-1].tool_results)


@pytest.mark.contract("G-4")
@pytest.mark.parametrize("broken", ["project", "local", "user"])
def test_hooks_that_are_switched_off_in_files_still_guard(stage: Stage, double: ModelDouble, broken: str) -> None:
    settings = json.dumps({"disableAllHooks": True, "permissions": {"allow": ["Bash"]}})
    name = "settings.local.json" if broken == "local" else "settings.json"
    if broken == "user":
        place = stage.folder / "engine-home" / ".claude" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(settings)
        double.play(touch(), say(finish("blue")))
    else:
        write = f"mkdir -p .claude && printf '%s' '{settings}' > .claude/{name}"
        double.play(call_tool("Bash", {"command": write, "description": "x"}), touch(), always(say(finish("blue"))))

    async def main() -> None:
        async with stage.working() as app:
            run = await ask(app, stage)
            assert times(stage, run) == 0

    stage.run(main)


@pytest.mark.contract("G-4")
def test_a_gate_that_is_gone_lets_no_call_run(stage: Stage, double: ModelDouble) -> None:
    pause = hang()

    def later(request: Request) -> Step:
        return touch()

    double.play(pause, later, always(say(finish("blue"))))

    async def main() -> None:
        async with stage.working() as app:
            run = await stage.submit(app, stage.skill(), permissions={"default": "allow"})
            await until(pause.reached.is_set)
            (stage.data_dir / "runs" / run.id / "tmp" / "ask.sock").unlink()
            pause.release()
            ended = await over(app, run.id)
            assert times(stage, ended) == 0

    try:
        stage.run(main)
    finally:
        pause.release()


@pytest.mark.contract("G-4")
def test_a_gate_that_never_answers_ends_the_turn(stage: Stage, double: ModelDouble, tmp_path: Path) -> None:
    """The setting `command` names a program that starts Claude without its settings, so that no hook is there."""
    wrapper = tmp_path / "claude-without-hooks"
    real = stage.engine.find()[0]
    wrapper.write_text(
        '#!/bin/bash\nreal=$1; shift; args=()\nfor each in "$@"; do case $each in --settings=*) ;; *) args+=("$each");; esac; done\n'
        'exec "$real" "${args[@]}"\n'
    )
    wrapper.chmod(0o755)
    stage.change_engine_setting(f'"{real}"', f'"{wrapper}", "{Path(real).resolve()}"')
    double.play(touch(), always(say(finish("blue"))))

    async def main() -> None:
        async with stage.working() as app:
            ended = await over(app, (await stage.submit(app, stage.skill(), permissions={"default": "allow"})).id)
            assert ended.error is not None
            assert ended.error.code is ErrorCode.PERMISSION_GATE_FAILED
            assert times(stage, ended) == 0

    stage.run(main)
