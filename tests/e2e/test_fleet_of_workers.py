"""Two servers that execute nothing, and workers with different engines, on one PostgreSQL database and one data folder."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from support import postgres
from support.api import calling, get, over, reach, refused, reply, start, waiting
from support.data_folder import FINISH, World
from support.postgres import databases
from support.program import askback, until, work_folder
from support.server import Server
from support.workers import Worker, install_second_engine, know_second_engine, machine_for_second_engine

ASKING = {"ask": {"interaction_id": "colour", "prompt": "Which colour?"}}
HELD = [{"touch": "started"}, {"wait_for": "go"}, ASKING]
STICKY = {"interactive_profile": "sticky_process"}
LEASE = {"ASKBACK_FLEET__LEASE_SEC": "6"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server without a worker, and a client of it."""

    world: World
    server: Server
    client: httpx.Client

    def worker(self, *args: str, **env: str) -> Worker:
        return Worker(self.world, *args, env=LEASE | know_second_engine(self.world.folder) | env)

    def second_worker(self, *args: str) -> Worker:
        """The engine `second` can be installed on its machine, and has one slot there."""
        env = machine_for_second_engine(self.world.folder)
        return self.worker(*args, **env, ASKBACK_ENGINES__SECOND__SLOTS="1")

    def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get("/v1/workers").json()["items"]
        return found

    def has(self, engine: str, count: int = 1) -> bool:
        """Whether so many workers start turns of this engine."""
        (found,) = [each for each in self.client.get("/v1/engines").json()["items"] if each["name"] == engine]
        return bool(found["workers"] == count)

    def held_run(self, **rest: Any) -> str:
        run_id = start(self.client, "held", **rest)
        until(lambda: (work_folder(self.world, run_id) / "started").exists())
        return run_id

    def let_go(self, run_id: str) -> None:
        (work_folder(self.world, run_id) / "go").touch()


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("fleet")
    with databases.chosen(True):
        world = World(folder)
        world.skill([ASKING], [FINISH], name="asking")
        world.skill(HELD, [FINISH], name="held")
        env = LEASE | know_second_engine(folder)
        with Server(world, "--no-worker", env=env) as server, calling(server.url, server.token) as client:
            yield Site(world=world, server=server, client=client)


@pytest.fixture
def site(shared_site: Site) -> Site:
    """Without the workers of the test before, which are listed until their leases end."""
    until(lambda: shared_site.workers() == [])
    return shared_site


def processes(client: httpx.Client, run_id: str) -> list[str]:
    """The kind of process that each turn got."""
    events = client.get(f"/v1/runs/{run_id}/events").json()["items"]
    return [event["data"]["process"] for event in events if event["type"] == "turn.started"]


def test_without_a_worker_only_a_named_engine_is_accepted(site: Site) -> None:
    with httpx.Client(base_url=site.server.url, headers={"authorization": f"Bearer {site.server.token}"}) as client:
        response = client.post("/v1/runs", json={"skill": "asking"})
    assert response.status_code == 503
    assert response.json()["code"] == "NO_WORKER"
    assert "askback worker" in response.json()["detail"]
    run_id = start(site.client)
    assert get(site.client, run_id)["queue_reason"] == "no_worker"
    health = site.client.get("/healthz").json()
    assert (health["status"], health["workers"], health["slots"]) == ("ok", 0, {"total": 0, "taken": 0})
    assert site.client.post(f"/v1/runs/{run_id}/cancel").status_code == 202
    told = refused(site.client.post("/v1/runs", json={"skill": "asking", "engine": "unknown"}), 422, "ENGINE_UNKNOWN")
    assert "second" in told["detail"]


@pytest.mark.contract("M-3")
def test_a_turn_runs_only_on_a_worker_that_has_its_engine(site: Site) -> None:
    with site.worker("--slots", "1", "--label", "zone=eu"):
        until(lambda: site.has("scripted"))
        foreign = start(site.client, engine="second")
        assert over_or_waiting(site.client, start(site.client)) == "waiting_user"
        run = get(site.client, foreign)
        assert (run["state"], run["queue_reason"]) == ("queued", "no_worker")
        with site.second_worker("--slots", "2", "--engines", "second") as second:
            until(lambda: len(site.workers()) == 2)
            assert get(site.client, foreign)["queue_reason"] == "no_worker"
            install_second_engine(site.world.folder)
            reach(site.client, foreign, "waiting_user")
            until(lambda: site.has("second"))
            assert site.has("scripted")
            held = site.held_run(engine="scripted")
            other = start(site.client, "held", engine="scripted")
            until(lambda: get(site.client, other).get("queue_reason") == "slots")
            at_second = site.held_run(engine="second")
            next_there = start(site.client, "held", engine="second")
            until(lambda: get(site.client, next_there).get("queue_reason") == "engine_slots")
            by_label = {worker["labels"].get("zone"): worker for worker in until_taken(site, [1, 1])}
            assert [engine["name"] for engine in by_label["eu"]["engines"]] == ["scripted"]
            assert [engine["name"] for engine in by_label[None]["engines"]] == ["second"]
            assert by_label[None]["pid"] == second.process.pid
            for run_id in (held, at_second, other, next_there):
                until(lambda run_id=run_id: (work_folder(site.world, run_id) / "started").exists())
                site.let_go(run_id)
                reach(site.client, run_id, "waiting_user")
            assert second.kill(signal.SIGTERM) == 0
        until(lambda: site.has("second", 0))


def over_or_waiting(client: httpx.Client, run_id: str) -> str:
    return str(reach(client, run_id, "waiting_user", "failed")["state"])


def until_taken(site: Site, taken: list[int]) -> list[dict[str, Any]]:
    """The workers, once so many slots of theirs are taken."""
    until(lambda: sorted(each["slots"]["taken"] for each in site.workers()) == taken)
    return site.workers()


def test_workers_are_listed_with_their_state(site: Site) -> None:
    with site.worker("--slots", "3", "--label", "zone=us") as worker:
        until(lambda: site.has("scripted"))
        (listed,) = [each for each in site.workers() if each["pid"] == worker.process.pid]
        assert (listed["kind"], listed["state"], listed["labels"]) == ("worker", "alive", {"zone": "us"})
        assert listed["slots"] == {"total": 3, "taken": 0}
        told = askback(site.world, "workers", "--json").json
        assert [each["name"] for each in told if each["state"] == "alive"] == [listed["name"]]
        shown = askback(site.world, "workers").stdout
        assert "zone=us" in shown
        assert "0 of 3 slots taken" in shown
        run_id = site.held_run()
        worker.process.send_signal(signal.SIGTERM)
        until(lambda: any(each["state"] == "draining" for each in site.workers()))
        queued = start(site.client)
        until(lambda: get(site.client, queued).get("queue_reason") == "no_worker")
        site.let_go(run_id)
        assert worker.process.wait(120) == 0
        assert get(site.client, run_id)["state"] == "waiting_user"
        assert site.client.post(f"/v1/runs/{queued}/cancel").status_code == 202


@pytest.mark.contract("M-6")
def test_a_sticky_process_is_answered_on_its_worker_and_lost_with_it(site: Site) -> None:
    with site.worker("--slots", "2") as worker:
        until(lambda: site.has("scripted"))
        answered, lost = (waiting(site.client, options=STICKY) for _ in range(2))
        with site.worker("--slots", "2") as other:
            until(lambda: site.has("scripted", 2))
            assert reply(site.client, answered, "red").status_code == 202
            assert over(site.client, answered)["state"] == "succeeded"
            assert len(site.world.sessions(answered)) == 1
            worker.kill()
            run = over(site.client, lost)
            assert (run["state"], run["error"]["code"]) == ("failed", "INTERACTION_PROCESS_LOST")
            assert other.process.poll() is None


@pytest.mark.contract("M-6")
def test_a_warm_process_gets_its_reply_and_is_replaced_elsewhere(site: Site) -> None:
    with site.worker("--slots", "2", ASKBACK_WARM_SEC="600") as worker:
        until(lambda: site.has("scripted"))
        kept, moved = waiting(site.client), waiting(site.client)
        assert reply(site.client, kept, "red").status_code == 202
        assert over(site.client, kept)["state"] == "succeeded"
        assert processes(site.client, kept) == ["new", "warm"]
        worker.kill()
    with site.worker():
        assert reply(site.client, moved, "blue").status_code == 202
        assert over(site.client, moved)["state"] == "succeeded"
        assert processes(site.client, moved) == ["new", "new"]
        assert len(site.world.prompts(moved)) == 2


@pytest.mark.contract("M-7")
def test_the_events_of_a_run_are_streamed_by_every_server(site: Site) -> None:
    env = LEASE | know_second_engine(site.world.folder)
    with (
        Server(site.world, "--no-worker", env=env) as other,
        site.worker(),
        calling(other.url, other.token) as elsewhere,
    ):
        run_id = start(site.client)
        with elsewhere.stream("GET", f"/v1/runs/{run_id}/events", headers={"accept": "text/event-stream"}) as stream:
            seen = []
            for line in stream.iter_lines():
                if not line.startswith("data: "):
                    continue
                seen.append(json.loads(line.removeprefix("data: ")))
                if seen[-1]["type"] == "interaction.asked":
                    assert reply(elsewhere, run_id, "green").status_code == 202
        stored = site.client.get(f"/v1/runs/{run_id}/events").json()["items"]
        assert [each["seq"] for each in seen] == [each["seq"] for each in stored]
        assert over(site.client, run_id)["state"] == "succeeded"


@pytest.mark.long
def test_restarting_workers_one_by_one_loses_nothing(site: Site) -> None:
    first = site.worker("--slots", "1")
    with first:
        until(lambda: site.has("scripted"))
        runs = [start(site.client, "held") for _ in range(3)]
        until(lambda: (work_folder(site.world, runs[0]) / "started").exists())
        with site.worker("--slots", "1"):
            first.process.send_signal(signal.SIGTERM)
            for run_id in runs:
                until(lambda run_id=run_id: (work_folder(site.world, run_id) / "started").exists())
                site.let_go(run_id)
            assert first.process.wait(120) == 0
            for run_id in runs:
                reach(site.client, run_id, "waiting_user")
                assert processes(site.client, run_id) == ["new"]
