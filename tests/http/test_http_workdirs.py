"""Runs in a folder of the server's machine, over HTTP: only where the settings allow it, and what is shown of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.api import calling, over, refused, reply, start, waiting
from support.data_folder import ASK, World
from support.repositories import contents, repository
from support.server import Server

BODY = {"skill": "editing", "engine": "scripted", "mode": "interactive"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "allowed/repo")


@pytest.fixture
def server(tmp_path: Path, repo: Path) -> Iterator[Server]:
    world = World(tmp_path / "askback")
    edit = {"write": {"path": "site.css", "text": "{{reply}}\n"}}
    report = {"write": {"path": "artifacts/report.md", "text": "done\n"}}
    world.skill([ASK], [edit, report, {"finish": {"colour": "{{reply}}"}}], name="editing")
    with Server(world, env={"ASKBACK_WORKDIRS": str(tmp_path / "allowed")}) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with calling(server.url, server.token) as client:
        yield client


@pytest.mark.contract("J-6")
def test_a_run_works_in_an_allowed_folder_and_tells_what_it_changed(client: httpx.Client, repo: Path) -> None:
    run_id = waiting(client, "editing", workdir=str(repo))
    shown = client.get(f"/v1/runs/{run_id}").json()
    assert shown["workdir"] == str(repo)
    told = refused(client.post("/v1/runs", json=BODY | {"workdir": str(repo)}), 409, "WORKDIR_IN_USE")
    assert run_id in told["detail"]
    reply(client, run_id, "blue")
    over(client, run_id)
    result = client.get(f"/v1/runs/{run_id}/result").json()
    assert result["changes"] == {
        "files": [{"path": "site.css", "status": "modified", "insertions": 1, "deletions": 1}],
        "total": 1,
        "insertions": 1,
        "deletions": 1,
        "unavailable": None,
    }
    assert [each["path"] for each in result["artifacts"]] == ["report.md"]
    assert client.get(f"/v1/runs/{run_id}/artifacts/report.md").text == "done\n"
    left = contents(repo)
    assert client.delete(f"/v1/runs/{run_id}").status_code == 204
    assert contents(repo) == left
    assert left["site.css"] == b"blue\n"


@pytest.mark.contract("J-6")
def test_a_folder_that_is_not_allowed_is_refused_and_untouched(
    client: httpx.Client, repo: Path, tmp_path: Path
) -> None:
    outside = repository(tmp_path / "outside")
    (tmp_path / "allowed/out").symlink_to(outside)
    before = contents(outside)
    for path in (outside, tmp_path / "allowed/out", f"{repo}/../../outside", "/etc", "/", "/nothing"):
        refused(client.post("/v1/runs", json=BODY | {"workdir": str(path)}), 403, "WORKDIR_NOT_ALLOWED")
    told = refused(client.post("/v1/runs", json=BODY | {"workdir": f"{repo}/nothing"}), 422, "INPUT_INVALID")
    assert told["problems"] == [f"workdir: {repo}/nothing does not exist"]
    refused(client.post("/v1/runs", json=BODY | {"workdir": ""}), 422, "REQUEST_INVALID")
    assert contents(outside) == before


@pytest.mark.contract("J-6")
def test_without_the_setting_no_folder_is_allowed(tmp_path: Path, repo: Path, own_world: World) -> None:
    with Server(own_world) as server, calling(server.url, server.token) as client:
        body = {"skill": "asking", "engine": "scripted", "workdir": str(repo)}
        told = refused(client.post("/v1/runs", json=body), 403, "WORKDIR_NOT_ALLOWED")
        assert "`workdirs`" in told["detail"]
        run_id = start(client, "quick")
        over(client, run_id)
        assert "changes" not in client.get(f"/v1/runs/{run_id}/result").json()


def test_the_client_starts_a_run_in_a_folder(server: Server, repo: Path) -> None:
    with server.client() as client:
        run = client.create_run("editing", engine="scripted", mode="interactive", workdir=str(repo))
        question = client.wait(run.id).pending_interaction
        assert question is not None
        client.reply(run.id, question.interaction_id, "blue")
        assert client.wait(run.id).workdir == str(repo)
        changes = client.result(run.id).changes
        assert changes is not None
        assert [each.path for each in changes.files] == ["site.css"]
