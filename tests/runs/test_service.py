"""The one door: what it leaves behind when something does not work out."""

import ast
import os
import resource
import subprocess
from pathlib import Path

import pytest

import askback
from askback.bootstrap import now, opened
from askback.core.errors import Conflict, ErrorCode, RefusalCode
from askback.core.interactions import Question
from askback.core.outcomes import AskUser
from askback.core.runs import RunState
from askback.core.signals import ProcessStarted, SlotAcquired, TurnEnded
from askback.process.tree import MARK, identity
from askback.store.base import move
from support.data_folder import ASK, FINISH, World, run_async, submit, waiting


def test_an_answer_for_which_there_is_no_room_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    (tmp_path / "answer").write_bytes(bytes(2_000_000))

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
            try:
                with pytest.raises(OSError, match="too large"):
                    await app.service.reply_with_file(run.id, tmp_path / "answer", "colour")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert list((app.workspaces.of(run.id).cwd / "inputs").glob("*")) == []
            assert await app.service.store.get(run.id) == run

    run_async(main)


def sleeper(run_id: str) -> subprocess.Popen[bytes]:
    """A process of that run."""
    return subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, MARK: run_id})


@pytest.mark.contract("B-3", "W-11")
def test_an_answer_to_a_run_of_a_dead_program_ends_what_is_left_before_the_run_is_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with opened(world.settings()) as gone:
            run = await submit(gone, skill, options={"interactive_profile": "sticky_process"})
            run = await move(gone.store, run.id, SlotAcquired(worker=run.owner, at=now()), seen=run)
            left = sleeper(run.id)
            process = identity(left.pid)
            assert process is not None
            await move(gone.store, run.id, ProcessStarted(epoch=run.epoch, process=process, at=now()))
            asked = AskUser(question=Question(prompt="Which?"))
            await move(gone.store, run.id, TurnEnded(epoch=run.epoch, outcome=asked, at=now()))
        async with opened(world.settings()) as app:
            with pytest.raises(Conflict) as refused:
                await app.service.reply(run.id, "red")
            assert refused.value.code is RefusalCode.INTERACTION_NOT_PENDING
            ended = await app.service.store.get(run.id)
            assert ended.state is RunState.FAILED
            assert ended.error is not None
            assert ended.error.code is ErrorCode.INTERACTION_PROCESS_LOST
            lives = left.poll() is None
            left.kill()
            left.wait()
            assert not lives

    run_async(main)


_BY_SOMEBODY = {"reply", "reply_with_file", "cancel", "delete"}


@pytest.mark.contract("N-1", "N-7")
def test_every_face_says_who_writes() -> None:
    """Each caller of the service names an actor, and so does every submission."""
    silent = []
    for file in sorted(Path(askback.__file__).parent.rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call) and _writes(node)]
        unnamed = [node for node in calls if "by" not in [each.arg for each in node.keywords]]
        silent += [f"{file.name}:{node.lineno}" for node in unnamed]
    assert silent == []


def _writes(call: ast.Call) -> bool:
    """A call of a writing method of the service, or a new submission."""
    match call.func:
        case ast.Name(id="Submission"):
            return True
        case ast.Attribute(attr=name, value=ast.Attribute(attr="service" | "_service") | ast.Name(id="service")):
            return name in _BY_SOMEBODY
        case _:
            return False
