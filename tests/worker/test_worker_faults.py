"""The worker through what may come between its steps: no run is left behind, and no slot lost."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from askback.app import App, opened
from askback.core.errors import RefusalCode, Unavailable
from askback.core.lifecycle import Decision
from askback.core.runs import Run, RunState
from askback.process.tree import Tree
from askback.skills import library
from askback.skills.package import read_package
from askback.worker import worker
from askback.worker.claimed_run import ClaimedRun
from askback.worker.turn.context import TurnContext
from askback.worker.turn.execute import RunExecutor, executing
from support.data_folder import ASK, World, over, reach, run_async, submit, until

FINISH = {"finish": {"colour": "red"}}
FULL = Unavailable(RefusalCode.DISK_FULL, "the disk is full; free some space and try again")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_RETRY_SEC", 0.05)


def during(app: App, method: str, act: Callable[..., Awaitable[Any]]) -> None:
    """Let `act`, which is given the store's own method and its arguments, stand in for it once it is called."""
    real = getattr(app.store, method)
    setattr(app.store, method, lambda *args, **rest: act(real, *args, **rest))


def claims(decision: Decision) -> bool:
    return decision.run.state is RunState.RUNNING and decision.run.process is None


@pytest.mark.contract("W-3")
def test_a_claim_that_fails_does_not_cost_the_others_of_its_batch(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([FINISH])
    failed: list[str] = []

    async def apply(real: Any, before: Run, decision: Decision, *rest: Any) -> Run:
        if claims(decision) and not failed:
            failed.append(before.id)
            raise FULL
        return await real(before, decision, *rest)

    async def main() -> None:
        async with opened(world.settings("slots = 2\n"), serving=True) as app:
            runs = [await submit(app, skill) for _ in range(2)]
            during(app, "apply", apply)
            async with app.working(), asyncio.timeout(60):
                assert [(await over(app, run.id)).state for run in runs] == [RunState.SUCCEEDED] * 2
        assert failed
        assert app.slots.taken == 0

    run_async(main)


@pytest.mark.contract("W-2")
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_run_that_is_canceled_while_it_is_claimed_does_not_hold_up_the_next(tmp_path: Path, forgotten: bool) -> None:
    world = World(tmp_path)
    skill = world.skill([FINISH])

    async def main() -> None:
        async with opened(world.settings("slots = 1\n"), serving=True) as app:
            first, second = [await submit(app, skill) for _ in range(2)]

            async def apply(real: Any, before: Run, decision: Decision, *rest: Any) -> Run:
                if claims(decision) and before.id == first.id:
                    await app.service.cancel(first.id)
                    if forgotten:
                        await app.store.forget([first.id])
                claimed: Run = await real(before, decision, *rest)
                return claimed

            during(app, "apply", apply)
            async with app.working(), asyncio.timeout(60):
                assert (await over(app, second.id)).state is RunState.SUCCEEDED
        assert app.slots.taken == 0

    run_async(main)


@pytest.mark.contract("V-5")
def test_a_stop_ends_a_turn_that_is_claimed_in_a_warm_process_meanwhile(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"touch": "started"}, {"wait_for": "never"}])
    stopped: list[str] = []

    async def main() -> None:
        config = "warm_sec = 600\n[warm]\nmax_processes = 8\nmax_memory = 0\nmin_free_memory = 0\n"
        async with opened(world.settings(config), serving=True) as app:

            async def apply(real: Any, before: Run, decision: Decision, *rest: Any) -> Run:
                claimed = await real(before, decision, *rest)
                if claims(decision) and decision.run.attempt_number == 2:
                    stopped.append(before.id)
                    app.worker.stop()
                return claimed

            async with app.working(), asyncio.timeout(60):
                run = await submit(app, skill)
                await until(lambda: (kept := app.warm.find(run.id)) is not None and kept.memory_bytes > 0)
                during(app, "apply", apply)
                await app.service.reply(run.id, "red")
                await reach(app, run.id, RunState.QUEUED)
                await until(lambda: bool(stopped) and app.slots.taken == 0)
            assert (await app.store.get(run.id)).state is RunState.QUEUED

    run_async(main)
    assert stopped


@pytest.mark.contract("B-2")
def test_a_cancel_by_another_program_works_even_if_the_store_cannot_be_read_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "never"}])
    failed: list[str] = []

    async def get(real: Any, run_id: str) -> Run:
        if len(failed) < 2:
            failed.append(run_id)
            raise FULL
        return await real(run_id)

    async def main() -> None:
        async with world.working(serving=True) as app, world.client() as other, asyncio.timeout(60):
            run = await submit(app, skill)
            await until(lambda: (app.workspaces.of(run.id).cwd / "started").exists())
            during(app, "get", get)
            await other.service.cancel(run.id)
            assert (await over(other, run.id)).state is RunState.CANCELED
            assert len(failed) == 2

    run_async(main)


@pytest.mark.contract("B-2")
def test_a_cancel_that_comes_before_the_worker_knows_of_its_claim_works(tmp_path: Path) -> None:
    """As another program's may: it sees the claim as soon as it is stored."""
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "never"}])

    async def main() -> None:
        async with opened(world.settings(), serving=True) as app:

            async def apply(real: Any, before: Run, decision: Decision, *rest: Any) -> Run:
                moved: Run = await real(before, decision, *rest)
                if before.state is RunState.QUEUED:
                    await app.service.cancel(moved.id)
                    for _ in range(20):
                        await asyncio.sleep(0)
                return moved

            run = await submit(app, skill)
            during(app, "apply", apply)
            async with app.working(), asyncio.timeout(60):
                assert (await over(app, run.id)).state is RunState.CANCELED

    run_async(main)


@pytest.mark.contract("B-1")
@pytest.mark.parametrize(
    ("profile", "asks", "becomes"),
    [
        ("resumable", False, RunState.SUCCEEDED),
        ("sticky_process", False, RunState.SUCCEEDED),
        ("sticky_process", True, RunState.FAILED),
    ],
)
def test_a_full_disk_does_not_hold_up_a_stop(tmp_path: Path, profile: str, asks: bool, becomes: RunState) -> None:
    """What could not be stored is left to the next program, which finds that this one is gone."""
    world = World(tmp_path)
    rest = [ASK] if asks else [{"wait_for": "go"}, FINISH]
    skill = world.skill([{"touch": "started"}, *rest], [FINISH])

    async def apply(*_call: Any) -> Run:
        raise FULL

    async def main() -> None:
        async with opened(world.settings(), serving=True) as app, asyncio.timeout(60):
            async with app.working():
                run = await submit(app, skill, options={"interactive_profile": profile})
                work = app.workspaces.of(run.id).cwd
                await until(lambda: (work / "started").exists())
                await reach(app, run.id, RunState.WAITING_USER if asks else RunState.RUNNING)
                during(app, "apply", apply)
            assert app.slots.taken == 0
        (work / "go").touch()
        async with world.working(serving=True) as other:
            assert (await over(other, run.id)).state is becomes

    run_async(main)


@pytest.mark.contract("B-1")
@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
def test_a_turn_that_meets_a_locked_database_is_taken_up_again(tmp_path: Path, profile: str) -> None:
    """Another program, that makes a copy of it perhaps, may hold it for longer than is waited for."""
    world = World(tmp_path)
    skill = world.skill([{"tool": {"name": "look"}}, FINISH])
    failed: list[str] = []

    async def append(real: Any, run_id: str, *rest: Any) -> None:
        if not failed:
            failed.append(run_id)
            raise Unavailable(RefusalCode.STORE_UNUSABLE, "another program holds it locked for too long")
        await real(run_id, *rest)

    async def main() -> None:
        async with world.working() as app, asyncio.timeout(20):
            during(app, "append", append)
            run = await submit(app, skill, options={"interactive_profile": profile})
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert failed

    run_async(main)


def failing_once() -> Callable[..., Awaitable[None]]:
    failed: list[str] = []

    async def append(real: Any, run_id: str, *rest: Any) -> None:
        if not failed:
            failed.append(run_id)
            raise FULL
        await real(run_id, *rest)

    return append


@pytest.mark.contract("B-3")
def test_a_sticky_turn_is_lost_only_when_no_process_of_it_is_alive(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"tool": {"name": "look"}}, {"wait_for": "go"}, FINISH])
    lived: list[set[int]] = []

    async def apply(real: Any, before: Run, decision: Decision, *rest: Any) -> Run:
        if before.state is RunState.RUNNING and decision.run.state is RunState.QUEUED:
            lived.append(await asyncio.to_thread(Tree(mark=before.id).members))
        return await real(before, decision, *rest)

    async def main() -> None:
        async with world.working() as app, asyncio.timeout(20):
            during(app, "append", failing_once())
            during(app, "apply", apply)
            run = await submit(app, skill, options={"interactive_profile": "sticky_process"})
            await until(lambda: bool(lived))
            (app.workspaces.of(run.id).cwd / "go").touch()
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert lived == [set()]

    run_async(main)


@pytest.mark.contract("B-2")
def test_a_run_that_is_claimed_again_before_its_last_executor_is_done_can_be_canceled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    skill = world.skill([{"tool": {"name": "look"}}, {"touch": "started"}, {"wait_for": "never"}])

    async def main() -> None:
        async with world.working("slots = 2\n") as app, asyncio.timeout(20):
            claims = 0

            @asynccontextmanager
            async def slowly_left(context: TurnContext, claim: ClaimedRun, *rest: Any) -> AsyncIterator[RunExecutor]:
                nonlocal claims
                claims += 1
                async with executing(context, claim, *rest) as executor:
                    yield executor
                await until(lambda: claims == 2)

            monkeypatch.setattr(worker, "executing", slowly_left)
            during(app, "append", failing_once())
            run = await submit(app, skill)
            await until(lambda: claims == 2 and (app.workspaces.of(run.id).cwd / "started").exists())
            await app.service.cancel(run.id)
            assert (await over(app, run.id)).state is RunState.CANCELED
        assert app.slots.taken == 0

    run_async(main)


@pytest.mark.contract("W-6")
def test_an_outdated_change_of_a_run_does_not_lose_the_end_of_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes by another program are noticed late under load: a turn may have started and ended by then."""
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app, asyncio.timeout(20):

            @asynccontextmanager
            async def notified_late(context: TurnContext, claim: ClaimedRun, *rest: Any) -> AsyncIterator[Any]:
                async with executing(context, claim, *rest) as executor:
                    waited: list[Run] = []

                    async def hold(run: Run) -> Any:
                        waited.append(run)
                        return await executor.hold(run)

                    async def turn(run: Run) -> Any:
                        signal = await executor.turn(run)
                        for each in waited:
                            claim.notify_change(each)
                        return signal

                    yield SimpleNamespace(turn=turn, hold=hold)

            monkeypatch.setattr(worker, "executing", notified_late)
            run = await submit(app, skill, options={"interactive_profile": "sticky_process"})
            await reach(app, run.id, RunState.WAITING_USER)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


def test_a_package_that_was_not_read_before_is_read_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be large, and everybody else would wait for it."""
    world = World(tmp_path)
    skill = world.skill([FINISH])
    read: list[threading.Thread] = []

    def noted(*args: Any) -> Any:
        read.append(threading.current_thread())
        return read_package(*args)

    async def main() -> None:
        async with opened(world.settings(), serving=True) as before:
            run = await submit(before, skill)
        monkeypatch.setattr(library, "read_package", noted)
        async with world.working(serving=True) as app, asyncio.timeout(20):
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
        assert read
        assert threading.main_thread() not in read

    run_async(main)
