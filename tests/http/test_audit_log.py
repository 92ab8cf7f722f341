"""The audit log: every write of every operation has exactly one entry, and nothing else has one."""

from __future__ import annotations

import io
import json
import re
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from askback.core.access import Action, AuditEntry, audit_entry
from askback.core.actors import Actor, Caller, Channel
from askback.http.app import _OPERATIONS
from askback.store.pages import AuditFilter
from support.api import calling, over, refused, reply, start, waiting, within
from support.data_folder import World, run_async
from support.server import Server

SECRET = "hunter2-hunter2-in-an-answer"
WRITES = {f"{each.method} {each.path}": each for each in _OPERATIONS if each.method != "GET"}


def entries(client: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get("/v1/audit", params=query | ({"cursor": cursor} if cursor else {})).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def last_id(client: httpx.Client) -> int:
    found = client.get("/v1/audit", params={"limit": 1}).json()["items"]
    return found[0]["id"] if found else 0


def added(client: httpx.Client, since: int) -> list[dict[str, Any]]:
    return [each for each in client.get("/v1/audit", params={"limit": 50}).json()["items"] if each["id"] > since]


def package(name: str, *steps: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{name}/assets/scripted.json", json.dumps({"turns": [list(steps)]}))
        archive.writestr(f"{name}/SKILL.md", f"---\nname: {name}\ndescription: d\n---\ngo\n")
    return content.getvalue()


def link(client: httpx.Client, run_id: str) -> dict[str, Any]:
    made: dict[str, Any] = client.post(f"/v1/runs/{run_id}/interaction/link", json={"recipient": "anna"}).json()
    return made


# Each operation that writes, as a call after what it needs. The call is made once.

Call = Callable[[], httpx.Response]


def _submit(server: Server, client: httpx.Client) -> Call:
    body = {"skill": "asking", "engine": "scripted", "mode": "interactive"}
    return lambda: client.post("/v1/runs", json=body)


def _cancel(server: Server, client: httpx.Client) -> Call:
    run_id = waiting(client)
    return lambda: client.post(f"/v1/runs/{run_id}/cancel")


def _resume(server: Server, client: httpx.Client) -> Call:
    client.post("/v1/skills", files={"file": package("limited", {"misbehave": "rate_limit"})})
    run_id, tag = start(client, "limited", options={"on_limit": "park"}), {}
    while "not_before" not in (found := client.get(f"/v1/runs/{run_id}", params={"wait": "30"}, headers=tag)).text:
        tag = {"If-None-Match": found.headers["etag"]}
    return lambda: client.post(f"/v1/runs/{run_id}/resume")


def _delete(server: Server, client: httpx.Client) -> Call:
    run_id = start(client, "quick")
    over(client, run_id)
    return lambda: client.delete(f"/v1/runs/{run_id}")


def _reply(server: Server, client: httpx.Client) -> Call:
    run_id = waiting(client)
    return lambda: reply(client, run_id, SECRET)


def _link(server: Server, client: httpx.Client) -> Call:
    run_id = waiting(client)
    return lambda: client.post(f"/v1/runs/{run_id}/interaction/link", json={})


def _revoke_link(server: Server, client: httpx.Client) -> Call:
    run_id = waiting(client)
    made = link(client, run_id)
    return lambda: client.delete(f"/v1/runs/{run_id}/interaction/links/{made['id']}")


def _revoke_links(server: Server, client: httpx.Client) -> Call:
    run_id = waiting(client)
    link(client, run_id)
    link(client, run_id)
    return lambda: client.delete(f"/v1/runs/{run_id}/interaction/links")


def _answer_link(server: Server, client: httpx.Client) -> Call:
    url = link(client, waiting(client))["url"]

    def call() -> httpx.Response:
        with calling(server.url, None) as holder:
            return holder.post(url, json={"response": SECRET})

    return call


def _upload(server: Server, client: httpx.Client) -> Call:
    return lambda: client.post("/v1/uploads", files={"file": ("secret.txt", SECRET.encode())})


def _install(server: Server, client: httpx.Client) -> Call:
    headers = {"content-type": "application/zip"}
    return lambda: client.post("/v1/skills", content=package("audited"), headers=headers)


def _remove_skill(server: Server, client: httpx.Client) -> Call:
    client.post("/v1/skills", content=package("removed"), headers={"content-type": "application/zip"})
    return lambda: client.delete("/v1/skills/removed")


def _token(server: Server, client: httpx.Client) -> Call:
    return lambda: client.post("/v1/tokens", json={"name": "audited", "scopes": ["read"]})


def _revoke_token(server: Server, client: httpx.Client) -> Call:
    client.post("/v1/tokens", json={"name": "short-lived", "scopes": ["read"]})
    return lambda: client.delete("/v1/tokens/short-lived")


def _invite(server: Server, client: httpx.Client) -> Call:
    client.post("/v1/tokens", json={"name": "guest", "scopes": ["answer"]})
    return lambda: client.post("/v1/invitations", json={"token": "guest"})


def _revoke_invitation(server: Server, client: httpx.Client) -> Call:
    client.post("/v1/tokens", json={"name": "guest-2", "scopes": ["answer"]})
    made = client.post("/v1/invitations", json={"token": "guest-2"}).json()
    return lambda: client.delete(f"/v1/invitations/{made['id']}")


def _sign_out(server: Server, client: httpx.Client) -> Call:
    server.session()
    session_id = client.get("/v1/sessions").json()["items"][0]["id"]
    return lambda: client.delete(f"/v1/sessions/{session_id}")


def _sign_out_everywhere(server: Server, client: httpx.Client) -> Call:
    server.session()
    return lambda: client.delete("/v1/sessions")


def _answer_with_file(server: Server, client: httpx.Client) -> Call:
    url = link(client, waiting(client))["url"]

    def call() -> httpx.Response:
        with calling(server.url, None) as holder:
            return holder.post(f"{url}/file", files={"file": ("secret.txt", SECRET.encode())})

    return call


def subscription() -> dict[str, Any]:
    """Of a browser whose push service nobody answers at."""
    point = ec.generate_private_key(ec.SECP256R1()).public_key()
    public = point.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    keys = {"p256dh": urlsafe_b64encode(public).decode().rstrip("="), "auth": "A" * 22}
    return {"endpoint": f"http://127.0.0.1:9/{uuid4()}", "keys": keys}


def _subscribe(server: Server, client: httpx.Client) -> Call:
    return lambda: client.post("/v1/push/subscriptions", json=subscription())


def _unsubscribe(server: Server, client: httpx.Client) -> Call:
    made = client.post("/v1/push/subscriptions", json=subscription()).json()
    return lambda: client.delete(f"/v1/push/subscriptions/{made['id']}")


def _test_push(server: Server, client: httpx.Client) -> Call:
    made = client.post("/v1/push/subscriptions", json=subscription()).json()
    return lambda: client.post(f"/v1/push/subscriptions/{made['id']}/test")


PREPARED: dict[str, Callable[[Server, httpx.Client], Call]] = {
    "POST /v1/runs": _submit,
    "POST /v1/runs/{run_id}/cancel": _cancel,
    "POST /v1/runs/{run_id}/resume": _resume,
    "DELETE /v1/runs/{run_id}": _delete,
    "POST /v1/runs/{run_id}/interaction/reply": _reply,
    "POST /v1/runs/{run_id}/interaction/link": _link,
    "DELETE /v1/runs/{run_id}/interaction/links/{link_id}": _revoke_link,
    "DELETE /v1/runs/{run_id}/interaction/links": _revoke_links,
    "POST /v1/answers/{link}": _answer_link,
    "POST /v1/answers/{link}/file": _answer_with_file,
    "POST /v1/uploads": _upload,
    "POST /v1/push/subscriptions": _subscribe,
    "DELETE /v1/push/subscriptions/{subscription_id}": _unsubscribe,
    "POST /v1/push/subscriptions/{subscription_id}/test": _test_push,
    "POST /v1/skills": _install,
    "DELETE /v1/skills/{skill_id}": _remove_skill,
    "POST /v1/tokens": _token,
    "DELETE /v1/tokens/{token_name}": _revoke_token,
    "POST /v1/invitations": _invite,
    "DELETE /v1/invitations/{invitation_id}": _revoke_invitation,
    "DELETE /v1/sessions/{session_id}": _sign_out,
    "DELETE /v1/sessions": _sign_out_everywhere,
}


@pytest.fixture(scope="module")
def audited_server(furnished_at: Callable[..., World], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Nobody else writes on it."""
    env = {"ASKBACK_NOTIFICATIONS__ALLOW_PRIVATE": "true"}
    with Server(furnished_at(tmp_path_factory.mktemp("audited")), env=env) as server:
        yield server


@pytest.fixture
def admin(audited_server: Server) -> Iterator[httpx.Client]:
    with calling(audited_server.url, audited_server.token) as client:
        yield client


@pytest.mark.contract("N-7")
def test_every_operation_that_writes_declares_what() -> None:
    assert [call for call, each in WRITES.items() if each.action is None] == []
    assert [each.path for each in _OPERATIONS if each.method == "GET" and each.action is not None] == []


@pytest.mark.contract("N-7")
@pytest.mark.parametrize("call", WRITES)
def test_every_write_has_exactly_one_entry(audited_server: Server, admin: httpx.Client, call: str) -> None:
    write = PREPARED[call](audited_server, admin)
    before = last_id(admin)
    response = write()
    assert response.is_success, response.text
    (found,) = added(admin, before)
    assert found["action"] == WRITES[call].action
    by_link = call.startswith("POST /v1/answers/")
    assert found["actor"] == ({"name": "anna", "via": "link"} if by_link else {"name": "main", "via": "api"})
    assert not by_link or re.fullmatch(r"link [0-9a-f]{8}, created by main", found["object"])
    assert found["address"] == "127.0.0.1"
    assert found.get("run_id") or found.get("object")
    assert SECRET not in json.dumps(found)
    assert audited_server.token not in json.dumps(found)


@pytest.mark.contract("N-7")
def test_what_is_refused_or_changes_nothing_has_no_entry(audited_server: Server, admin: httpx.Client) -> None:
    run_id, done = waiting(admin), start(admin, "quick")
    over(admin, done)
    headers = {"idempotency-key": "once"}
    body = {"skill": "quick", "engine": "scripted"}
    over(admin, admin.post("/v1/runs", json=body, headers=headers).json()["id"])
    before = last_id(admin)
    refused(reply(admin, run_id, "red", "other"), 409, "INTERACTION_NOT_PENDING")
    refused(admin.post(f"/v1/runs/{done}/cancel"), 409, "RUN_FINAL")
    refused(admin.delete(f"/v1/runs/{run_id}"), 409, "RUN_NOT_FINAL")
    refused(admin.post("/v1/runs", json={"skill": "nobody"}), 404, "SKILL_NOT_FOUND")
    refused(admin.delete("/v1/tokens/nobody"), 404, "TOKEN_NOT_FOUND")
    assert admin.delete(f"/v1/runs/{run_id}/interaction/links").status_code == 204
    assert admin.post("/v1/runs", json=body, headers=headers).status_code == 201
    with calling(audited_server.url, "wrong") as stranger:
        refused(stranger.post("/v1/runs", json=body), 401, "UNAUTHORIZED")
    assert added(admin, before) == []


@pytest.mark.contract("N-7")
def test_of_two_answers_only_the_first_is_in_the_log(admin: httpx.Client) -> None:
    run_id = waiting(admin)
    reply(admin, run_id, "red")
    refused(reply(admin, run_id, "blue"), 409, "INTERACTION_NOT_PENDING")
    assert [each["action"] for each in entries(admin, run_id=run_id)] == ["interaction.reply", "run.submit"]


@pytest.mark.contract("N-7")
def test_a_browser_signs_in_answers_and_signs_out(audited_server: Server, admin: httpx.Client) -> None:
    run_id, before = waiting(admin), last_id(admin)
    with calling(audited_server.url, None, **audited_server.session()) as browser:
        reply(browser, run_id, "red")
        (session_id,) = [each["id"] for each in browser.get("/v1/sessions").json()["items"] if each["current"]]
        browser.delete(f"/v1/sessions/{session_id}")
    found = added(admin, before)[::-1]
    assert [each["action"] for each in found] == ["session.start", "interaction.reply", "session.end"]
    assert {each["actor"]["via"] for each in found} == {"page"}
    assert found[0]["object"] == found[2]["object"] == session_id


@pytest.mark.contract("N-7")
def test_entries_outlive_their_run_and_are_found_by_it(admin: httpx.Client) -> None:
    run_id = start(admin, "quick")
    over(admin, run_id)
    assert admin.delete(f"/v1/runs/{run_id}").status_code == 204
    assert [each["action"] for each in entries(admin, run_id=run_id)] == ["run.delete", "run.submit"]


@pytest.mark.contract("N-7")
def test_filters_and_pages_of_the_log(audited_server: Server, admin: httpx.Client) -> None:
    for number in range(3):
        admin.post("/v1/tokens", json={"name": f"paged-{number}", "scopes": ["submit"]})
    text = admin.post("/v1/tokens", json={"name": "berta", "scopes": ["submit", "read"]}).json()["token"]
    with calling(audited_server.url, text) as berta:
        over(berta, start(berta, "quick"))
        refused(berta.get("/v1/audit"), 403, "SCOPE_MISSING")
    everything = entries(admin)
    assert entries(admin, limit=2) == everything
    assert [each["id"] for each in everything] == sorted((each["id"] for each in everything), reverse=True)
    (hers,) = entries(admin, actor="berta")
    assert hers["actor"] == {"name": "berta", "via": "api"}
    made = entries(admin, action="token.create")
    assert [each["object"] for each in made][:4] == ["berta", "paged-2", "paged-1", "paged-0"]
    at = hers["at"]
    assert hers in entries(admin, since=at)
    assert hers not in entries(admin, until=at)
    for wrong in ({"action": "run.dance"}, {"since": "yesterday"}, {"limit": 0}):
        refused(admin.get("/v1/audit", params=wrong), 422, "REQUEST_INVALID")
    refused(admin.get("/v1/audit", params={"cursor": "x"}), 422, "INPUT_INVALID")


# The store.


@pytest.mark.contract("N-7")
def test_old_entries_are_removed_by_their_own_retention(own_world: World) -> None:
    async def main() -> None:
        async with within(own_world, "[retention]\naudit_days = 30\n") as (app, _, client):
            long_ago = app.clock() - timedelta(days=31)
            for number in range(1203):
                by = Actor(name=f"person {number}", via=Channel.CLI)
                await app.store.record(audit_entry(by, Action.TOKEN_CREATE, long_ago, object="old"))
            assert (await client.post("/v1/tokens", json={"name": "new", "scopes": ["read"]})).status_code == 201
            assert app.retention is not None
            await app.retention.sweep()
            kept = await app.store.audit_entries(AuditFilter())
            assert [each.object for each in kept.items] == ["new"]
            assert kept.items[0].number == 1204

    run_async(main)


@pytest.mark.contract("N-7")
def test_hostile_names_are_kept_as_they_are_and_cut(own_world: World) -> None:
    name = "\ud800<script>\x00' OR 1=1 --" + "x" * 5000

    async def main() -> None:
        async with within(own_world) as (app, _, client):
            by = Caller(name=name, via=Channel.TELEGRAM, address=name)
            await app.store.record(audit_entry(by, Action.LINK_CREATE, app.clock(), object=name, run_id=name))
            (found,) = (await client.get("/v1/audit")).json()["items"]
            assert found["actor"]["name"].startswith("\ufffd<script>")
            assert len(found["actor"]["name"]) == len(found["object"]) == 1000
            shown = (await client.get("/v1/audit", params={"actor": found["actor"]["name"][:100]})).json()
            assert shown["items"] == []

    run_async(main)


def test_an_entry_of_a_person_on_the_machine_has_no_address() -> None:
    made = audit_entry(Actor(name="anna", via=Channel.CLI), Action.RUN_CANCEL, datetime.now(UTC), run_id="r")
    assert isinstance(made, AuditEntry)
    assert made.address is None
    called = audit_entry(
        Caller(name="anna", via=Channel.API, address="10.0.0.1"), Action.RUN_CANCEL, made.at, run_id="r"
    )
    assert (called.address, called.actor) == ("10.0.0.1", Actor(name="anna", via=Channel.API))
