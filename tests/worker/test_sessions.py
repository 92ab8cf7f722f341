"""Handles and resuming: the same session, by the engine's own evidence, or a clear failure."""

import ast
import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from askback.core.errors import ErrorCode
from askback.core.runs import Handle, RunState
from askback.engines import registry
from askback.engines.base import HandleInvalid, session_of
from support.data_folder import ASK, FINISH, World, over, reach, run_async, submit, waiting


@pytest.mark.contract("H-1", "H-6")
def test_a_reply_goes_on_in_the_same_session_in_a_new_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"ask": {"interaction_id": "two", "prompt": "Sure?"}}], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            handles = set()
            for _ in range(2):
                run = await waiting(app, run.id)
                assert run.handle is not None
                handles.add(run.handle)
                await app.service.reply(run.id, "red")
                await reach(app, run.id, RunState.WAITING_USER, RunState.SUCCEEDED)
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert len(handles) == 1
        (session,) = world.sessions(run.id)
        assert len({entry["pid"] for entry in session if entry["type"] == "prompt"}) == 3
        kinds = [entry["type"] for entry in session if entry["type"] in ("prompt", "completed")]
        assert kinds == ["prompt", "completed"] * 3
        turns = sorted((world.data_dir / "runs" / run.id / "turns").glob("*.stdout"))
        named = {json.loads(path.read_text().splitlines()[0])["session_id"] for path in turns}
        assert named == {run.handle.handle_value if run.handle else None}

    run_async(main)


@pytest.mark.contract("H-12")
def test_the_handle_is_stored_while_the_turn_still_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"wait_for": "go"}, ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            changes = app.store.changes()
            while (await app.service.store.get(run.id)).handle is None:
                await changes.wait()
            changes.close()
            seen = await app.service.store.get(run.id)
            assert seen.state is RunState.RUNNING
            (app.workspaces.of(run.id).cwd / "go").touch()
            assert (await waiting(app, run.id)).handle == seen.handle

    run_async(main)


@pytest.mark.contract("H-11", "X-1")
def test_an_engine_that_silently_starts_another_session_is_found_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"misbehave": "other_session"}, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert (ended.state, ended.error.code) == (RunState.FAILED, ErrorCode.SESSION_RESUME_FAILED)
            assert "another session" in ended.error.message

    run_async(main)


@pytest.mark.contract("H-11", "X-1")
def test_an_engine_that_does_not_say_where_it_went_on_has_not_resumed(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"misbehave": "no_session"}, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert (ended.state, ended.error.code) == (RunState.FAILED, ErrorCode.SESSION_RESUME_FAILED)

    run_async(main)


@pytest.mark.contract("X-1")
def test_a_session_that_is_gone_fails_the_resume(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
        world.lose_session(run.id)
        async with world.working() as app:
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert ended.error.code is ErrorCode.SESSION_RESUME_FAILED
            assert "no session" in (ended.error.detail or "")

    run_async(main)


def test_a_turn_that_asks_without_naming_a_session_cannot_wait(tmp_path: Path) -> None:
    world = World(tmp_path)
    asks = world.skill([{"misbehave": "no_session"}, ASK], name="asks")
    ends = world.skill([{"misbehave": "no_session"}, {"finish": {"colour": "red"}}], name="ends")

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, asks)).id)
            assert run.error is not None
            assert run.error.code is ErrorCode.SESSION_RESUME_FAILED
            run = await over(app, (await submit(app, ends)).id)
            assert run.state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("H-13")
@pytest.mark.parametrize("value", ["--help", "../../etc/passwd", "ses-1\n--yolo", "", "ses-zz", "SES-" + "0" * 36])
def test_a_handle_of_another_form_never_reaches_a_command_line(value: str) -> None:
    engine = registry.get("scripted")
    handle = Handle(engine="scripted", handle_type="session_id", handle_value=value, created_at_turn=1)
    with pytest.raises(HandleInvalid):
        session_of(engine, handle)


@pytest.mark.sqlite
@pytest.mark.contract("H-13", "H-2")
def test_a_handle_that_was_tampered_with_fails_the_run_and_starts_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"touch": "second-turn-ran"}, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
        database = str(world.data_dir / "askback.db")
        change = "UPDATE runs SET doc = json_set(doc, '$.handle.handle_value', '--version')"
        code = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute(sys.argv[2]); d.commit(); d.close()"
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, database, change], check=True)
        async with world.working() as app:
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert ended.error.code is ErrorCode.SESSION_RESUME_FAILED
            assert not (app.workspaces.of(run.id).cwd / "second-turn-ran").exists()

    run_async(main)


def builds_a_resume_command(path: Path) -> bool:
    """Whether a file has an option `--resume`, or puts the word `resume` into a list or beside a value, as in a command."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and str(node.value).startswith("--resume"):
            return True
        parts = node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []
        constants = [part.value for part in parts if isinstance(part, ast.Constant)]
        adds = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("append", "insert")
        )
        if "resume" in constants and (isinstance(node, ast.List) or adds or len(constants) < len(parts)):
            return True
    return False


@pytest.mark.contract("H-10", "H-2")
def test_only_engine_modules_build_commands_or_read_a_handles_value() -> None:
    source = Path(__file__).resolve().parents[2] / "src" / "askback"
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if builds_a_resume_command(path)}
    engines = {name for name in found if name.startswith("engines/")}
    assert {"engines/claude/__init__.py", "engines/codex/__init__.py", "engines/qwen.py"} <= engines
    # `wire` describes to callers what a probe has found; `client` has the path of the request that resumes a parked run.
    assert found - engines == {"wire/server.py", "client/calls.py"}
    readers = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if ".handle_value" in path.read_text() and path.relative_to(source).parts[0] != "engines"
    ]
    # Comparing two values for equality, and showing one in the demo, take nothing out of it.
    assert sorted(readers) == ["cli/commands/demo.py", "core/turns.py", "worker/turn/observe.py"]
