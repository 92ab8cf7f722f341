"""Runs whose files are stored: what was lost on this machine comes back, and nothing is lost while the store is down."""

from __future__ import annotations

import asyncio
import io
import zipfile
from pathlib import Path

import httpx
import pytest

from askback.core.errors import Unavailable
from askback.core.runs import RunState
from askback.fs.beneath import remove_tree
from support import postgres
from support.api import over as api_over
from support.api import reply, start
from support.api import waiting as api_waiting
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting
from support.object_store import Bucket, Door
from support.postgres import databases
from support.program import askback
from support.program import until as program_until
from support.server import Server

FILE = {"type": "object", "required": ["plan"], "properties": {"plan": {"type": "string", "x-input-source": "file"}}}
FINISH_RED = {"finish": {"colour": "red"}}


def test_an_upload_is_used_without_the_machine_that_took_it(world: World) -> None:
    world.skill([FINISH_RED], name="reading", schemas={"input": FILE})
    stored = world.folder / "stored"
    with (
        Server(world, env={"ASKBACK_FILES": str(stored)}) as server,
        httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.token}"}, timeout=60) as client,
    ):
        made = client.post("/v1/uploads", files={"file": ("plan.txt", b"the plan")})
        assert made.status_code == 201, made.text
        remove_tree(world.data_dir / "uploads")
        run_id = start(client, "reading", input={"plan": {"upload_id": made.json()["upload_id"]}})
        api_over(client, run_id)
        staged = world.data_dir / "runs" / run_id / "work" / "inputs" / "plan" / "plan.txt"
        assert staged.read_bytes() == b"the plan"
        assert client.delete(f"/v1/runs/{run_id}").status_code == 204
        assert [path.parent.name for path in stored.rglob("*/*") if path.is_file()] == ["packages"]
        # The store is down: nothing is accepted that needs it.
        stored.rename(world.folder / "elsewhere")
        refused = client.post("/v1/uploads", files={"file": ("plan.txt", b"the plan")})
        assert (refused.status_code, refused.json()["code"]) == (503, "FILES_UNAVAILABLE")


def test_inputs_come_back_before_the_next_turn(world: World) -> None:
    skill = world.skill([ASK], [FINISH], schemas={"input": FILE})
    plan = world.folder / "plan.txt"
    plan.write_text("the plan")

    async def main() -> None:
        async with world.working(f'files = "{world.folder / "stored"}"') as app:
            run = await waiting(app, (await submit(app, skill, files={"plan": plan})).id)
            inputs = app.workspaces.of(run.id).cwd / "inputs"
            remove_tree(inputs)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert (inputs / "plan" / "plan.txt").read_text() == "the plan"

    run_async(main)


def test_a_lost_package_is_fetched_before_the_next_turn(world: World) -> None:
    skill = world.skill([ASK], [FINISH])
    config = f'files = "{world.folder / "stored"}"'

    async def main() -> None:
        async with world.working(config, serving=True) as app:
            run = await waiting(app, (await submit(app, skill)).id)
        remove_tree(world.data_dir / "packages")
        async with world.working(config, serving=True) as app:
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert [path.name for path in (world.data_dir / "packages").iterdir()] == [run.skill.digest]

    run_async(main)


@pytest.mark.contract("M-9")
def test_no_turn_starts_while_the_store_is_down(world: World) -> None:
    skill = world.skill([ASK], [FINISH])
    stored, elsewhere = world.folder / "stored", world.folder / "elsewhere"

    async def main() -> None:
        async with world.working(f'files = "{stored}"') as app:
            run = await waiting(app, (await submit(app, skill)).id)
            stored.rename(elsewhere)
            await app.service.reply(run.id, "red")
            changes = app.store.changes()
            while (await app.store.get(run.id)).state is not RunState.RUNNING:
                await changes.wait()
            changes.close()
            with pytest.raises(Unavailable):
                await asyncio.to_thread(app.workspaces.of(run.id).fetch_inputs)
            elsewhere.rename(stored)
            ended = await over(app, run.id)
            assert (ended.state, ended.attempt_number) == (RunState.SUCCEEDED, 2)

    run_async(main)


WRITE = {"write": {"path": "artifacts/plan.txt", "text": "one\n"}}
REWRITE = {"write": {"path": "artifacts/plan.txt", "text": "{{reply}}\n"}}


def test_artifacts_are_served_without_the_machine_that_made_them(world: World) -> None:
    world.skill([WRITE, ASK], [REWRITE, FINISH], name="writing")
    stored = world.folder / "stored"
    with (
        Server(world, env={"ASKBACK_FILES": str(stored)}) as server,
        httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.token}"}, timeout=60) as client,
    ):
        run_id = api_waiting(client, "writing")
        reply(client, run_id, "red")
        api_over(client, run_id)
        run = f"/v1/runs/{run_id}"
        paths = ("artifacts", "artifacts/plan.txt", "versions?path=plan.txt", "diff?path=plan.txt&from=1", "bundle")
        before = [client.get(f"{run}/{path}") for path in paths]
        remove_tree(world.data_dir / "runs")
        after = [client.get(f"{run}/{path}") for path in paths]
        assert [each.status_code for each in after] == [200] * len(paths)
        assert [each.content for each in after[:-1]] == [each.content for each in before[:-1]]
        assert (after[1].text, "-one\n+red\n" in after[3].json()["diff"]) == ("red\n", True)
        with zipfile.ZipFile(io.BytesIO(after[-1].content)) as archive:
            assert archive.read("plan.txt") == b"red\n"
        assert client.get(f"{run}/artifacts/none").status_code == 404
        # While the store is down, and again afterwards.
        stored.rename(world.folder / "elsewhere")
        down = [client.get(f"{run}/{path}") for path in paths] + [client.delete(run)]
        assert {(each.status_code, each.json()["code"]) for each in down} == {(503, "FILES_UNAVAILABLE")}
        assert client.get(run).status_code == 200
        (world.folder / "elsewhere").rename(stored)
        assert client.get(f"{run}/artifacts/plan.txt").text == "red\n"
        assert client.delete(run).status_code == 204
        assert [path.parent.name for path in stored.rglob("*/*") if path.is_file()] == ["packages"]


@pytest.mark.contract("M-9")
def test_the_end_of_a_turn_waits_for_the_store(world: World, bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    go, begun = world.folder / "go", world.folder / "begun"
    skill = world.skill([WRITE, {"touch": str(begun)}, {"wait_for": str(go)}, FINISH_RED])

    async def main() -> None:
        async with world.working(f'files = "{bucket.address}"') as app:
            run_id = (await submit(app, skill, mode="auto")).id
            await until(begun.exists)
            bucket.turn(Door.REFUSING)
            go.touch()
            assert app.files is not None
            with pytest.raises(Unavailable):
                app.files.check()
            # The engine has ended, and the run has not.
            await until(lambda: "cannot be stored, trying again" in caplog.text)
            assert (await app.store.get(run_id)).state is RunState.RUNNING
            bucket.turn(Door.OPEN)
            ended = await over(app, run_id)
            assert (ended.state, ended.attempt_number, ended.epoch) == (RunState.SUCCEEDED, 1, 1)
            kept = app.files.list(f"runs/{run_id}/artifacts/")
            assert [each.key.rpartition("/")[2] for each in kept] == ["001-001.json"]

    run_async(main)


def test_a_run_is_canceled_while_its_files_are_stored(world: World) -> None:
    go, begun = world.folder / "go", world.folder / "begun"
    skill = world.skill([WRITE, {"touch": str(begun)}, {"wait_for": str(go)}, FINISH_RED])

    async def main() -> None:
        # More zeros than any machine reads before the cancellation arrives.
        async with world.working(f'files = "{world.folder / "stored"}"\n[limits]\ndisk = 0') as app:
            run_id = (await submit(app, skill, mode="auto")).id
            await until(begun.exists)
            folder = world.data_dir / "runs" / run_id
            with (folder / "work" / "artifacts" / "huge").open("wb") as file:
                file.truncate(19_000_000_000)
            go.touch()
            await until(lambda: any((folder / "storing").glob("*/*")))
            await app.service.cancel(run_id)
            assert (await over(app, run_id)).state is RunState.CANCELED
            assert app.files is not None
            assert not app.files.list(f"runs/{run_id}/artifacts/")
            await until(lambda: not (folder / "storing").exists())

    run_async(main)


def test_artifacts_that_are_too_large_to_be_stored_are_told(world: World) -> None:
    go, begun = world.folder / "go", world.folder / "begun"
    skill = world.skill([WRITE, {"touch": str(begun)}, {"wait_for": str(go)}, FINISH_RED])

    async def main() -> None:
        async with world.working(f'files = "{world.folder / "stored"}"\n[limits]\ndisk = 100') as app:
            run_id = (await submit(app, skill, mode="auto")).id
            await until(begun.exists)
            with (world.data_dir / "runs" / run_id / "work" / "artifacts" / "huge").open("wb") as file:
                file.truncate(200_000_000)
            go.touch()
            ended = await over(app, run_id)
            assert ended.state is RunState.SUCCEEDED
            assert [(each.code, each.message[-3:]) for each in ended.warnings] == [("FILES_NOT_KEPT", ": 1")]

    run_async(main)


@pytest.mark.contract("M-9")
def test_a_turn_whose_files_are_not_stored_is_executed_by_the_next_program(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    go, begun = world.folder / "go", world.folder / "begun"
    skill = world.skill([WRITE, {"touch": str(begun)}, {"wait_for": str(go)}, FINISH_RED])
    stored, elsewhere = world.folder / "stored", world.folder / "elsewhere"
    config = f'files = "{stored}"'

    async def main() -> None:
        async with world.working(config, serving=True) as app:
            run_id = (await submit(app, skill, mode="auto")).id
            await until(begun.exists)
            stored.rename(elsewhere)
            go.touch()
            await until(lambda: "cannot be stored, trying again" in caplog.text)
        elsewhere.rename(stored)
        async with world.working(config, serving=True) as app:
            ended = await over(app, run_id)
            assert (ended.state, ended.restarts) == (RunState.SUCCEEDED, 0)
            assert [each.path for each in await app.service.artifacts(run_id)] == ["plan.txt"]

    run_async(main)


@pytest.mark.contract("M-7")
def test_artifacts_from_before_the_setting_are_stored_and_until_then_nobody_says_there_are_none(tmp_path: Path) -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        first, second = World(tmp_path / "first"), World(tmp_path / "second")
        second.database = first.database
        skill = first.skill([WRITE, FINISH_RED], name="writing")
        plain = first.skill([FINISH_RED], name="plain")
        made, empty = (
            askback(first, "run", each, "--engine", "scripted", "--json").json["id"] for each in (skill, plain)
        )
        files = {"ASKBACK_FILES": str(tmp_path / "stored")}
        runs_dir = str(first.data_dir / "runs")
        elsewhere = tmp_path / "machine"
        (first.data_dir / "runs").rename(elsewhere)
        with Server(second, "--no-worker", env={**files, "ASKBACK_RUNS_DIR": runs_dir}) as server:
            with httpx.Client(base_url=server.url, headers=bearer(server), timeout=60) as client:
                for path in ("artifacts", "artifacts/plan.txt", "bundle"):
                    told = client.get(f"/v1/runs/{made}/{path}")
                    assert (told.status_code, told.json()["code"]) == (503, "FILES_UNAVAILABLE"), path
                    assert "only on the machine that executed it" in told.json()["detail"]
                assert client.get(f"/v1/runs/{made}/result").json()["data"] == {"colour": "red"}
                assert client.get(f"/runs/{made}", headers=server.session()).status_code == 200
            shown = askback(second, "show", made, env={**files, "ASKBACK_RUNS_DIR": runs_dir})
            assert (shown.code, "only on the machine" in shown.stdout) == (0, True), shown
            # A program on the machine that has the files stores them.
            elsewhere.rename(first.data_dir / "runs")
            with Server(first, "--no-worker", env=files):
                program_until(lambda: (first.data_dir / "earlier-runs-stored").exists())
            (first.data_dir / "runs").rename(elsewhere)
            with httpx.Client(base_url=server.url, headers=bearer(server), timeout=60) as client:
                assert client.get(f"/v1/runs/{made}/artifacts/plan.txt").text == "one\n"
                listed = [client.get(f"/v1/runs/{each}/artifacts").json()["items"] for each in (made, empty)]
                assert [[file["path"] for file in each] for each in listed] == [["plan.txt"], []]


def bearer(server: Server) -> dict[str, str]:
    return {"authorization": f"Bearer {server.token}"}
