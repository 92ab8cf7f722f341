"""Deleting runs: everything that belongs to a run goes, and a deletion that was killed in the middle is finished."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.app import App
from askback.core.access import AccessScope
from askback.core.errors import NotFound
from support.api import calling, over, refused, reply, start, waiting
from support.data_folder import World, run_async, submit, until
from support.data_folder import over as ended
from support.server import Server

BELOW = ("", "/result", "/events", "/interactions", "/artifacts", "/artifacts/deep/a%20b.txt", "/bundle", "/deliveries")


def upload(client: httpx.Client) -> str:
    return str(client.post("/v1/uploads", files={"file": ("plan.txt", b"the plan")}).json()["upload_id"])


def names_below(folder: Path) -> str:
    """All paths. Other than `rglob`, `walk` tolerates folders that are removed meanwhile."""
    return "\n".join(f"{place}/{name}" for place, folders, files in os.walk(folder) for name in (*folders, *files))


@pytest.mark.contract("J-8")
def test_a_run_that_is_over_is_deleted_with_everything(client: httpx.Client, furnished: World) -> None:
    run_id = waiting(client)
    link = client.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()["url"]
    reply(client, run_id, "blue")
    over(client, run_id)
    deleted = client.delete(f"/v1/runs/{run_id}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    for path in BELOW:
        refused(client.get(f"/v1/runs/{run_id}{path}"), 404, "RUN_NOT_FOUND")
    refused(client.delete(f"/v1/runs/{run_id}"), 404, "RUN_NOT_FOUND")
    refused(client.post(f"/v1/runs/{run_id}/cancel"), 404, "RUN_NOT_FOUND")
    assert run_id not in [run["id"] for run in client.get("/v1/runs").json()["items"]]
    with httpx.Client(timeout=60) as stranger:
        assert stranger.get(link).status_code in (401, 404)
    assert run_id not in names_below(furnished.data_dir)


@pytest.mark.contract("J-8")
def test_a_run_that_is_not_over_is_not_deleted(client: httpx.Client) -> None:
    run_id = waiting(client)
    refused(client.delete(f"/v1/runs/{run_id}"), 409, "RUN_NOT_FINAL")
    assert client.get(f"/v1/runs/{run_id}/interaction").status_code == 200
    reply(client, run_id, "red")
    assert over(client, run_id)["state"] == "succeeded"


@pytest.mark.parametrize("run_id", ["nosuchrun", "..", "%2e%2e", ".", "..%2fuploads", "a%00b"])
def test_an_id_that_is_none_deletes_nothing(client: httpx.Client, furnished: World, run_id: str) -> None:
    kept = waiting(client)
    before = {path.name for path in furnished.data_dir.iterdir()}
    assert client.delete(f"/v1/runs/{run_id}").status_code in (404, 405)
    assert {path.name for path in furnished.data_dir.iterdir()} >= before
    assert client.get(f"/v1/runs/{kept}").status_code == 200


@pytest.mark.contract("J-8")
def test_a_token_that_may_not_submit_may_not_delete(client: httpx.Client, server: Server, furnished: World) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    tokens = Tokens(furnished.records, lambda: datetime.now(UTC))
    reader = tokens.make("reads-only", (AccessScope.READ, AccessScope.ANSWER), None)
    with calling(server.url, reader) as other:
        refused(other.delete(f"/v1/runs/{run_id}"), 403, "SCOPE_MISSING")
    with calling(server.url, None) as stranger:
        assert stranger.delete(f"/v1/runs/{run_id}").status_code == 401
    assert client.get(f"/v1/runs/{run_id}").status_code == 200


@pytest.mark.contract("J-8")
def test_an_upload_goes_with_the_last_run_that_used_it(client: httpx.Client, furnished: World) -> None:
    shared, own = upload(client), upload(client)
    folder = furnished.data_dir / "uploads"
    first = start(client, "reading", input={"plan": {"upload_id": shared}})
    second = start(client, "reading", input={"plan": {"upload_id": shared}})
    asked = waiting(client)
    reply(client, asked, {"upload_id": own})
    for run_id in (first, second, asked):
        over(client, run_id)
    client.delete(f"/v1/runs/{first}")
    assert (folder / shared).exists()
    client.delete(f"/v1/runs/{second}")
    assert not (folder / shared).exists()
    client.delete(f"/v1/runs/{asked}")
    assert not (folder / own).exists()
    body = {"skill": "reading", "engine": "scripted", "input": {"plan": {"upload_id": shared}}}
    refused(client.post("/v1/runs", json=body), 404, "UPLOAD_NOT_FOUND")


def test_the_key_of_a_deleted_run_makes_a_new_one(client: httpx.Client) -> None:
    body, key = {"skill": "quick", "engine": "scripted"}, {"Idempotency-Key": os.urandom(8).hex()}
    first = client.post("/v1/runs", json=body, headers=key).json()["id"]
    over(client, first)
    client.delete(f"/v1/runs/{first}")
    second = client.post("/v1/runs", json=body, headers=key).json()["id"]
    assert second != first
    over(client, second)


async def _marked(app: App, run_id: str) -> None:
    app.workspaces.mark_for_deletion(run_id)


async def _without_files(app: App, run_id: str) -> None:
    await _marked(app, run_id)
    app.workspaces.remove(run_id)


async def _without_rows(app: App, run_id: str) -> None:
    await _without_files(app, run_id)
    await app.store.forget([run_id])


@pytest.mark.contract("J-8")
@pytest.mark.parametrize("killed", [_marked, _without_files, _without_rows])
def test_a_deletion_that_was_killed_in_the_middle_is_finished_by_the_next_start(tmp_path: Path, killed: object) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working() as app:
            run_id = (await ended(app, (await submit(app, skill, mode="auto")).id)).id
            kept = (await ended(app, (await submit(app, skill, mode="auto")).id)).id
            await killed(app, run_id)  # type: ignore[operator]
        async with world.working(serving=True) as app:
            await until(lambda: run_id not in names_below(world.data_dir))
            with pytest.raises(NotFound):
                await app.store.get(run_id)
            assert (await app.store.get(kept)).state.final
            assert (world.data_dir / "runs" / kept).exists()

    run_async(main)
