"""The one door: what it leaves behind when something does not work out."""

import ast
import asyncio
import copy
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

import askback
from askback.app import now, opened
from askback.core.errors import Conflict, ErrorCode, RefusalCode
from askback.core.interactions import Question
from askback.core.outcomes import AskUser
from askback.core.runs import Run, RunState
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


class BeforeTheQuestion:
    """A store whose first answer about a run is older than its question."""

    def __init__(self, store: Any, earlier: Run) -> None:
        self._store = store
        self._earlier: Run | None = earlier

    async def get(self, run_id: str) -> Run:
        earlier, self._earlier = self._earlier, None
        return earlier or await self._store.get(run_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_the_name_of_a_file_is_never_the_answer(tmp_path: Path) -> None:
    """A file comes for a question that is asked in the same moment."""
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    (tmp_path / "answer.txt").write_text("blue")

    async def main() -> None:
        async with world.working() as app:
            created = await submit(app, skill)
            await waiting(app, created.id)
            service = copy.copy(app.service)
            service.store = BeforeTheQuestion(app.service.store, created)  # type: ignore[assignment]
            with pytest.raises(Conflict) as refused:
                await service.reply_with_file(created.id, tmp_path / "answer.txt", "colour")
            assert refused.value.code is RefusalCode.INTERACTION_NOT_PENDING
            assert (await app.service.store.get(created.id)).pending_interaction is not None

    run_async(main)


def test_views_of_the_runs_share_the_limit_of_history_reads(tmp_path: Path) -> None:
    """However many label views there are, few pages are read at a time."""
    world = World(tmp_path)
    reading = most = 0

    async def main() -> None:
        nonlocal reading, most
        async with world.working() as app:
            views = [app.service.restricted_to({"customer": str(number)}) for number in range(8)]
            runs = [
                await submit(app, world.skill([FINISH]), labels={"customer": str(number)})
                for number in range(len(views))
            ]

            def slow(store: Any) -> Any:
                whole = store.events

                async def events(*given: Any) -> Any:
                    nonlocal reading, most
                    reading += 1
                    most = max(most, reading)
                    # Every other follower has its turn meanwhile.
                    for _ in range(100):
                        await asyncio.sleep(0)
                    reading -= 1
                    return await whole(*given)

                return events

            for view in views:
                view.store.events = slow(view.store)  # type: ignore[method-assign]

            async def follow(view: Any, run_id: str) -> None:
                async for _ in view.follow(run_id):
                    pass

            await asyncio.gather(*(follow(view, run.id) for view, run in zip(views, runs, strict=True)))

    run_async(main)
    assert 1 <= most <= 2
