"""Canaries: the server's token and an engine's key are in no answer, event, log or file but where they belong."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import httpx

from support.api import calling, operations, over, start
from support.data_folder import World
from support.server import Server

KEY = "canary-key-7f3a9c51d2e84b60"
TOKEN = "canary-token-b82f6d0e94c1a735"


def forms(secret: str) -> list[bytes]:
    """The secret as it is, and as base64 has it wherever it stands in a text."""
    whole = [base64.b64encode(b"x" * shift + secret.encode()) for shift in range(3)]
    return [secret.encode(), *(each[4:-4] for each in whole)]


def holders(folder: Path, secret: str) -> set[str]:
    """The files that hold the secret in some form."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and any(form in path.read_bytes() for form in forms(secret)):
            found.add(path.name)
    return found


def test_secrets_stay_where_they_belong(own_world: World) -> None:
    """An engine that knows its own key, and has read the server's token from the disk, tells both in every way it can."""
    script = own_world.folder / "engine.py"
    script.write_text(ENGINE.format(token_path=str(own_world.data_dir / "token")))
    config = own_world.folder / "askback.toml"
    command = f'["{sys.executable}", "-I", "-S", "{script}"]'
    config.write_text(f'[engines.scripted]\ncommand = {command}\nenv = {{ CANARY_API_KEY = "{KEY}" }}\n')
    with Server(own_world, "--config", str(config)) as server:
        token = server.token
        with calling(server.url, token) as client:
            run_id = start(client, "quick", mode="auto")
            assert over(client, run_id)["state"] == "succeeded", client.get(f"/v1/runs/{run_id}").text
            paths = [fill(path, run_id) for method, path in operations() if method == "GET" and "{link}" not in path]
            answers = [client.get(path).content for path in [*paths, "/v1/nothing", "/v1/runs?limit=x"]]
            assert b"[redacted]" in client.get(f"/v1/runs/{run_id}/events").content
        assert server.stop() == 0
        for secret in (KEY, token):
            assert [text for text in answers if any(form in text for form in forms(secret))] == []
            assert secret not in server.stderr
    assert holders(own_world.data_dir, token) == {"token"}
    assert holders(own_world.data_dir, KEY) == set()


def fill(path: str, run_id: str) -> str:
    return path.replace("{run_id}", run_id).replace("{skill_id}", "quick").replace("{path}", "none")


def test_a_token_of_the_settings_is_in_no_file_and_no_answer(own_world: World) -> None:
    with Server(own_world, env={"ASKBACK_SERVER__TOKEN": TOKEN}) as server:
        assert TOKEN not in json.dumps(server.told)
        with calling(server.url, TOKEN) as client:
            over(client, start(client, "quick"))
            answers = [
                client.get(path).text for path in ("/v1/runs", "/v1/engines", "/v1/skills", "/metrics", "/healthz")
            ]
        answers.append(httpx.post(f"{server.url}/enter", data={"token": TOKEN}).text)
        server.session()
        assert [text for text in answers if TOKEN in text] == []
        server.stop()
        assert TOKEN not in server.stderr
    assert holders(own_world.data_dir, TOKEN) == set()
    assert not (own_world.data_dir / "token").exists()


ENGINE = """
import base64, json, os, sys
if "--version" in sys.argv or "--help" in sys.argv:
    print("1.0 --resume", os.environ.get("CANARY_API_KEY"))
    sys.exit()
def tell(**event):
    print(json.dumps(event), flush=True)
key, token = os.environ["CANARY_API_KEY"], open({token_path!r}).read().strip() if os.path.exists({token_path!r}) else ""
tell(type="session.started", session_id="ses-00000000-0000-4000-8000-000000000000")
tell(type="turn.started", turn=1)
for secret in (key, token):
    coded = base64.b64encode(("see: " + secret).encode()).decode()
    tell(type="message", text="I found " + secret + " and " + coded)
    tell(type="tool.started", id="1", name="cat", detail=secret)
    tell(type="tool.ended", id="1", name="cat", ok=True, output=secret + coded)
    print("warning:", secret, coded, file=sys.stderr, flush=True)
tell(type="message", text=json.dumps({{"colour": key + token, "__SKILL_DONE__": True}}))
tell(type="turn.completed")
"""
