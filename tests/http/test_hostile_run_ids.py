"""A run id of a caller or a document is an id or it is refused: it never becomes another path."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from askback.core.runs import is_run_id
from askback.store.sql.rows import load_run, stored
from askback.workspace.uploads import Uploads
from askback.workspace.workspaces import Workspaces
from support.api import calling
from support.asking import asking
from support.data_folder import ASK, World
from support.server import Server

HOSTILE = (
    "../../../victim",
    "..",
    ".",
    "a/b",
    "/etc/passwd",
    "",
    "a\x00b",
    "a\n",
    "ß",
    "x" * 65,
    "-rf",
    "*",
    ".hidden",
)


def test_a_document_with_a_path_as_id_is_no_run() -> None:
    _, doc = stored(asking("Which?", []))
    assert load_run(doc).id == "1m7gekfsksrgk77s"
    for text in HOSTILE:
        assert not is_run_id(text)
        changed = msgspec.json.decode(doc) | {"id": text}
        with pytest.raises(msgspec.ValidationError):
            load_run(msgspec.json.encode(changed).decode())


def test_names_in_a_data_folder_that_are_no_ids_are_left_alone(tmp_path: Path) -> None:
    for name in (".hidden", "a b", "run1"):
        for folder in ("runs", "deleting", "sign-ins"):
            (tmp_path / folder / name).mkdir(parents=True)
    workspaces = Workspaces(tmp_path / "runs")
    assert workspaces.run_ids() == workspaces.marked_for_deletion() == ["run1"]
    assert workspaces.sizes().keys() == {"run1"}
    assert workspaces.never_started(before=2e12) == ["run1"]


def test_only_uploads_are_discarded(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    Uploads(tmp_path / "uploads").discard("../victim")
    assert (tmp_path / "victim").is_dir()


def test_a_caller_gets_no_other_path_than_that_of_a_run(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    skill = world.skill([ASK], name="asking")
    with Server(world) as server, calling(server.url, server.token) as client:
        for text in ("../../../victim", "..", "x" * 65):
            named = {"skill": Path(skill).name, "engine": "scripted", "from_run": {"run_id": text}}
            refused = client.post("/v1/runs", json=named)
            assert (refused.status_code, refused.json()["code"]) == (404, "RUN_NOT_FOUND"), refused.text
        assert client.get("/v1/runs/..%2F..%2Fvictim").status_code == 404
