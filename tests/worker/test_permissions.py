"""Runs with permissions: each call of a tool is decided on before it is made, by rule or by a person, and runs at most once."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.actors import Caller, Channel
from askback.core.errors import Conflict, ErrorCode, Forbidden, Invalid, WarningCode
from askback.core.runs import Origin, Run, RunState
from askback.engines import registry
from askback.store.pages import AuditFilter
from support.data_folder import ASK, FINISH, World, over, run_async, submit, waiting

PUSH: dict[str, Any] = {"tool": {"name": "shell", "input": {"command": "git push"}, "append": "artifacts/pushed"}}
LIST: dict[str, Any] = {"tool": {"name": "shell", "input": {"command": "ls"}, "append": "artifacts/listed"}}
SAY = {"say": "I wait."}
ASK_PUSH = {"rules": [{"tool": "shell", "match": {"command": "git push"}, "decision": "ask"}], "default": "allow"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def made(world: World, run: Run, name: str = "pushed") -> int:
    """How often a call was made."""
    file = world.data_dir / "runs" / run.id / "work" / "artifacts" / name
    return len(file.read_text().splitlines()) if file.exists() else 0


def refusals(world: World, run: Run) -> list[str]:
    """What the model was told of calls that were not made, by the engine's own session."""
    (session,) = world.sessions(run.id)
    return [entry["output"] for entry in session if entry["type"] == "refused"]


async def decisions(app: App, run: Run) -> list[str]:
    events = await app.service.store.events(run.id)
    return [event.data["decision"] for event in events if event.type == "permission.decided"]


async def asked(app: App, skill: str, permissions: Any = ASK_PUSH, **rest: Any) -> Run:
    return await waiting(app, (await submit(app, skill, permissions=permissions, **rest)).id)


def kind_of(run: Run) -> str:
    assert run.pending_interaction is not None
    return run.pending_interaction.kind


@pytest.mark.contract("G-1", "G-9")
def test_rules_allow_and_deny_calls(world: World) -> None:
    policy = {
        "rules": [
            {"tool": "shell", "match": {"command": "git push"}, "decision": "deny"},
            {"tool": "shell", "decision": "allow"},
        ]
    }
    skill = world.skill([PUSH, LIST, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill, permissions=policy)).id)
            assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
            assert await decisions(app, run) == ["deny", "allow"]
            entries = await app.store.audit_entries(AuditFilter(), None, 50)
        assert (made(world, run), made(world, run, "listed")) == (0, 1)
        (why,) = refusals(world, run)
        assert "the rule 'shell git push' of the policy of the run" in why
        written = [each.object for each in entries.items if each.action == "permission.decide"]
        assert [each.partition(":")[0] for each in written if each] == ["allow", "deny"]

    run_async(main)


@pytest.mark.contract("G-2", "G-3", "W-1")
@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_an_approved_call_is_made_once_after_all_programs_have_ended(world: World, sandbox: str) -> None:
    skill = world.skill([PUSH, SAY], [PUSH, PUSH, {"finish": {"colour": "blue"}}])
    config = f'sandbox = "{sandbox}"'

    async def main() -> None:
        async with world.working(config) as app:
            run = await asked(app, skill)
            question = run.pending_interaction
            assert question is not None
            assert (question.kind, question.default) == ("approval", "deny")
            assert question.context["input"] == {"command": "git push"}
            assert "git push" in question.prompt
            assert made(world, run) == 0
        async with world.working(config) as app:
            await app.service.reply(run.id, "approve")
            run = await over(app, run.id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            assert await decisions(app, run) == ["ask", "allow", "deny"]
        assert made(world, run) == 1
        assert "started once" in refusals(world, run)[-1]
        assert '"command": "git push"' in world.prompts(run.id)[1]

    run_async(main)


@pytest.mark.contract("G-3")
def test_a_denied_call_is_never_made_and_the_model_gets_the_reason(world: World) -> None:
    skill = world.skill([PUSH, SAY], [PUSH, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill)
            await app.service.reply(run.id, "not to this branch")
            run = await over(app, run.id)
            assert run.state is RunState.SUCCEEDED
        assert made(world, run) == 0
        assert "not to this branch" in world.prompts(run.id)[1]
        assert refusals(world, run)[-1] == "not to this branch"

    run_async(main)


@pytest.mark.contract("G-3")
def test_such_calls_are_approved_for_the_rest_of_this_run_alone(world: World) -> None:
    other = {"tool": {**PUSH["tool"], "input": {"command": "git push --force"}}}
    skill = world.skill([PUSH, SAY], [PUSH, PUSH, other, SAY], [{"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill)
            await app.service.reply(run.id, "Approve such calls in this run")
            again = await waiting(app, run.id)
            assert made(world, run) == 2
            assert again.pending_interaction is not None
            assert again.pending_interaction.context["input"] == {"command": "git push --force"}
            fresh = await asked(app, skill)
            assert made(world, fresh) == 0

    run_async(main)


@pytest.mark.contract("G-3")
def test_a_call_that_differs_from_the_approved_one_is_asked_about_again(world: World) -> None:
    other = {"tool": {**PUSH["tool"], "input": {"command": "git push  "}}}
    skill = world.skill([PUSH, SAY], [other, SAY], [{"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill)
            await app.service.reply(run.id, "approve")
            again = await waiting(app, run.id)
            assert (kind_of(again), made(world, run)) == ("approval", 0)

    run_async(main)


@pytest.mark.contract("G-6")
def test_only_one_of_several_calls_is_asked_about(world: World) -> None:
    second = {"tool": {**PUSH["tool"], "input": {"command": "git push b"}}}
    skill = world.skill([PUSH, second, LIST, SAY], [PUSH, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill)
            assert run.pending_interaction is not None
            assert run.pending_interaction.context["input"] == {"command": "git push"}
            assert (made(world, run), made(world, run, "listed")) == (0, 0)
            assert len(refusals(world, run)) == 3
            assert len(await app.service.store.interactions(run.id)) == 1

    run_async(main)


@pytest.mark.contract("G-7")
def test_a_run_that_cannot_ask_denies_with_a_warning(world: World) -> None:
    skill = world.skill([PUSH, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill, mode="auto", permissions=ASK_PUSH)).id)
            assert run.state is RunState.SUCCEEDED
            assert [each.code for each in run.warnings] == [WarningCode.PERMISSION_NOT_ASKED]
        assert made(world, run) == 0

    run_async(main)


@pytest.mark.contract("G-7", "W-10")
def test_a_wait_that_time_decides_is_a_denial(world: World) -> None:
    skill = world.skill([PUSH, SAY], [PUSH, {"finish": {"colour": "blue"}}])
    options = {"session_timeout_sec": 0.5, "interactive_require_user_reply": False}

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, permissions=ASK_PUSH, options=options)
            run = await over(app, run.id)
            (question,) = await app.service.store.interactions(run.id)
            assert (question.outcome, question.response) == ("auto_decided", "deny")
        assert made(world, run) == 0

    run_async(main)


@pytest.mark.contract("G-4")
@pytest.mark.parametrize(
    "turn",
    [
        [{"misbehave": "no_gate"}, {"say": "I begin."}, {"wait_for": "never"}],
        [{"misbehave": "no_gate"}, {"tool": {**PUSH["tool"], "ungated": True}}, {"wait_for": "never"}],
        [{"tool": {**PUSH["tool"], "ungated": True}}, {"wait_for": "never"}],
        [{"misbehave": "no_gate"}, {"finish": {"colour": "blue"}}],
    ],
    ids=["the model speaks", "a first call", "a later call", "the turn ends"],
)
def test_a_turn_whose_engine_does_not_ask_is_ended(world: World, turn: list[dict[str, Any]]) -> None:
    skill = world.skill(turn)

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill, permissions=ASK_PUSH)).id)
            assert run.error is not None
            assert (run.state, run.error.code) == (RunState.FAILED, ErrorCode.PERMISSION_GATE_FAILED)

    run_async(main)


@pytest.mark.contract("G-4")
def test_a_gate_that_cannot_be_reached_lets_no_call_run(world: World) -> None:
    skill = world.skill(
        [{"say": "I begin."}, {"touch": "ready"}, {"wait_for": "gone"}, LIST, {"finish": {"colour": "blue"}}]
    )

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, permissions=ASK_PUSH)
            folder = world.data_dir / "runs" / run.id
            while not (folder / "work" / "ready").exists():
                await asyncio.sleep(0.01)
            (folder / "tmp" / "ask.sock").unlink()
            (folder / "work" / "gone").touch()
            run = await over(app, run.id)
        assert made(world, run, "listed") == 0
        assert "cannot be reached" in refusals(world, run)[0]

    run_async(main)


@pytest.mark.contract("G-4")
def test_permissions_are_refused_where_there_is_no_gate(world: World) -> None:
    skill = world.skill([FINISH])

    async def main() -> None:
        async with world.working() as app:
            with pytest.raises(Invalid, match="must be resumable"):
                await submit(app, skill, permissions="careful", options={"interactive_profile": "sticky_process"})
            with pytest.raises(Invalid) as refused:
                await submit(app, skill, permissions={"rules": [{"tool": "shell"}], "defalt": "deny"})
            assert len(refused.value.problems) == 2

    run_async(main)


@pytest.mark.contract("G-5")
def test_every_source_can_only_restrict(world: World) -> None:
    deny = {"rules": [{"tool": "shell", "match": {"command": "git push"}, "decision": "deny"}], "default": "allow"}
    runner = {"permissions": {"default": "allow"}, "execution_modes": ["interactive"]}
    skill = world.skill([PUSH, {"finish": {"colour": "blue"}}], runner=runner)

    async def main() -> None:
        async with world.working(
            'permissions = { rules = [{ tool = "shell", decision = "ask" }], default = "allow" }'
        ) as app:
            run = await asked(app, skill, {"default": "allow"})
            assert run.permissions is not None
            assert [each.source for each in run.permissions.policies] == ["settings", "run", "skill"]
            denied = await over(app, (await submit(app, skill, permissions=deny)).id)
            assert (denied.state, await decisions(app, denied)) == (RunState.SUCCEEDED, ["deny"])

    run_async(main)


@pytest.mark.contract("G-5")
def test_a_run_keeps_its_policy_when_the_settings_change(world: World) -> None:
    skill = world.skill([PUSH, SAY], [PUSH, PUSH, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working('permissions = { default = "ask" }') as app:
            run = await asked(app, skill, None)
        async with world.working() as app:
            await app.service.reply(run.id, "approve")
            run = await over(app, run.id)
            assert await decisions(app, run) == ["ask", "allow", "deny"]

    run_async(main)


@pytest.mark.contract("W-13", "G-3")
def test_a_second_answer_changes_nothing(world: World) -> None:
    skill = world.skill([PUSH, SAY], [PUSH, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill)
            await app.service.reply(run.id, "deny")
            with pytest.raises(Conflict):
                await app.service.reply(run.id, "approve", "question-1")
            run = await over(app, run.id)
        assert made(world, run) == 0

    run_async(main)


@pytest.mark.contract("G-2")
def test_a_caller_without_the_scope_cannot_approve(world: World) -> None:
    skill = world.skill([PUSH, SAY], [{"finish": {"colour": "blue"}}])
    by = Caller(name="anna", via=Channel.API, may_approve=False)

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill)
            for answer in ("approve", "deny"):
                with pytest.raises(Forbidden):
                    await app.service.reply(run.id, answer, by=by)

    run_async(main)


def test_an_engine_cannot_ask_for_an_approval_by_itself(world: World) -> None:
    forged = {"ask": {"interaction_id": "f", "prompt": "Approve?", "kind": "approval", "options": ["approve"]}}
    skill = world.skill([forged], [PUSH, SAY])

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill)
            assert kind_of(run) == "text"
            await app.service.reply(run.id, "approve")
            again = await waiting(app, run.id)
            assert (kind_of(again), made(world, run)) == ("approval", 0)

    run_async(main)


@pytest.mark.contract("G-3", "B-1")
def test_an_approval_is_used_up_by_a_turn_that_is_interrupted(world: World) -> None:
    skill = world.skill([PUSH, SAY], [PUSH, {"misbehave": "hang"}])

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await asked(app, skill)
            await app.service.reply(run.id, "approve")
            while not made(world, run):
                await asyncio.sleep(0.01)
        # The turn is repeated by another program, from the session before it.
        async with world.working(serving=True) as app:
            while (await decisions(app, run)).count("deny") == 0:
                await asyncio.sleep(0.01)
            await app.service.cancel(run.id)
            await over(app, run.id)
        assert made(world, run) == 1

    run_async(main)


def test_a_call_of_a_subagent_that_needs_an_approval_is_denied(world: World) -> None:
    skill = world.skill([{"tool": {**PUSH["tool"], "subagent": True}}, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill, permissions=ASK_PUSH)).id)
            assert run.state is RunState.SUCCEEDED
        assert (made(world, run), len(refusals(world, run))) == (0, 1)

    run_async(main)


@pytest.mark.contract("G-2")
def test_the_question_shows_all_of_a_call_and_hides_no_character(world: World) -> None:
    command = "git push \u200b\u202eorigin ```\u0430bc " + "x" * 200_000
    skill = world.skill([{"tool": {**PUSH["tool"], "input": {"command": command}}}, SAY])

    async def main() -> None:
        async with world.working() as app:
            question = (await asked(app, skill)).pending_interaction
            assert question is not None
            assert question.context["input"] == {"command": command}
            assert "git push <U+200B><U+202E>origin ```" in question.prompt
            assert "\n````\n" in question.prompt
            assert "CYRILLIC SMALL LETTER A" in question.prompt
            assert "more characters are in `input`" in question.prompt

    run_async(main)


@pytest.mark.contract("G-2")
def test_a_change_of_a_file_is_shown_as_a_diff_and_asked_again_if_the_file_changes(world: World) -> None:
    write = {
        "tool": {"name": "write", "input": {"path": "artifacts/note", "text": "new\n"}, "append": "artifacts/pushed"}
    }
    skill = world.skill([{"write": {"path": "artifacts/note", "text": "old\n"}}, write, SAY], [write, SAY])

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill, {"default": "ask"})
            assert run.pending_interaction is not None
            assert "-old\n+new" in run.pending_interaction.context["diff"]
            (world.data_dir / "runs" / run.id / "work" / "artifacts" / "note").write_text("other\n")
            await app.service.reply(run.id, "approve")
            again = await waiting(app, run.id)
            assert again.pending_interaction is not None
            assert "-other\n+new" in again.pending_interaction.context["diff"]
        assert made(world, run) == 0

    run_async(main)


@pytest.mark.contract("G-5")
def test_a_fork_has_the_policies_of_its_source_and_asks_for_its_own_folder(world: World) -> None:
    skill = world.skill([PUSH, SAY], [PUSH, SAY], [{"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            source = await asked(app, skill)
            assert source.pending_interaction is not None
            origin = Origin(run_id=source.id, session=True, at=source.pending_interaction.interaction_id)
            fork = await submit(app, skill, origin=origin, answer="approve", permissions={"default": "allow"})
            fork = await waiting(app, fork.id)
            assert fork.permissions is not None
            assert source.permissions is not None
            assert set(source.permissions.policies) < set(fork.permissions.policies)
            # The answer was about a call in the folder of the source.
            assert (kind_of(fork), made(world, fork), made(world, source)) == ("approval", 0, 0)

    run_async(main)


@pytest.mark.contract("G-5", "J-5")
def test_a_rebuilt_session_has_the_same_policies(world: World) -> None:
    skill = world.skill([ASK], [PUSH, SAY])
    options = {"on_lost_session": "rebuild"}

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill, permissions=ASK_PUSH, options=options)).id)
            assert kind_of(run) == "choice"
        world.lose_session(run.id)
        async with world.working() as app:
            await app.service.reply(run.id, "red")
            again = await waiting(app, run.id)
            assert [each.code for each in again.warnings] == [WarningCode.CONTEXT_REBUILT]
            assert (kind_of(again), made(world, again)) == ("approval", 0)

    run_async(main)


@pytest.mark.contract("G-1")
@pytest.mark.parametrize("path", ["~/x", "../x", "/etc/passwd", "out/passwd"])
def test_a_file_outside_of_the_folder_is_not_taken_for_one_inside(world: World, path: str) -> None:
    read = {"tool": {"name": "read", "input": {"path": path}, "append": "artifacts/pushed"}}
    skill = world.skill([{"touch": "ready"}, {"wait_for": "go"}, read, SAY])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, permissions="careful")
            work = world.data_dir / "runs" / run.id / "work"
            while not (work / "ready").exists():
                await asyncio.sleep(0.01)
            (work / "out").symlink_to("/etc")
            (work / "go").touch()
            run = await waiting(app, run.id)
            assert (kind_of(run), made(world, run)) == ("approval", 0)

    run_async(main)


@pytest.mark.parametrize(("answer", "times"), [("Approve once", 1), ("APPROVE", 1), ("approved?", 0), ("yes", 0)])
def test_only_an_offered_approval_approves(world: World, answer: str, times: int) -> None:
    skill = world.skill([PUSH, SAY], [PUSH, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill)
            await app.service.reply(run.id, answer)
            run = await over(app, run.id)
        assert made(world, run) == times

    run_async(main)


@pytest.mark.contract("G-4")
def test_a_version_without_a_gate_does_not_continue_a_run_with_permissions(world: World) -> None:
    skill = world.skill([PUSH, SAY], [{"tool": {**PUSH["tool"], "ungated": True}}, {"finish": {"colour": "blue"}}])
    older = world.folder / "older"
    program = " ".join(map(shlex.quote, registry.get("scripted").default_command))
    older.write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && {program} --help | grep -v -- --gate && exit\nexec {program} "$@"\n'
    )
    older.chmod(0o755)

    async def main() -> None:
        async with world.working() as app:
            run = await asked(app, skill)
        async with world.working(f'[engines.scripted]\ncommand = ["{older}"]\n') as app:
            with pytest.raises(Invalid, match="no gate"):
                await submit(app, skill, permissions=ASK_PUSH)
            await app.service.reply(run.id, "approve")
            run = await over(app, run.id)
            assert run.error is not None
            assert run.error.code is ErrorCode.PERMISSION_GATE_FAILED
        assert made(world, run) == 0

    run_async(main)
