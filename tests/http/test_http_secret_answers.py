"""An engine that was told a secret repeats it in every way it can, in every later turn: nobody gets to see it again."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from support.api import calling, over, reach, reply, start
from support.data_folder import World
from support.program import askback, until
from support.receiver import ALLOWED, Receiver, receiving
from support.server import Server

ALONE = 'pässword "7f3a9c51d2e8"\\n/x'
IN_FORM = "field-4b60-a735&c1"
SECRETS = (ALONE, IN_FORM)
OWN = ("home", "snapshots", "work", "tmp")
"""Folders of a run that belong to its engine, which knows the secret."""

ENGINE = r"""
import base64, json, os, re, sys
from urllib.parse import quote
if "--version" in sys.argv or "--help" in sys.argv:
    print("1.0 --resume")
    sys.exit()
def tell(**event):
    print(json.dumps(event), flush=True)
def ways(secret):
    raw = secret.encode()
    coded = [base64.b64encode(b"x" * shift + raw).decode() for shift in range(3)]
    escaped = json.dumps(secret), json.dumps(json.dumps(secret)), json.dumps(secret, ensure_ascii=False)
    return " ".join([secret, *coded, raw.hex(), raw.hex().upper(), quote(secret), quote(secret, safe=""), *escaped])
prompt = sys.stdin.read()
home = os.environ["HOME"]
known, count = home + "/known.json", home + "/count"
secrets = json.load(open(known)) if os.path.exists(known) else []
turn = int(open(count).read()) + 1 if os.path.exists(count) else 1
found = re.search(r"<user_reply interaction_id=[^>]*>\n(.*)\n</user_reply>", prompt, re.DOTALL)
if found and turn < 4:
    answer = found[1]
    secrets.append(json.loads(answer)["pin"] if answer.startswith("{") else answer)
open(known, "w").write(json.dumps(secrets))
open(count, "w").write(str(turn))
all_of_it = " and ".join(map(ways, secrets))
first = secrets[0] if secrets else ""
tell(type="session.started", session_id="ses-00000000-0000-4000-8000-000000000000")
tell(type="turn.started", turn=turn)
tell(type="message", text="I was told " + all_of_it + (found[0] if found else ""))
tell(type="tool.started", id="1", name="cat " + first, detail=all_of_it)
tell(type="tool.ended", id="1", name="cat", ok=True, output=all_of_it)
tell(type="never heard of", text=all_of_it)
print(all_of_it, flush=True)
print("warning:", all_of_it, file=sys.stderr, flush=True)
os.makedirs("artifacts", exist_ok=True)
for number, secret in enumerate(secrets if turn == 4 else []):
    safe = secret.replace("/", "-")
    open("artifacts/%d %s.txt" % (number, quote(secret, safe="")), "w").write("x")
    if safe == secret:
        os.makedirs("artifacts/" + secret, exist_ok=True)
        open("artifacts/" + secret + "/" + secret, "w").write("x")
form = [{"id": "pin", "prompt": "PIN? " + all_of_it, "kind": "secret"},
        {"id": first or "none", "prompt": "?", "options": [first or "none"], "default": first, "required": False}]
asks = {1: {"prompt": "A password?", "kind": "secret"},
        2: {"prompt": "Again " + all_of_it, "questions": form},
        3: {"prompt": "More " + all_of_it, "options": [{"label": all_of_it, "value": first}], "default": first,
            "context": {first: all_of_it}, "response_schema": {"type": "string", "enum": [first, "go", "FAIL"]}}}
if turn in asks:
    asked = {"interaction_id": "q%d" % turn if turn < 3 else "x" + secrets[1], **asks[turn]}
    tell(type="message", text=json.dumps({"ask_user": asked}))
    tell(type="turn.completed")
elif "FAIL" in prompt:
    tell(type="turn.failed", error={"code": "x", "message": "no: " + all_of_it})
    sys.exit(1)
else:
    tell(type="message", text=json.dumps({"colour": all_of_it, first: [secrets], "__SKILL_DONE__": True}))
    tell(type="turn.completed")
"""


def forms(secret: str) -> list[str]:
    """What must not be found: the secret, and what others would read as it."""
    raw = secret.encode()
    coded = [base64.b64encode(b"x" * shift + raw).decode()[4:-4] for shift in range(3)]
    escaped = [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
    return [secret, *escaped, *coded, raw.hex(), raw.hex().upper(), quote(secret), quote(secret, safe="")]


def repeated(text: str) -> list[str]:
    return [form for secret in SECRETS for form in forms(secret) if form in text]


def readable(data_dir: Path, run_id: str) -> Iterator[Path]:
    """What Askback itself keeps of a run, for people and programs. The database has the answer until the run is over."""
    for path in data_dir.rglob("*"):
        below = path.relative_to(data_dir).parts
        if path.is_file() and not (below[:2] == ("runs", run_id) and below[2] in OWN) and path.suffix != ".sock":
            yield path


def served(world: World) -> Server:
    script = world.folder / "engine.py"
    script.write_text(ENGINE)
    config = world.folder / "askback.toml"
    command = json.dumps([sys.executable, "-I", "-S", str(script)])
    config.write_text(f"{ALLOWED}\n[engines.scripted]\ncommand = {command}\n")
    return Server(world, "--config", str(config))


def look_everywhere(server: Server, client: httpx.Client, run_id: str) -> None:
    """Every answer, stream and page that has something of the run."""
    got = client.get(f"/v1/runs/{run_id}").json()
    paths = [f"/v1/runs/{run_id}{rest}" for rest in ("", "/interactions", "/events", "/artifacts", "/interaction")]
    paths += ["/v1/runs", "/v1/inbox", "/v1/interactions", "/metrics"]
    if got["state"] in ("succeeded", "failed"):
        paths += [f"/v1/runs/{run_id}/result", f"/v1/runs/{run_id}/bundle"]
        with client.stream("GET", f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}) as stream:
            assert repeated("".join(stream.iter_text())) == []
    for path in paths:
        assert repeated(client.get(path).content.decode(errors="replace")) == [], path
    browser = server.session()
    for path in ("/", "/runs", f"/runs/{run_id}", "/answered", "/dashboard"):
        page = httpx.get(server.url + path, headers={**browser, "Accept": "text/html"}, timeout=120)
        assert page.status_code == 200
        assert repeated(page.text) == [], path


def look_on_the_terminal(world: World, server: Server, run_id: str) -> None:
    there = {"ASKBACK_URL": server.url, "ASKBACK_TOKEN": server.token}
    for words in (("show", run_id), ("runs",), ("inbox",), ("show", run_id, "--json")):
        ran = askback(world, *words, env=there)
        assert ran.code == 0, ran.stderr
        assert repeated(ran.stdout + ran.stderr) == [], words


@pytest.mark.parametrize("last", ["go", "FAIL"])
def test_a_secret_answer_is_never_seen_again(own_world: World, last: str) -> None:
    with receiving(Receiver()) as receiver, served(own_world) as server:
        with calling(server.url, server.token) as client:
            hook = {"url": receiver.url}
            run_id = start(client, "quick", webhooks=[hook])
            asked = reach(client, run_id, "waiting_user")["pending_interaction"]
            assert asked["kind"] == "secret"
            assert reply(client, run_id, ALONE, asked["interaction_id"]).status_code == 202
            form = _next_question(client, run_id, asked)
            assert form["kind"] == "form"
            assert "[redacted]" in form["prompt"]
            look_everywhere(server, client, run_id)
            look_on_the_terminal(own_world, server, run_id)
        assert server.stop() == 0
        log = server.stderr
        with served(own_world) as again, calling(again.url, again.token) as client:
            assert reply(client, run_id, {"pin": IN_FORM}, form["interaction_id"]).status_code == 202
            more = _next_question(client, run_id, form)
            assert more["interaction_id"] == "question-3"
            look_everywhere(again, client, run_id)
            assert reply(client, run_id, last, more["interaction_id"]).status_code == 202
            ended = over(client, run_id)
            assert ended["state"] == ("succeeded" if last == "go" else "failed"), ended
            look_everywhere(again, client, run_id)
            look_on_the_terminal(own_world, again, run_id)
            names = [each["path"] for each in client.get(f"/v1/runs/{run_id}/artifacts").json()["items"]]
            assert sorted(names) == ["0 [redacted].txt", "1 [redacted].txt", "[redacted]/[redacted]"]
            assert client.get(f"/v1/runs/{run_id}/artifacts/0%20[redacted].txt").text == "x"
            until(lambda: any(ended["state"].encode() in came.body for came in receiver.came))
            assert again.stop() == 0
            log += again.stderr
    assert repeated(log) == []
    assert repeated("".join(came.body.decode() for came in receiver.came)) == []
    for path in readable(own_world.data_dir, run_id):
        assert repeated(path.read_bytes().decode(errors="replace")) == [], path


def _next_question(client: httpx.Client, run_id: str, before: dict[str, Any]) -> dict[str, Any]:
    def newer() -> dict[str, Any] | None:
        run = client.get(f"/v1/runs/{run_id}").json()
        assert run["state"] not in ("failed", "succeeded"), run
        asked: dict[str, Any] | None = run.get("pending_interaction")
        return asked if asked and asked["attempt_number"] > before["attempt_number"] else None

    return until(newer) or {}
