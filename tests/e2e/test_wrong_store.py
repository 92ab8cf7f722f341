"""A worker that is set up with another bucket, or with none, takes no run: the archives of waiting runs are not lost."""

from __future__ import annotations

import pytest

from support.api import calling, get, over, reach, reply, start
from support.data_folder import ASK, FINISH
from support.machines import Fleet, Machine
from support.object_store import CREDENTIALS, S3Server
from support.program import Ran, Started

ENV = {**CREDENTIALS, "ASKBACK_FLEET__LEASE_SEC": "6"}


def refused(machine: Machine, **env: str) -> Ran:
    """A worker that ends at its start."""
    given = {name: value for name, value in {**machine.env, **ENV, **env}.items() if value}
    with Started(machine, "worker", "--port", "0", env=given, program=machine.program) as program:
        return program.ended()


@pytest.mark.contract("M-5")
def test_a_worker_with_another_bucket_fails_no_run(fleet: Fleet, s3_server: S3Server) -> None:
    api, one, two, three = (fleet.machine(name) for name in ("api", "one", "two", "three"))
    api.skill([ASK], [FINISH], name="asking")
    other = s3_server.make_bucket()
    with api.server(env=ENV) as server, calling(server.url, server.token) as client:
        with one.worker(env=ENV) as worker:
            run_id = start(client, "asking")
            reach(client, run_id, "waiting_user")
            assert worker.stop() == 0
        one.lose_disk()
        assert reply(client, run_id, "red").status_code == 202
        wrong = refused(two, ASKBACK_FILES=other.address)
        assert (wrong.code, "askback-store.json" in wrong.stderr) == (1, True), wrong.stderr
        unset = refused(two, ASKBACK_FILES="")
        assert (unset.code, "the setting `files` is not set" in unset.stderr) == (1, True), unset.stderr
        assert get(client, run_id)["state"] == "queued"
        with three.worker(env=ENV):
            assert over(client, run_id)["state"] == "succeeded"
    other.close()
