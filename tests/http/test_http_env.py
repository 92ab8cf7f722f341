"""The secret variables of a run: they reach the engine, and nothing else, whatever the engine does with them."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.core.run_env import env_problems, reserved_by
from askback.engines.registry import engines
from support.api import calling, over, reach, refused, reply
from support.data_folder import World
from support.program import until
from support.receiver import Receiver, receiving
from support.server import Server

TOKEN = "tok-Zx81+/é~'\"q5d1f"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
ENV = {"LIBRARY_TOKEN": TOKEN, "LIBRARY_KEY": KEY}
PARTS = (TOKEN, "MIIEvQIBADANBgkq", "hkiG9w0BAQEFAASC")

LEAKING = """
import base64, json, os, subprocess, sys, urllib.parse
command = [*{command!r}, *sys.argv[1:]]
if "--help" in command or "--version" in command:
    os.execvp(command[0], command)
token, key = os.environ.get("LIBRARY_TOKEN", "none"), os.environ.get("LIBRARY_KEY", "none")
forms = [token, key, json.dumps(token), json.dumps({{"a": json.dumps(key)}}), urllib.parse.quote(token, safe="")]
forms += [token.encode().hex(), token.encode().hex().upper(), key.encode().hex()]
forms += [base64.b64encode(token.encode()).decode(), "".join("\\\\u%04x" % ord(each) for each in token)]
asks = {{"interaction_id": "colour", "prompt": "Is it " + token + "?", "options": [token, "no"], "context": {{"k": key}}}}
first = [*({{"say": form}} for form in forms), {{"ask": asks}}]
last = [*({{"say": form}} for form in forms), {{"finish": {{"colour": token, "all": forms, token: key}}}}]
with open({script!r}, "w") as file:
    json.dump({{"turns": [first, last]}}, file)
for stream in (sys.stdout, sys.stderr):
    for form in forms:
        stream.write(form[: len(form) // 2])
        stream.flush()
        stream.write(form[len(form) // 2 :] + "\\n")
        stream.flush()
os.execvp(command[0], [*command, "--script=" + {script!r}])
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("env"))
    world.skill([{"finish": {}}], name="leaking", output={"type": "object"})
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    program, script = world.folder / "leaking.py", world.folder / "leaking.json"
    program.write_text(LEAKING.format(command=engines()["scripted"].default_command, script=str(script)))
    settings = world.folder / "leaking.toml"
    settings.write_text(
        f'sandbox = "off"\n[engines.scripted]\ncommand = ["{sys.executable}", "{program}"]\n'
        "[notifications]\nallow_private = true\n"
    )
    with Server(world, "--config", str(settings)) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with calling(server.url, server.token) as client:
        yield client


def create(client: httpx.Client, **more: Any) -> httpx.Response:
    return client.post("/v1/runs", json={"skill": "leaking", "engine": "scripted", "mode": "interactive"} | more)


def leaks(text: bytes) -> list[str]:
    forms = [form.encode() for part in PARTS for form in (part, json.dumps(part)[1:-1])]
    forms.append(base64.b64encode(TOKEN.encode())[:-4])
    forms += [form.encode() for part in PARTS for form in (part.encode().hex(), part.encode().hex().upper())]
    return [form.decode() for form in forms if form in text]


def leaking_files(world: World) -> list[str]:
    """Files of the data folder that contain a secret, without those that the engine itself wrote in its home."""
    found: list[str] = []
    for place, folders, files in os.walk(world.data_dir):
        folders[:] = [name for name in folders if name not in ("home", "snapshots")]
        for name in files:
            # A file may be removed meanwhile.
            with suppress(FileNotFoundError):
                path = Path(place) / name
                if path.is_file() and leaks(path.read_bytes()):
                    found.append(f"{place}/{name}")
    return found


@pytest.mark.contract("J-2")
@pytest.mark.parametrize("profile", ["auto", "sticky_process"])
def test_it_reaches_the_engine_and_no_sink(client: httpx.Client, world: World, server: Server, profile: str) -> None:
    with receiving(Receiver()) as receiver:
        options = {"interactive_profile": profile}
        made = create(client, env=ENV, webhooks=[{"url": receiver.url}], options=options)
        assert made.status_code == 201, made.text
        run_id = made.json()["id"]
        assert made.json()["env_names"] == list(ENV)
        asked = reach(client, run_id, "waiting_user")
        assert asked["pending_interaction"]["prompt"] == "Is it [redacted]?"
        assert leaking_files(world) == [], "while it waits"
        reply(client, run_id, "no")
        assert over(client, run_id)["state"] == "succeeded"
        result = client.get(f"/v1/runs/{run_id}/result")
        assert result.json()["data"]["colour"] == "[redacted]"
        for path in ("", "/result", "/events", "/interactions", "/deliveries"):
            assert leaks(client.get(f"/v1/runs/{run_id}{path}").content) == [], path
        with httpx.Client(base_url=server.url, headers=server.session(), timeout=60) as browser:
            for page in (f"/runs/{run_id}", "/", "/runs"):
                assert leaks(browser.get(page).content) == [], page
        assert leaks(server.stderr.encode()) == []
        until(lambda: any(b'"succeeded"' in each.body for each in receiver.came))
        assert [leak for each in receiver.came for leak in leaks(each.body)] == []
    said = b"".join((world.data_dir / "runs" / run_id / "home").rglob("*.jsonl").__next__().read_bytes().splitlines())
    assert TOKEN.encode()[:8] in said, "the engine had it"
    assert leaking_files(world) == []
    until(lambda: not (world.data_dir / "runs" / run_id / "env.pad").exists())
    until(lambda: not (world.data_dir / "runs" / run_id / "snapshots").exists())


@pytest.mark.contract("J-2")
def test_a_canceled_run_keeps_nothing(client: httpx.Client, world: World) -> None:
    run_id = create(client, env=ENV).json()["id"]
    reach(client, run_id, "waiting_user")
    pad = world.data_dir / "runs" / run_id / "env.pad"
    assert pad.exists()
    client.post(f"/v1/runs/{run_id}/cancel")
    over(client, run_id)
    until(lambda: not pad.exists())


@pytest.mark.contract("J-2")
def test_the_key_of_a_request_covers_its_variables(client: httpx.Client, world: World) -> None:
    key = {"Idempotency-Key": "with-env"}
    body = {"skill": "leaking", "engine": "scripted", "mode": "interactive", "env": ENV}
    first = client.post("/v1/runs", json=body, headers=key).json()["id"]
    assert client.post("/v1/runs", json=body, headers=key).json()["id"] == first
    other = body | {"env": ENV | {"LIBRARY_TOKEN": "another-token"}}
    refused(client.post("/v1/runs", json=other, headers=key), 422, "IDEMPOTENCY_KEY_REUSED")
    assert leaking_files(world) == []
    reach(client, first, "waiting_user")
    client.post(f"/v1/runs/{first}/cancel")
    over(client, first)


@pytest.mark.contract("J-2")
@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "path", "HOME", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "ASKBACK_TOKEN", "PYTHONPATH", "NODE_OPTIONS"),
        *("OPENSSL_CONF", "OTEL_EXPORTER_OTLP_ENDPOINT", "PROMPT_COMMAND", "VISUAL"),
        *("HTTPS_PROXY", "https_proxy", "GIT_SSH_COMMAND", "BASH_ENV", "SSL_CERT_FILE", "SCRIPTED_HOME", "TMPDIR"),
        *("", "A=B", "a b", "1A", "É", "A\0B", "x" * 101),
    ],
)
def test_a_reserved_name_is_refused(client: httpx.Client, name: str) -> None:
    told = refused(create(client, env={name: "a long secret value"}), 422, "INPUT_INVALID")
    assert told["problems"]
    assert "a long secret value" not in json.dumps(told)


@pytest.mark.parametrize("value", ["", "tiny-7", "a\0bcdefghi", "a\nb\nc", "x" * 32_769])
def test_a_value_that_cannot_be_masked_is_refused(client: httpx.Client, value: str) -> None:
    told = refused(create(client, env={"LIBRARY_TOKEN": value}), 422, "INPUT_INVALID")
    assert value == "" or value not in json.dumps(told)


@pytest.mark.contract("J-2")
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("codex", "CODEX_HOME"),
        ("codex", "OPENAI_BASE_URL"),
        ("claude", "CLAUDE_CONFIG_DIR"),
        ("claude", "ANTHROPIC_API_KEY"),
    ],
)
def test_what_an_engine_reads_or_sets_is_reserved(engine: str, name: str) -> None:
    found = engines()[engine]
    words = reserved_by([found.name, *found.env_allow])
    assert list(env_problems({name: "a long secret value"}, words))
    assert not list(env_problems({"LIBRARY_TOKEN": "a long secret value"}, words))
