"""A worker whose disk is full, whose folders are read-only, emptied or removed: it takes no turns while that lasts, says so,
and no run fails for it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.api import calling, get, over, reach, reply, start
from support.data_folder import ASK
from support.machines import Fleet, Machine, WorkerProgram
from support.object_store import CREDENTIALS, Bucket, Door
from support.program import until

ENV = dict(CREDENTIALS)
FINISH = {"finish": {"colour": "red"}}
SIZE_MB = 24


@pytest.fixture
def api(fleet: Fleet) -> Iterator[httpx.Client]:
    with serving(fleet) as client:
        yield client


@contextmanager
def serving(fleet: Fleet) -> Iterator[httpx.Client]:
    machine = fleet.machine("api")
    machine.skill([FINISH], name="quick")
    machine.skill([{"wait_for": str(fleet.folder / "go")}, FINISH], name="held")
    machine.skill([{"wait_for": str(fleet.folder / "go")}, ASK], [{"finish": {"colour": "{{reply}}"}}], name="asking")
    with machine.server(env=ENV) as server, calling(server.url, server.token) as client:
        yield client


@contextmanager
def small_disks(machine: Machine) -> Iterator[None]:
    """The folders of the machine are on small file systems."""
    folders = [machine.data_dir, machine.runs]
    mounted: list[Path] = []
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            _mount("-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=700", "none", str(folder))
            mounted.append(folder)
        yield
    finally:
        for folder in mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=60)


def _mount(*args: str) -> None:
    subprocess.run(["mount", *args], check=True, timeout=60)


def fill(machine: Machine, worker: WorkerProgram) -> None:
    for folder in (machine.data_dir, machine.runs):
        with (folder / "filler").open("wb", buffering=0) as file:
            for size in (1 << 16, 1):
                while _has_room(file.write, size):
                    pass


def _has_room(write: Callable[[bytes], int | None], size: int) -> bool:
    try:
        return write(b"x" * size) == size
    except OSError:
        return False


def make_room(machine: Machine, worker: WorkerProgram) -> None:
    for folder in (machine.data_dir, machine.runs):
        (folder / "filler").unlink()


def make_read_only(machine: Machine, worker: WorkerProgram) -> None:
    """Open files stay open, so the folders are mounted once more. The mount is made read-only before the worker sees it:
    afterwards the system would refuse that for as long as a file is open for writing there."""
    with tempfile.TemporaryDirectory() as elsewhere:
        for folder in (machine.data_dir, machine.fleet.runs_dir):
            _inside(worker, "mount", "--bind", str(folder), elsewhere)
            _inside(worker, "mount", "-o", "remount,bind,ro", elsewhere)
            _inside(worker, "mount", "--bind", elsewhere, str(folder))
            _inside(worker, "umount", elsewhere)


def make_writable(machine: Machine, worker: WorkerProgram) -> None:
    for folder in (machine.data_dir, machine.fleet.runs_dir):
        until(lambda folder=folder: _tried(worker, "umount", str(folder)))


def _tried(worker: WorkerProgram, *words: str) -> bool:
    try:
        _inside(worker, *words)
    except subprocess.CalledProcessError:
        return False
    return True


def _inside(worker: WorkerProgram, *words: str) -> None:
    """As the worker sees the file systems."""
    subprocess.run(["nsenter", "--mount", "--target", str(worker.process.pid), *words], check=True, timeout=60)


Act = Callable[[Machine, WorkerProgram], None]
SICK: dict[str, tuple[Act, Act, str]] = {
    "full": (fill, make_room, "DISK_FULL"),
    "read-only": (make_read_only, make_writable, "STORE_READ_ONLY"),
}


def readiness(worker: WorkerProgram) -> tuple[int, str]:
    answer = httpx.get(f"{worker.told['url']}/readyz", timeout=120)
    return answer.status_code, str(answer.json()["machine"])


def events(api: httpx.Client, run_id: str, kind: str) -> list[dict[str, Any]]:
    found = api.get(f"/v1/runs/{run_id}/events?limit=1000").json()["items"]
    return [event for event in found if event["type"] == kind]


def states(api: httpx.Client) -> set[tuple[str, str | None]]:
    return {(each["state"], each.get("problem")) for each in api.get("/v1/workers").json()["items"]}


@pytest.mark.parametrize("how", ["full", pytest.param("read-only", marks=pytest.mark.long)])
def test_a_worker_whose_disk_cannot_be_written_to_takes_no_turns_until_it_can(
    fleet: Fleet, api: httpx.Client, how: str
) -> None:
    harm, heal, code = SICK[how]
    one = fleet.machine("one")
    with small_disks(one), one.worker("--slots", "2", env=ENV) as worker:
        assert over(api, start(api, "quick"))["state"] == "succeeded"
        held = [start(api, "held") for _ in range(2)]
        until(lambda: all(get(api, run_id)["state"] == "running" for run_id in held))
        harm(one, worker)
        (fleet.folder / "go").touch()
        queued = start(api, "quick")
        until(lambda: readiness(worker) == (503, code))
        until(lambda: states(api) == {("unready", code)})
        until(lambda: get(api, queued).get("queue_reason") == "unready")
        assert get(api, queued)["state"] == "queued"
        until(lambda: all(get(api, run_id)["state"] == "queued" for run_id in held))
        assert events(api, queued, "turn.started") == []
        heal(one, worker)
        until(lambda: readiness(worker) == (200, "ok"))
        for run_id in (queued, *held):
            ended = over(api, run_id)
            assert ended["state"] == "succeeded", ended.get("error")
        until(lambda: states(api) == {("alive", None)})


@pytest.mark.parametrize("how", ["full", pytest.param("read-only", marks=pytest.mark.long)])
def test_a_sick_worker_leaves_the_turns_to_a_well_one(fleet: Fleet, api: httpx.Client, how: str) -> None:
    harm, heal, _ = SICK[how]
    one, two = fleet.machine("one"), fleet.machine("two")
    with small_disks(one), one.worker("--slots", "8", env=ENV) as worker:
        assert over(api, start(api, "quick"))["state"] == "succeeded"
        harm(one, worker)
        first = [start(api, "quick") for _ in range(6)]
        with two.worker("--slots", "1", env=ENV):
            more = [start(api, "quick") for _ in range(6)]
            for run_id in (*first, *more):
                ended = over(api, run_id)
                assert ended["state"] == "succeeded", ended.get("error")
                assert (two.runs / run_id).is_dir()
        heal(one, worker)


def begun(log: str) -> list[str]:
    """The lines about the beginning of an outage, without those that say that it lasts, or that no turns start."""
    lines = [line for line in log.splitlines() if "the file store" in line and "cannot be used: " in line]
    return [line for line in lines if "since the last line" not in line and "starts no turns" not in line]


def test_without_the_object_store_servers_are_ready_and_workers_are_not(
    fleet: Fleet, api: httpx.Client, bucket: Bucket
) -> None:
    """All servers share it: a load balancer would have none left, not even to read runs."""
    one = fleet.machine("one")
    with one.worker("--slots", "1", env=ENV) as worker:
        run_id = start(api, "held")
        engine_runs(one, run_id)
        bucket.turn(Door.REFUSING)
        (fleet.folder / "go").touch()
        until(lambda: begun(worker.stderr))
        until(lambda: httpx.get(f"{worker.told['url']}/readyz", timeout=120).status_code == 503)
        until(lambda: httpx.get(f"{api.base_url}/readyz", timeout=120).json()["files"] == "FILES_UNAVAILABLE")
        served = httpx.get(f"{api.base_url}/readyz", timeout=120)
        assert (served.status_code, served.json()["ready"]) == (200, True)
        until(lambda: states(api) == {LOST})
        assert get(api, run_id)["state"] == "running"
        assert "again" not in worker.stderr.replace("trying again", "")
        bucket.turn(Door.OPEN)
        assert over(api, run_id)["state"] == "succeeded"
        until(lambda: httpx.get(f"{worker.told['url']}/readyz", timeout=120).status_code == 200)
        told = worker.stderr
    # It was tried every second, by several loops, and any of them may be the first.
    assert len(begun(told)) == 1
    assert told.count("the file store can be used again") == 1


@pytest.fixture
def share(fleet: Fleet) -> Path:
    """The machines have a shared folder instead of the bucket."""
    folder = fleet.folder / "share" / "store"
    folder.parent.mkdir()
    fleet.files = str(folder)
    return folder


@pytest.fixture
def share_api(fleet: Fleet, share: Path) -> Iterator[httpx.Client]:
    with serving(fleet) as client:
        yield client


def lose_share(worker: WorkerProgram, share: Path) -> None:
    """What the worker has there is an empty folder, as after an unmount."""
    _inside(worker, "mount", "-t", "tmpfs", "none", str(share))


def engine_runs(machine: Machine, run_id: str) -> None:
    """A run is `running` before its files are fetched."""
    until(lambda: list((machine.runs / run_id / "home" / ".scripted").rglob("*.jsonl")))


LOST = ("unready", "FILES_UNAVAILABLE")


def test_a_worker_that_has_lost_the_shared_folder_takes_no_turns_until_it_is_back(
    fleet: Fleet, share: Path, share_api: httpx.Client
) -> None:
    api, one, two = share_api, fleet.machine("one"), fleet.machine("two")
    with one.worker("--slots", "4") as worker:
        assert over(api, start(api, "quick"))["state"] == "succeeded"
        lose_share(worker, share)
        # It may take this turn before it notices.
        first = start(api, "quick")
        until(lambda: states(api) == {LOST})
        until(lambda: get(api, first).get("queue_reason") == "unready")
        with two.worker("--slots", "1") as other:
            for run_id in (first, *(start(api, "quick") for _ in range(8))):
                ended = over(api, run_id)
                assert ended["state"] == "succeeded", ended.get("error")
                assert (two.runs / run_id).is_dir()
                assert LOST in states(api)
                assert run_id == first or not (one.runs / run_id).exists()
            assert other.stop() == 0
        assert "starts turns again" not in worker.stderr
        assert "can be used again" not in worker.stderr
        assert worker.stderr.count("starts no turns for now") == 1
        _inside(worker, "umount", str(share))
        assert over(api, start(api, "quick"))["state"] == "succeeded"
        assert worker.stderr.count("starts turns again") == 1


@pytest.mark.long
def test_a_worker_without_the_shared_folder_puts_its_turns_back_when_it_is_stopped(
    fleet: Fleet, share: Path, share_api: httpx.Client
) -> None:
    api, one, two = share_api, fleet.machine("one"), fleet.machine("two")
    with one.worker(env={"ASKBACK_WORKER__DRAIN_SEC": "3600"}) as worker:
        run_id = start(api, "held")
        engine_runs(one, run_id)
        lose_share(worker, share)
        (fleet.folder / "go").touch()
        until(lambda: states(api) == {LOST})
        assert get(api, run_id)["state"] == "running"
        assert worker.stop() == 0
    until(lambda: get(api, run_id)["state"] == "queued")
    with two.worker():
        ended = over(api, run_id)
        assert ended["state"] == "succeeded", ended.get("error")


def empty(folder: Path) -> None:
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


@pytest.mark.parametrize("which", ["runs", pytest.param("data", marks=pytest.mark.long)])
def test_a_worker_whose_folder_is_emptied_loses_no_run(fleet: Fleet, api: httpx.Client, which: str) -> None:
    one = fleet.machine("one")
    with one.worker("--slots", "2", env=ENV) as worker:
        assert over(api, start(api, "quick"))["state"] == "succeeded"
        held = start(api, "asking")
        engine_runs(one, held)
        empty(one.data_dir if which == "data" else one.runs)
        (fleet.folder / "go").touch()
        reach(api, held, "waiting_user")
        assert reply(api, held, "red").status_code == 202
        for run_id in (held, *(start(api, "quick") for _ in range(4))):
            ended = over(api, run_id)
            assert ended["state"] == "succeeded", ended.get("error")
        until(lambda: readiness(worker) == (200, "ok"))


def test_a_worker_whose_data_folder_is_removed_makes_it_again(fleet: Fleet, api: httpx.Client) -> None:
    one = fleet.machine("one")
    with one.worker(env=ENV) as worker:
        assert over(api, start(api, "quick"))["state"] == "succeeded"
        shutil.rmtree(one.data_dir)
        for run_id in [start(api, "quick") for _ in range(4)]:
            ended = over(api, run_id)
            assert ended["state"] == "succeeded", ended.get("error")
        until(lambda: readiness(worker) == (200, "ok"))
        assert one.data_dir.is_dir()
        assert "starts no turns for now" in worker.stderr
