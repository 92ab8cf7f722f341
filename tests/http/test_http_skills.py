"""Skills, engines and the server itself over HTTP."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback import __version__
from askback.worker.warm_pool import DropReason
from support.api import over, refused, start
from support.data_folder import World

SKILL_MD = "---\nname: {name}\ndescription: Packed for a test.\n---\nDo it.\n"
SCRIPT = json.dumps({"turns": [[{"finish": {"ok": True}}]]})


def packed(name: str, version: str | None = None, **more: str | bytes) -> bytes:
    """A zip of a skill."""
    files: dict[str, str | bytes] = {"SKILL.md": SKILL_MD.format(name=name), "assets/scripted.json": SCRIPT, **more}
    if version is not None:
        files["assets/runner.json"] = json.dumps({"id": name, "version": version, "execution_modes": ["auto"]})
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return target.getvalue()


def install(client: httpx.Client, content: bytes) -> httpx.Response:
    return client.post("/v1/skills", content=content, headers={"content-type": "application/zip"})


def test_a_skill_is_installed_run_and_deleted(client: httpx.Client) -> None:
    made = install(client, packed("posted"))
    assert made.status_code == 201, made.text
    assert (made.json()["id"], made.json()["installed"]) == ("posted", True)
    assert made.headers["location"] == "/v1/skills/posted"
    assert "posted" in [each["id"] for each in client.get("/v1/skills").json()["items"]]
    run_id = start(client, "posted", mode="auto")
    assert over(client, run_id)["state"] == "succeeded"
    gone = client.delete("/v1/skills/posted")
    assert (gone.status_code, gone.content) == (204, b"")
    refused(client.delete("/v1/skills/posted"), 404, "SKILL_NOT_FOUND")
    refused(client.get("/v1/skills/posted"), 404, "SKILL_NOT_FOUND")
    refused(client.post("/v1/runs", json={"skill": "posted", "engine": "scripted"}), 404, "SKILL_NOT_FOUND")
    assert client.get(f"/v1/runs/{run_id}/result").json()["data"] == {"ok": True}


def test_the_files_of_a_skill_are_listed_and_downloaded(client: httpx.Client) -> None:
    data = bytes(range(256))
    install(client, packed("listing", **{"assets/a b/ü.bin": data, "empty.txt": b""}))
    files = {each["path"]: each for each in client.get("/v1/skills/listing/files").json()["items"]}
    assert list(files) == ["SKILL.md", "assets/a b/ü.bin", "assets/scripted.json", "empty.txt"]
    for path, file in files.items():
        got = client.get(f"/v1/skills/listing/files/{path}")
        assert got.headers["content-disposition"].startswith("attachment")
        assert (len(got.content), hashlib.sha256(got.content).hexdigest()) == (file["size"], file["digest"])
    assert client.get("/v1/skills/listing/files/assets/a%20b/%C3%BC.bin").content == data
    for path in ("nothing", "assets", "assets/%2e%2e/SKILL.md", "%2e%2e/secret", "/etc/hostname", "a%00b", ""):
        refused(client.get(f"/v1/skills/listing/files/{path}"), 404, "SKILL_FILE_NOT_FOUND")
    refused(client.get("/v1/skills/no-such-skill/files"), 404, "SKILL_NOT_FOUND")
    refused(client.get("/v1/skills/no-such-skill/files/SKILL.md"), 404, "SKILL_NOT_FOUND")


def test_a_file_that_is_not_part_of_the_package_is_not_downloaded(client: httpx.Client, furnished: World) -> None:
    folder = Path(furnished.skill([{"finish": {"colour": "red"}}], name="checked-out"))
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("secret")
    listed = [each["path"] for each in client.get("/v1/skills/checked-out/files").json()["items"]]
    assert listed == ["SKILL.md", "assets/output.schema.json", "assets/scripted.json"]
    refused(client.get("/v1/skills/checked-out/files/.git/config"), 404, "SKILL_FILE_NOT_FOUND")
    (folder / "SKILL.md").write_text("---\nname: checked-out\ndescription: Changed.\n---\nDo it.\n")
    changed = client.get("/v1/skills/checked-out/files").json()["items"][0]
    assert changed["digest"] == hashlib.sha256((folder / "SKILL.md").read_bytes()).hexdigest()
    (folder / "link.md").symlink_to(folder / ".git/config")
    refused(client.get("/v1/skills/checked-out/files/link.md"), 422, "SKILL_INVALID")
    (folder / "link.md").unlink()


@pytest.mark.parametrize("kind", ["application/zip", "application/x-zip-compressed", "application/octet-stream"])
def test_a_zip_may_be_the_body(client: httpx.Client, kind: str) -> None:
    made = client.post("/v1/skills", content=packed("as-body"), headers={"content-type": kind})
    assert (made.status_code, made.json()["id"]) == (201, "as-body")


def test_a_zip_may_be_a_form_s_file(client: httpx.Client) -> None:
    made = client.post("/v1/skills", files={"file": ("s.zip", packed("as-form"), "application/zip")})
    assert (made.status_code, made.json()["id"]) == (201, "as-form")


def test_versions_are_kept_and_the_newest_is_run(client: httpx.Client) -> None:
    install(client, packed("versioned", "1.0.0"))
    made = install(client, packed("versioned", "2.0.0"))
    assert (made.json()["version"], made.json()["versions"]) == ("2.0.0", ["1.0.0", "2.0.0"])
    found = client.get("/v1/skills/versioned").json()
    assert (found["version"], found["versions"], found["execution_modes"]) == ("2.0.0", ["1.0.0", "2.0.0"], ["auto"])
    run_id = start(client, "versioned", mode="auto")
    assert over(client, run_id)["skill_version"] == "2.0.0"


def test_a_skill_shows_its_text_and_schemas(client: httpx.Client) -> None:
    found = client.get("/v1/skills/reading").json()
    assert (found["installed"], found["engines"], found["problem"]) == (False, None, None)
    assert found["instructions"].strip() == "Do it."
    assert found["schemas"]["input"]["required"] == ["plan"]
    assert found["schemas"]["parameter"] is None
    for name in ("no-such", "..", "%2e%2e%2fdata", "a\x00b", "x" * 3000):
        assert client.get(f"/v1/skills/{name.replace(chr(0), '%00')}").status_code == 404


def test_a_broken_skill_is_listed_with_what_is_wrong(client: httpx.Client, furnished: World) -> None:
    folder = furnished.folder / "skills" / "broken"
    folder.mkdir(exist_ok=True)
    (folder / "SKILL.md").write_text("no front matter")
    (listed,) = [each for each in client.get("/v1/skills").json()["items"] if each["id"] == "broken"]
    assert listed["problem"]
    assert listed["execution_modes"] == []
    for response in (client.get("/v1/skills/broken"), client.post("/v1/runs", json={"skill": "broken"})):
        refused(response, 422, "SKILL_INVALID")
        assert "broken is not a valid skill" in response.json()["detail"]
        assert str(furnished.folder) not in response.text


# Packages that must not get in.


def with_entry(name: str, content: bytes = b"x", mode: int | None = None) -> bytes:
    target = io.BytesIO(packed("evil"))
    with zipfile.ZipFile(target, "a") as archive:
        info = zipfile.ZipInfo(name)
        if mode is not None:
            info.external_attr = mode << 16
        archive.writestr(info, content)
    return target.getvalue()


def renamed(old: bytes, new: bytes) -> bytes:
    """The same archive with a name that no packer would write."""
    return packed("evil", **{old.decode(): b"x"}).replace(old, new)


def a_bomb() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("SKILL.md", SKILL_MD.format(name="evil"))
        archive.writestr("zeros", bytes(30_000_000))
    return target.getvalue()


HOSTILE: dict[str, Callable[[], bytes]] = {
    "climbs": lambda: with_entry("../../evil.txt"),
    "absolute": lambda: with_entry("/etc/evil"),
    "backslash": lambda: renamed(b"aa/b.txt", b"..\\b.txt"),
    "drive": lambda: with_entry("C:/evil.txt"),
    "link": lambda: with_entry("keys", b"/etc/passwd", stat.S_IFLNK | 0o777),
    "device": lambda: with_entry("zero", b"", stat.S_IFCHR | 0o666),
    "nul": lambda: renamed(b"aab.txt", b"aa\x00.txt"),
    "twice": lambda: renamed(b"SKILL.m0", b"SKILL.md"),
    "case": lambda: with_entry("skill.MD"),
    "configures codex": lambda: with_entry(".codex/config.toml"),
    "configures claude": lambda: with_entry(".claude/settings.json"),
    "env": lambda: with_entry(".env", b"OPENAI_BASE_URL=http://evil"),
    "mcp": lambda: with_entry(".mcp.json", b"{}"),
    "hooks": lambda: with_entry(".git/hooks/pre-commit"),
    "bomb": a_bomb,
    "no zip": lambda: b"PK\x03\x04 and then nothing",
    "empty": lambda: b"",
    "text": lambda: b"hello",
    "cut": lambda: packed("evil")[:-30],
    "no skill": lambda: packed("evil").replace(b"SKILL.md", b"SKILL.mx"),
    "alias bomb": lambda: packed("evil", **{"SKILL.md": "---\nname: &a [x]\ndescription: *a\n---\n"}),
    "deep yaml": lambda: packed("evil", **{"SKILL.md": f"---\nname: {'[' * 5000}\n---\n"}),
    "bad runner": lambda: packed("evil", **{"assets/runner.json": "{" * 100_000}),
    "bad schema": lambda: packed("evil", **{"assets/input.schema.json": '{"type": 7}'}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_package_is_refused_whole(client: httpx.Client, furnished: World, kind: str) -> None:
    def everything() -> set[Path]:
        return {path for path in furnished.folder.rglob("*") if "runs" not in path.parts and ".lock" not in path.name}

    client.get("/v1/skills")
    before = everything()
    refused(install(client, HOSTILE[kind]()), 422, "SKILL_INVALID")
    form = client.post("/v1/skills", files={"file": ("evil.zip", HOSTILE[kind]())})
    refused(form, 422, "SKILL_INVALID")
    left = {path for path in everything() - before if path.name not in ("packages", "skills")}
    assert {path for path in left if "here" not in path.parts and "probes" not in path.name} == set()


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (packed("posing"), "application/json", 415),
        (packed("posing"), "text/plain", 415),
        (packed("posing"), "", 415),
        (b'{"file": "/etc/passwd"}', "application/json", 415),
        (b"file=/etc/passwd", "application/x-www-form-urlencoded", 415),
        (b"no form", "multipart/form-data", 400),
        (b"no form", "multipart/form-data; boundary=x", 400),
        (b"--x\r\n\r\n--x--\r\n", "multipart/form-data; boundary=x", 400),
    ],
)
def test_only_a_zip_is_taken_for_one(client: httpx.Client, content: bytes, kind: str, status: int) -> None:
    answer = client.post("/v1/skills", content=content, headers={"content-type": kind} if kind else {})
    assert answer.status_code == status, answer.text


def test_a_form_of_many_files_is_refused(client: httpx.Client) -> None:
    files = [("file", (f"{number}.zip", b"x")) for number in range(20)]
    refused(client.post("/v1/skills", files=files), 400, "REQUEST_MALFORMED")
    refused(client.post("/v1/uploads", files=files), 400, "REQUEST_MALFORMED")
    fields: Any = {f"field-{number}": (None, b"x" * 100_000) for number in range(20)}
    refused(client.post("/v1/uploads", files=fields), 400, "REQUEST_MALFORMED")


# Engines and the server.


def test_the_engines_say_what_they_can_do(client: httpx.Client) -> None:
    engines = {each["name"]: each for each in client.get("/v1/engines").json()["items"]}
    assert {"codex", "gemini", "iflow", "claude", "qwen", "opencode", "scripted"} <= engines.keys()
    assert engines["scripted"]["found"]
    assert engines["scripted"]["interactive_profile"]["kind"] == "resumable"
    assert not engines["codex"]["found"]
    assert engines["codex"]["advice"]


def test_health_needs_no_token_and_says_how_things_are(client: httpx.Client) -> None:
    for headers in ({}, {"authorization": ""}, {"host": "anything.example"}):
        answer = client.get("/healthz", headers=headers)
        assert answer.status_code == 200
        assert (answer.json()["status"], answer.json()["version"]) == ("ok", __version__)
        assert answer.json()["database"] == "ok"
        assert answer.json()["disk_free_bytes"] > 0
        assert answer.json()["slots"]["total"] == 8


def test_metrics_count_the_changes_of_runs(client: httpx.Client) -> None:
    def figure(name: str) -> float:
        for line in client.get("/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        return 0.0

    name = 'askback_run_changes_total{state="succeeded"}'
    before = figure(name)
    over(client, start(client, "quick"))
    assert figure(name) == before + 1
    assert figure("askback_slots") == 8.0
    assert figure("askback_event_streams") == 0.0
    told = client.get("/metrics").text
    assert all(f'askback_warm_drops_total{{reason="{reason}"}}' in told for reason in DropReason)
    (about,) = (line for line in told.splitlines() if line.startswith("# HELP askback_warm_drops_total "))
    assert all(f"`{reason}`" in about for reason in DropReason)
    assert figure("askback_warm_processes") == figure("askback_warm_memory_bytes") == 0.0
    assert figure('askback_warm_replies_total{result="hit"}') == 0.0
