"""A skill that comes with its run: checked like an installed one, not registered, and gone with the run."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.api import over, reach, refused, reply
from support.data_folder import ASK, COLOUR, FINISH, World

SKILL_MD = "---\nname: travelling\ndescription: Travels with its run.\n---\nDo it.\n"


def packed(files: dict[str, str]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return memory.getvalue()


def skill(*turns: Any, **more: str) -> bytes:
    script = json.dumps({"turns": list(turns)})
    files = {"SKILL.md": SKILL_MD, "assets/scripted.json": script, "assets/output.schema.json": json.dumps(COLOUR)}
    return packed({f"travelling/{name}": text for name, text in {**files, **more}.items()})


def upload(client: httpx.Client, content: bytes, name: str = "travelling.zip") -> dict[str, str]:
    return {"upload_id": client.post("/v1/uploads", files={"file": (name, content)}).json()["upload_id"]}


def create(client: httpx.Client, given: Any, **more: Any) -> httpx.Response:
    return client.post("/v1/runs", json={"skill": given, "engine": "scripted", "mode": "interactive"} | more)


def files_below(world: World, *names: str) -> list[Path]:
    """Other than `rglob`, `walk` tolerates folders that are removed meanwhile."""
    walked = (each for name in names for each in os.walk(world.data_dir / name))
    return sorted(Path(place) / name for place, folders, files in walked for name in (*folders, *files))


@pytest.mark.contract("J-1")
def test_a_skill_travels_with_its_run(client: httpx.Client, furnished: World) -> None:
    registered = client.get("/v1/skills").json()
    packages = files_below(furnished, "packages", "skills")
    given = upload(client, skill([ASK], [FINISH]))
    made = create(client, given)
    assert made.status_code == 201, made.text
    run = made.json()
    assert (run["skill"], run["skill_uploaded"]) == ("travelling", True)
    reach(client, run["id"], "waiting_user")
    reply(client, run["id"], "green")
    assert over(client, run["id"])["state"] == "succeeded"
    assert client.get(f"/v1/runs/{run['id']}/result").json()["data"] == {"colour": "green"}
    assert client.get("/v1/skills").json() == registered
    assert files_below(furnished, "packages", "skills") == packages
    refused(client.get("/v1/skills/travelling"), 404, "SKILL_NOT_FOUND")
    refused(create(client, "travelling"), 404, "SKILL_NOT_FOUND")
    assert client.delete(f"/v1/runs/{run['id']}").status_code == 204
    left = [path for path in files_below(furnished, "runs", "uploads") if run["id"] in str(path)]
    assert left == []
    refused(create(client, given), 404, "UPLOAD_NOT_FOUND")


@pytest.mark.contract("J-1")
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"this is no zip", "SKILL_INVALID"),
        (packed({"a.txt": "no skill"}), "SKILL_INVALID"),
        (packed({"SKILL.md": SKILL_MD, "../../escaped": "x"}), "SKILL_INVALID"),
        (packed({"SKILL.md": SKILL_MD, ".codex/config.toml": "x"}), "SKILL_INVALID"),
        (packed({"SKILL.md": SKILL_MD, "assets/output.schema.json": "{"}), "SKILL_INVALID"),
        (packed({"SKILL.md": SKILL_MD, "bomb": "0" * 60_000_000}), "SKILL_INVALID"),
    ],
    ids=["no zip", "no skill", "escape", "configuration", "schema", "bomb"],
)
def test_it_is_checked_like_an_installed_one(client: httpx.Client, furnished: World, content: bytes, code: str) -> None:
    installed = client.post("/v1/skills", files={"file": ("travelling.zip", content)})
    before = files_below(furnished, "runs")
    told = refused(create(client, upload(client, content)), 422, code)
    assert told["problems"] == refused(installed, 422, code)["problems"]
    assert [path for path in files_below(furnished, "runs") if path not in before and "package" in str(path)] == []
    assert not list(furnished.folder.rglob("escaped"))


@pytest.mark.contract("J-1")
def test_a_request_that_makes_no_run_leaves_no_package(client: httpx.Client, furnished: World) -> None:
    given = upload(client, skill([FINISH]))
    refused(create(client, given, options={"repair_attempts": 99}), 422, "INPUT_INVALID")
    refused(create(client, given, engine="nope"), 422, "ENGINE_UNKNOWN")
    key = {"Idempotency-Key": "travelling-once"}
    body = {"skill": given, "engine": "scripted", "mode": "auto"}
    first = client.post("/v1/runs", json=body, headers=key).json()["id"]
    over(client, first)
    assert client.post("/v1/runs", json=body, headers=key).json()["id"] == first
    unpacked = [path.parent.name for path in furnished.data_dir.glob("runs/*/package")]
    assert [each for each in unpacked if not client.get(f"/v1/runs/{each}").is_success] == []


@pytest.mark.parametrize(
    "given", [{}, {"upload_id": 3}, {"upload_id": "../x"}, {"upload_id": "up-0", "x": 1}, ["a"], 7, None, ""]
)
def test_what_names_no_skill_is_refused(client: httpx.Client, given: Any) -> None:
    assert create(client, given).status_code in (404, 422)


@pytest.mark.contract("J-1")
def test_a_skill_that_engines_changed_is_not_run_again(client: httpx.Client, furnished: World) -> None:
    run_id = create(client, upload(client, skill([ASK], [FINISH]))).json()["id"]
    reach(client, run_id, "waiting_user")
    package = furnished.data_dir / "runs" / run_id / "package" / "SKILL.md"
    package.write_text(SKILL_MD + "And more.\n")
    reply(client, run_id, "green")
    ended = over(client, run_id)
    assert ended["state"] == "failed"
