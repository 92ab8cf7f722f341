"""A run is deleted on one machine: the others that have files of it remove them, also those that were down meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from support.api import calling, over, reach, reply, start
from support.data_folder import ASK, FINISH
from support.machines import Fleet, Machine
from support.object_store import CREDENTIALS
from support.program import until

WRITE = {"write": {"path": "artifacts/plan.txt", "text": "the plan"}}
SCHEMAS = {"input": {"type": "object", "properties": {"text": {"type": "string", "x-input-source": "file"}}}}


@pytest.fixture
def first(fleet: Fleet) -> Machine:
    machine = fleet.machine("first")
    machine.skill([WRITE, ASK], [FINISH], name="asking")
    return machine


@pytest.fixture
def api(first: Machine) -> Iterator[httpx.Client]:
    with first.server(env=CREDENTIALS) as server, calling(server.url, server.token) as client:
        yield client


def finished(api: httpx.Client) -> str:
    run_id = start(api, "asking")
    reach(api, run_id, "waiting_user")
    assert reply(api, run_id, "red").status_code == 202
    assert over(api, run_id)["state"] == "succeeded"
    return run_id


def has_files(machine: Machine, run_id: str) -> bool:
    return (machine.runs / run_id).exists()


@pytest.mark.contract("J-8")
def test_a_deleted_run_leaves_no_files_on_the_worker_and_no_other_run_loses_any(
    fleet: Fleet, api: httpx.Client
) -> None:
    worker = fleet.machine("worker")
    with worker.worker(env=CREDENTIALS):
        waiting = start(api, "asking")
        reach(api, waiting, "waiting_user")
        run_id = finished(api)
        assert has_files(worker, run_id)
        assert api.delete(f"/v1/runs/{run_id}").status_code == 204
        until(lambda: not has_files(worker, run_id))
        assert has_files(worker, waiting)
        assert reply(api, waiting, "red").status_code == 202
        assert over(api, waiting)["state"] == "succeeded"
    assert not list((worker.data_dir / "deleting").glob("*"))


@pytest.mark.contract("J-8")
def test_a_worker_that_was_down_removes_the_files_of_runs_that_were_deleted_meanwhile(
    fleet: Fleet, api: httpx.Client
) -> None:
    worker = fleet.machine("worker")
    with worker.worker(env=CREDENTIALS) as program:
        kept, run_id = finished(api), finished(api)
        assert program.stop() == 0
    assert api.delete(f"/v1/runs/{run_id}").status_code == 204
    assert has_files(worker, run_id)
    with worker.worker(env=CREDENTIALS):
        until(lambda: not has_files(worker, run_id))
    assert has_files(worker, kept)


@pytest.mark.contract("J-8")
def test_a_run_that_has_expired_leaves_no_files_on_the_worker(fleet: Fleet, first: Machine) -> None:
    worker = fleet.machine("worker")
    with worker.worker(env=CREDENTIALS):
        with first.server(env=CREDENTIALS) as server, calling(server.url, server.token) as client:
            run_id = finished(client)
            assert server.stop() == 0
        assert has_files(worker, run_id)
        with first.server(env={**CREDENTIALS, "ASKBACK_RETENTION__DAYS": "0.000001"}):
            until(lambda: not has_files(worker, run_id))


@pytest.mark.contract("J-8")
def test_a_server_removes_the_input_of_a_run_that_another_server_has_deleted(
    fleet: Fleet, first: Machine, api: httpx.Client
) -> None:
    first.skill([FINISH], name="reading", schemas=SCHEMAS)
    second = fleet.machine("second")
    upload = api.post("/v1/uploads", files={"file": ("secret.txt", b"a customer's text")}).json()["upload_id"]
    run_id = start(api, "reading", input={"text": {"upload_id": upload}})
    copies = [*first.runs.rglob("secret.txt"), *first.data_dir.rglob("secret.txt")]
    assert len(copies) == 2
    assert api.post(f"/v1/runs/{run_id}/cancel").status_code in (200, 202)
    over(api, run_id)
    with second.server(env=CREDENTIALS) as server, calling(server.url, server.token) as client:
        assert client.delete(f"/v1/runs/{run_id}").status_code == 204
    until(lambda: not (has_files(first, run_id) or any(path.exists() for path in copies)))
