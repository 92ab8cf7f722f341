"""Files over HTTP: uploads as inputs, artifacts one by one and as a bundle, and what an engine may plant among them."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from support.api import get_exactly, over, refused, reply, start, waiting
from support.data_folder import World
from support.server import Server

CANARY = "the user's own key"


def upload(client: httpx.Client, name: str = "plan.txt", content: bytes = b"the plan") -> httpx.Response:
    return client.post("/v1/uploads", files={"file": (name, content)})


def artifacts(world: World, run_id: str) -> Path:
    return world.data_dir / "runs" / run_id / "work" / "artifacts"


def test_an_upload_is_an_input(client: httpx.Client, furnished: World) -> None:
    made = upload(client)
    assert made.status_code == 201
    assert (made.json()["name"], made.json()["size"]) == ("plan.txt", 8)
    run_id = start(client, "reading", input={"plan": {"upload_id": made.json()["upload_id"]}})
    over(client, run_id)
    staged = furnished.data_dir / "runs" / run_id / "work" / "inputs" / "plan" / "plan.txt"
    assert staged.read_bytes() == b"the plan"
    again = start(client, "reading", input={"plan": {"upload_id": made.json()["upload_id"]}})
    over(client, again)


def test_a_request_that_makes_no_new_run_leaves_no_files(client: httpx.Client, furnished: World) -> None:
    body = {
        "skill": "reading",
        "engine": "scripted",
        "input": {"plan": {"upload_id": upload(client).json()["upload_id"]}},
    }
    key = {"Idempotency-Key": os.urandom(8).hex()}
    first = client.post("/v1/runs", json=body, headers=key).json()["id"]
    over(client, first)
    before = set((furnished.data_dir / "runs").iterdir())
    assert client.post("/v1/runs", json=body, headers=key).json()["id"] == first
    refused(client.post("/v1/runs", json=body | {"mode": "auto"}, headers=key), 422, "IDEMPOTENCY_KEY_REUSED")
    refused(
        client.post("/v1/runs", json=body | {"parameter": {"a": "\x00" * 9}, "options": {"x": 1}}), 422, "INPUT_INVALID"
    )
    assert set((furnished.data_dir / "runs").iterdir()) == before


@pytest.mark.parametrize(
    "upload_id", ["", "up-0", "../token", "..", "up-00000000000000000000000g", "/etc/passwd", "up-\x00"]
)
def test_an_upload_id_that_is_none_is_not_found(client: httpx.Client, upload_id: str) -> None:
    body = {"skill": "reading", "engine": "scripted", "input": {"plan": {"upload_id": upload_id}}}
    refused(client.post("/v1/runs", json=body), 404, "UPLOAD_NOT_FOUND")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../.ssh/authorized_keys", "authorized_keys"),
        ("C:\\Users\\a\\b.txt", "b.txt"),
        (".bashrc", "bashrc"),
        ("..", "file"),
        ("Grüße 1.pdf", "Grüße 1.pdf"),
        ("a" * 300 + ".pdf", "a" * 25 + ".pdf"),
    ],
)
def test_an_upload_keeps_of_its_name_what_is_a_name(client: httpx.Client, name: str, kept: str) -> None:
    made = upload(client, name)
    assert (made.status_code, made.json()["name"]) == (201, kept)


def test_only_a_form_with_a_file_is_an_upload(client: httpx.Client) -> None:
    missing = client.post("/v1/uploads", files={"other": ("a.txt", b"x")})
    refused(missing, 422, "REQUEST_INVALID")
    refused(client.post("/v1/uploads", data={"file": "a text"}), 415, "MEDIA_TYPE_UNSUPPORTED")
    refused(client.post("/v1/uploads", json={"file": {"path": "/etc/passwd"}}), 415, "MEDIA_TYPE_UNSUPPORTED")
    refused(client.post("/v1/uploads"), 415, "MEDIA_TYPE_UNSUPPORTED")
    field = client.post("/v1/uploads", files={"file": (None, b"a field, no file")})
    refused(field, 422, "REQUEST_INVALID")


# Artifacts.


def test_artifacts_come_one_by_one_and_as_a_bundle(client: httpx.Client, furnished: World) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    folder = artifacts(furnished, run_id)
    (folder / "deep").mkdir()
    (folder / "deep" / "a b.html").write_text("<script>alert(1)</script>")
    (folder / "größe.bin").write_bytes(bytes(range(256)) * 2000)
    (folder / "empty").touch()
    listed = client.get(f"/v1/runs/{run_id}/artifacts").json()
    assert listed == {
        "items": [
            {"path": "empty", "size": 0},
            {"path": "größe.bin", "size": 512_000},
            {"path": "deep/a b.html", "size": 25},
        ],
        "next_cursor": None,
    }
    page = client.get(f"/v1/runs/{run_id}/artifacts/deep/a b.html")
    assert page.text == "<script>alert(1)</script>"
    assert page.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20b.html"
    assert page.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert page.headers["x-content-type-options"] == "nosniff"
    binary = client.get(f"/v1/runs/{run_id}/artifacts/größe.bin")
    assert binary.content == bytes(range(256)) * 2000
    assert client.get(f"/v1/runs/{run_id}/artifacts/empty").content == b""
    bundle = client.get(f"/v1/runs/{run_id}/bundle")
    assert bundle.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(bundle.content)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["deep/a b.html", "empty", "größe.bin"]
        assert archive.read("größe.bin") == bytes(range(256)) * 2000


@pytest.mark.parametrize(
    "path",
    [
        "../../../token",
        "..%2f..%2f..%2ftoken",
        "%2e%2e/%2e%2e/%2e%2e/token",
        "..%252f..%252ftoken",
        "%2fetc%2fpasswd",
        "//etc/passwd",
        "./a.txt",
        "a.txt/",
        "a.txt/.",
        "a.txt%00",
        "%00",
        "a%5c..%5ca.txt",
        "%e2%80%a5/token",
        "%ff%fe",
        "a" * 5000,
        "a/" * 2000,
        "deep",
        "%0d%0aX-Injected:%20yes",
    ],
)
def test_no_path_leads_out_of_the_artifacts(server: Server, client: httpx.Client, furnished: World, path: str) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    folder = artifacts(furnished, run_id)
    (folder / "a.txt").write_text("a")
    (folder / "deep").mkdir()
    status, came = get_exactly(server, f"/v1/runs/{run_id}/artifacts/{path}")
    assert status == 404, came
    assert b'"ARTIFACT_NOT_FOUND"' in came
    assert b"x-injected" not in came.partition(b"\r\n\r\n")[0].lower()


def test_what_an_engine_plants_is_neither_listed_nor_followed(client: httpx.Client, furnished: World) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    folder = artifacts(furnished, run_id)
    secret = furnished.folder / "secret"
    secret.mkdir(exist_ok=True)
    (secret / "key").write_text(CANARY)
    (folder / "link").symlink_to(secret / "key")
    (folder / "folder").symlink_to(secret)
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "plain.txt").write_text("plain")
    listed = client.get(f"/v1/runs/{run_id}/artifacts").json()["items"]
    assert listed == [{"path": "plain.txt", "size": 5}]
    for path in ("link", "folder/key", "folder", "dangling", "loop", "pipe"):
        refused(client.get(f"/v1/runs/{run_id}/artifacts/{path}"), 404, "ARTIFACT_NOT_FOUND")
    with zipfile.ZipFile(io.BytesIO(client.get(f"/v1/runs/{run_id}/bundle").content)) as archive:
        assert archive.namelist() == ["plain.txt"]
    assert client.get(f"/v1/runs/{run_id}/result").json()["artifacts"] == listed


def test_a_working_directory_that_became_a_link_has_no_artifacts(client: httpx.Client, furnished: World) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    elsewhere = furnished.folder / f"elsewhere-{run_id}" / "artifacts"
    elsewhere.mkdir(parents=True)
    (elsewhere / "key").write_text(CANARY)
    work = furnished.data_dir / "runs" / run_id / "work"
    work.rename(work.with_name("moved"))
    work.symlink_to(elsewhere.parent)
    assert client.get(f"/v1/runs/{run_id}/artifacts").json()["items"] == []
    refused(client.get(f"/v1/runs/{run_id}/artifacts/key"), 404, "ARTIFACT_NOT_FOUND")
    assert CANARY.encode() not in client.get(f"/v1/runs/{run_id}/bundle").content


@pytest.mark.parametrize(
    "name",
    [
        b"data:text/html\r\nX-Injected: yes,a",
        b"data:,a.html",
        b"new\nline.txt",
        b'quo"te;.txt',
        "\u202egnp.exe".encode(),
        b"a.txt;.svg",
        b"%2e%2e",
    ],
)
def test_a_file_s_name_cannot_say_more_than_a_name(client: httpx.Client, furnished: World, name: bytes) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    file = artifacts(furnished, run_id) / os.fsdecode(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")
    (listed,) = client.get(f"/v1/runs/{run_id}/artifacts").json()["items"]
    assert listed["path"] == name.decode()
    answer = client.get(f"/v1/runs/{run_id}/artifacts/{quote(name, safe='')}")
    assert (answer.status_code, answer.text) == (200, "x")
    assert "x-injected" not in answer.headers
    assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"


def test_names_that_are_no_text_spoil_nothing(client: httpx.Client, furnished: World) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    folder = artifacts(furnished, run_id)
    Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff\xfe.txt")).write_text("x")
    (folder / "good.txt").write_text("good")
    assert client.get(f"/v1/runs/{run_id}/artifacts").json()["items"] == [{"path": "good.txt", "size": 4}]
    assert client.get(f"/v1/runs/{run_id}/result").json()["artifacts"] == [{"path": "good.txt", "size": 4}]
    with zipfile.ZipFile(io.BytesIO(client.get(f"/v1/runs/{run_id}/bundle").content)) as archive:
        assert archive.namelist() == ["good.txt"]


def test_a_link_in_the_place_of_the_inputs_does_not_lead_a_file_out(client: httpx.Client, furnished: World) -> None:
    run_id = waiting(client)
    outside = furnished.folder / f"outside-{run_id}"
    outside.mkdir()
    (furnished.data_dir / "runs" / run_id / "work" / "inputs").symlink_to(outside)
    upload_id = upload(client, "authorized_keys").json()["upload_id"]
    assert reply(client, run_id, {"upload_id": upload_id}).status_code == 202
    over(client, run_id)
    assert list(outside.iterdir()) == []
