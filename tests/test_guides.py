"""The guides work as they are printed: their files and commands are taken from the pages and used."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support import postgres
from support.data_folder import ASK, FINISH, World
from support.held_port import HeldPort
from support.postgres import databases
from support.program import DEADLINE_SEC, environment, until
from support.server import Server

GUIDES = Path(__file__).resolve().parent.parent / "docs/guides"
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
BASH = shutil.which("bash") or "bash"


def blocks(page: str, language: str) -> list[str]:
    text = (GUIDES / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def shell(world: World, lines: str, **env: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        [BASH, "-eu", "-c", lines],
        env=environment(world, PATH=path, **env),
        cwd=world.folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SEC,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


# Backup.


@pytest.mark.long
def test_a_restored_backup_has_its_waiting_run_which_can_be_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asks")
    with Server(world) as server, server.client() as client:
        run = client.create_run("asks", engine="scripted", mode="interactive")
        assert client.wait(run.id).state == "waiting_user"
        server.stop()
    (backup,), (restore,) = (
        [block for block in blocks("backup.md", "sh") if word in block] for word in ("-czf", "-xpzf")
    )
    shell(world, backup)
    shutil.rmtree(world.data_dir)
    shell(world, restore)
    assert world.data_dir.stat().st_mode & 0o777 == 0o700
    with Server(world) as server, server.client() as client:
        assert [question.run_id for question in client.inbox()] == [run.id]
        client.reply(run.id, "colour", "blue")
        assert client.wait(run.id).state == "succeeded"
        assert client.result(run.id).data == {"colour": "blue"}


# Skill-Runner.


@pytest.mark.contract("J-7")
def test_a_package_of_skill_runner_is_checked_run_and_called_as_the_guide_says(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.folder / "paper.pdf").write_text("Long.")
    script = [{"write": {"path": "digest.md", "text": "Short."}}, {"finish": {"digest_path": "digest.md"}}]
    digest = {"type": "string", "x-type": "artifact"}
    folder = world.skill(
        script,
        name="literature-digest",
        runner={"engines": ["scripted"], "entrypoint": {"prompts": {"common": "Read `{{ input.source_path }}`."}}},
        output={"type": "object", "properties": {"digest_path": digest}, "required": ["digest_path"]},
        schemas={
            "input": {"type": "object", "properties": {"source_path": {"type": "string"}}, "required": ["source_path"]},
            "parameter": {"type": "object", "properties": {"language": {"type": "string"}}},
        },
    )
    shutil.move(folder, world.folder / "literature-digest")
    commands, request = blocks("coming-from-skill-runner.md", "sh")
    assert '"digest_path": "artifacts/digest.md"' in shell(world, commands)
    with Server(world) as server, server.client() as client:
        auth = f"Authorization: Bearer {server.token}"
        created = json.loads(shell(world, request, AUTH=auth, ASKBACK_URL=server.url))
        assert client.wait(created["id"]).state == "succeeded"
        assert client.result(created["id"]).data == {"digest_path": "artifacts/digest.md"}
        assert [each.path for each in client.artifacts(created["id"])] == ["digest.md"]


# A proxy with TLS.


@contextmanager
def proxy(folder: Path, port: int, *targets: int) -> Iterator[Path]:
    """nginx with the guide's configuration; other addresses and a certificate made for the test. Yields the latter.

    With several targets, as the guide for several machines changes it.
    """
    certificate, key = folder / "askback.crt", folder / "askback.key"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=askback.example"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *more], check=True, capture_output=True, timeout=DEADLINE_SEC)
    (printed,) = blocks("deploy.md", "nginx")
    printed = printed if len(targets) == 1 else in_front_of_several(printed)
    ours = {
        f"server 10.0.0.1{number}:8765": f"server 127.0.0.1:{target}" for number, target in enumerate(targets, start=1)
    }
    changed = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/askback.crt": str(certificate),
        "/etc/ssl/askback.key": str(key),
        **({"http://127.0.0.1:8765": f"http://127.0.0.1:{targets[0]}"} if len(targets) == 1 else ours),
    }
    for old, new in changed.items():
        assert printed.count(old) == 1
        printed = printed.replace(old, new)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(
        f"{user}daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{printed}}}\n"
    )
    with subprocess.Popen([str(NGINX), "-e", str(folder / "error.log"), "-c", str(config)]) as process:
        try:
            until(lambda: (folder / "pid").exists(), lambda: None if process.poll() is None else "nginx has ended")
            yield certificate
        finally:
            process.terminate()


@pytest.mark.skipif(NGINX is None, reason="there is no nginx here")
def test_events_flow_through_the_proxy_and_the_page_is_secure(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asks")
    port = HeldPort()
    public = f"https://127.0.0.1:{port.number}"
    folder = tmp_path / "nginx"
    folder.mkdir()
    with (
        Server(world, env={"ASKBACK_SERVER__PUBLIC_URL": public}) as server,
        proxy(folder, port.number, server.port) as certificate,
        httpx.Client(
            base_url=public,
            verify=ssl.create_default_context(cafile=str(certificate)),
            headers={"authorization": f"Bearer {server.token}"},
            timeout=DEADLINE_SEC,
        ) as client,
    ):
        wanted = {"skill": "asks", "engine": "scripted", "mode": "interactive"}
        run = until(lambda: _created(client, wanted))
        seen = []
        # The stream stays open while the run waits: what is not buffered arrives before the run has ended.
        with client.stream("GET", f"/v1/runs/{run}/events", headers={"accept": "text/event-stream"}) as stream:
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    seen.append(json.loads(line[5:])["type"])
                    if seen[-1] == "interaction.asked":
                        reply = {"interaction_id": "colour", "response": "blue"}
                        assert client.post(f"/v1/runs/{run}/interaction/reply", json=reply).status_code == 202
        assert seen[-1] == "run.state"
        assert client.get(f"/v1/runs/{run}/result").json()["data"] == {"colour": "blue"}
        cookie = _sign_in(client, server.token)
        assert cookie.startswith("__Host-")
        assert "; secure" in cookie.lower()
        upload = client.post("/v1/uploads", files={"file": ("big.bin", b"x" * 5_000_000)})
        assert upload.status_code == 201


def in_front_of_several(printed: str) -> str:
    """The configuration for one server, changed as the page says."""
    upstream, lines = blocks("load-balancer.md", "nginx")
    passing = "proxy_pass http://127.0.0.1:8765;\n"
    assert printed.count(passing) == 1
    return upstream + printed.replace(passing, lines)


@pytest.mark.long
@pytest.mark.skipif(NGINX is None, reason="there is no nginx here")
def test_no_request_is_lost_at_a_proxy_in_front_of_two_servers_of_which_one_dies(tmp_path: Path) -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    port = HeldPort()
    public = f"https://127.0.0.1:{port.number}"
    folder = tmp_path / "nginx"
    folder.mkdir()
    with databases.chosen(True):
        world = World(tmp_path)
    world.skill([FINISH], name="asks")
    env, wanted = {"ASKBACK_SERVER__PUBLIC_URL": public}, {"skill": "asks", "engine": "scripted"}
    with (
        Server(world, "--no-worker", env=env) as one,
        Server(world, "--no-worker", env=env) as other,
        proxy(folder, port.number, one.port, other.port) as certificate,
        httpx.Client(
            base_url=public,
            verify=ssl.create_default_context(cafile=str(certificate)),
            headers={"authorization": f"Bearer {one.token}"},
            timeout=DEADLINE_SEC,
        ) as client,
    ):
        made = [until(lambda: _created(client, wanted)) for _ in range(4)]
        one.kill()
        made += [_created(client, wanted) for _ in range(6)]
        assert None not in made
        listed = client.get("/v1/runs", params={"limit": 50}).json()["items"]
        assert {each["id"] for each in listed} == set(made)
        # One after the other is restarted, as for an upgrade.
        with Server(world, "--no-worker", port=one.port, env=env):
            other.kill()
            assert None not in [_created(client, wanted) for _ in range(6)]
        assert client.get("/v1/runs").status_code == 502


def test_the_address_of_the_database_is_read_from_the_settings_file(tmp_path: Path) -> None:
    address = "postgresql://askback@db.example/askback?sslmode=verify-full&sslrootcert=/etc/askback/db-ca.crt"
    (settings,) = (block for block in blocks("several-machines.md", "toml") if "database" in block)
    assert address in settings
    (tmp_path / "askback.toml").write_text(settings)
    (line,) = (block for block in blocks("postgresql.md", "sh") if block.startswith("ASKBACK_DATABASE=$("))
    line = line.replace("/etc/askback/askback.toml", str(tmp_path / "askback.toml"))
    assert shell(World(tmp_path), f'{line}printf %s "$ASKBACK_DATABASE"') == address


def _sign_in(client: httpx.Client, token: str) -> str:
    """The cookie that a browser gets."""
    response = client.post("/enter", data={"token": token})
    if code := re.search(r'/enter\?code=([^"&]+)"', response.text):
        response = client.get("/enter", params={"code": code[1]})
    return str(response.headers["set-cookie"])


def _created(client: httpx.Client, wanted: dict[str, str]) -> str | None:
    try:
        response = client.post("/v1/runs", json=wanted)
    except httpx.ConnectError:
        return None
    assert response.status_code == 201, response.text
    return str(response.json()["id"])
