"""Somebody with a link to one question, and no token: what they can do with it, and that it is nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.requests import Request

from askback.access.grants import Grant
from askback.app import App
from askback.app.notifications import make_links, make_tokens
from askback.http import app as http_app
from askback.runs.links import Links
from askback.web import app as site
from askback.web import pages
from askback.web.page_context import PageContext
from support.api import (
    PATIENCE_SEC,
    calling,
    exchange,
    get,
    get_exactly,
    operations,
    over,
    refused,
    reply,
    waiting,
    within,
)
from support.data_folder import World, run_async, submit
from support.data_folder import waiting as waiting_run
from support.server import Server

PAGE = {"accept": "text/html", "accept-language": "en"}
ALLOWED = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/v1/answers/{link}"),
    ("POST", "/v1/answers/{link}"),
    ("POST", "/v1/answers/{link}/file"),
}
"""Operations for everybody, and for the holder of a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A link, and what it must not open."""

    link: str
    link_id: str
    run_id: str
    session_id: str
    token: str
    invitation_id: str

    def fill(self, template: str) -> str:
        names = {"run_id": self.run_id, "link": self.link, "link_id": self.link_id, "session_id": self.session_id}
        names |= {"token_name": self.token, "invitation_id": self.invitation_id, "skill_id": "asking"}
        names |= {"name": "scripted", "path": "deep/a b.txt"}
        return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "x"), template)

    def ways(self, server: Server) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        """Headers and parameters in which somebody might try the link elsewhere."""
        cookie = f"askback_session_{server.port}"
        yield {}, {}
        yield {"authorization": f"Bearer {self.link}"}, {}
        yield {"cookie": f"{cookie}={self.link}; __Host-{cookie}={self.link}; askback_token={self.link}"}, {}
        yield {"referer": f"{server.url}/answers/{self.link}"}, {"link": self.link, "token": self.link}


@pytest.fixture
def held(server: Server, client: httpx.Client) -> Held:
    run_id = waiting(client)
    made = client.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()
    name = f"anna-{run_id}"
    assert client.post("/v1/tokens", json={"name": name, "scopes": ["read"]}).status_code == 201
    invitation = client.post("/v1/invitations", json={"token": name}).json()
    server.session()
    session = client.get("/v1/sessions").json()["items"][0]
    return Held(
        link=urlsplit(made["url"]).path.rpartition("/")[2],
        link_id=made["id"],
        run_id=run_id,
        session_id=session["id"],
        token=name,
        invitation_id=invitation["id"],
    )


def state_of(client: httpx.Client, held: Held) -> Any:
    """What a link holder could have changed."""
    names = ("tokens", "invitations", "sessions", "skills", "interactions", f"runs/{held.run_id}/interaction/links")
    found = {name: len(client.get(f"/v1/{name}").json()["items"]) for name in names}
    return found, get(client, held.run_id)


def page_paths() -> list[str]:
    return [page.path for page in site.PAGES]


@pytest.mark.contract("N-2")
def test_a_link_opens_no_other_operation_in_any_way(server: Server, client: httpx.Client, held: Held) -> None:
    before = state_of(client, held)
    tried = 0
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as stranger:
        for method, template in operations():
            if (method, template) in ALLOWED:
                continue
            for headers, params in held.ways(server):
                tried += 1
                body = None if method in ("GET", "DELETE") else {}
                answer = stranger.request(method, held.fill(template), headers=headers, params=params, json=body)
                assert answer.status_code == 401, (method, template, headers, answer.status_code)
    assert tried > 100
    assert state_of(client, held) == before


@pytest.mark.contract("N-2")
def test_a_link_opens_no_other_page_in_any_way(server: Server, client: httpx.Client, held: Held) -> None:
    before = state_of(client, held)
    assert len(page_paths()) > 10
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as stranger:
        for template in (*page_paths(), "/static/app.css", "/v1/openapi.json", "/metrics", "/enter"):
            if template.startswith("/answers/"):
                continue
            for headers, params in held.ways(server):
                answer = stranger.get(held.fill(template), headers=PAGE | headers, params=params)
                assert answer.status_code == 401, (template, headers, answer.status_code)
                assert "set-cookie" not in answer.headers
    assert state_of(client, held) == before


@pytest.mark.contract("N-2")
def test_nothing_else_lies_below_a_link(server: Server, client: httpx.Client, held: Held) -> None:
    before = state_of(client, held)
    below = [held.fill(template) for _, template in operations()] + [held.fill(path) for path in page_paths()]
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as stranger:
        for start in (f"/v1/answers/{held.link}", f"/answers/{held.link}"):
            for path in (*below, "/static/", "/static/nothing.js", "/file/x"):
                if f"{start}{path}".rstrip("/") == start:
                    continue
                for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                    answer = stranger.request(method, start + path)
                    assert answer.status_code in (401, 404, 405), (method, start, path, answer.status_code)
        for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
            assert stranger.request(method, f"/v1/answers/{held.link}").status_code in (404, 405)
            assert stranger.request(method, f"/answers/{held.link}").status_code in (404, 405)
    for path in (
        "/v1/answers/{0}/../../runs",
        "/answers/{0}/static/../../../runs",
        "/answers/{0}/static/%2e%2e%2fapp.py",
    ):
        head = f"GET {path.format(held.link)} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
        assert status_of_raw(server, head) in (401, 404)
    assert state_of(client, held) == before


def status_of_raw(server: Server, head: str) -> int:
    return int(exchange(server, head.encode()).split(b" ", 2)[1])


@pytest.mark.contract("N-2")
def test_a_link_answers_its_question_once_and_no_later_one(server: Server, client: httpx.Client, held: Held) -> None:
    other = waiting(client)
    with calling(server.url, None) as stranger:
        path = f"/v1/answers/{held.link}"
        for body in ({"response": "red", "run_id": other}, {"response": "red", "interaction_id": "colour"}, {}):
            refused(stranger.post(path, json=body), 422, "REQUEST_INVALID")
        assert stranger.get(path, params={"choose": "0", "response": "red"}).json()["outcome"] == "pending"
        assert stranger.post(path, json={"response": "red"}).status_code == 202
        refused(stranger.post(path, json={"response": "blue"}), 409, "INTERACTION_NOT_PENDING")
        refused(stranger.post(f"{path}/file", files={"file": b"x"}), 409, "INTERACTION_NOT_PENDING")
        refused(stranger.get(path), 409, "INTERACTION_NOT_PENDING")
    assert over(client, held.run_id)["state"] == "succeeded"
    assert get(client, other)["state"] == "waiting_user"


def test_the_routes_that_are_tried_are_all_routes() -> None:
    """A route without a place in the OpenAPI document would be tried by nobody."""
    declared = {(each.method, each.template) for each in http_app._OPERATIONS}
    assert declared == set(operations())


# Files.


def link_to(client: httpx.Client, skill: str) -> tuple[str, str]:
    run_id = waiting(client, skill)
    made = client.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()
    return run_id, urlsplit(made["url"]).path


def test_a_file_is_the_answer_of_a_link(server: Server, client: httpx.Client, furnished: World) -> None:
    run_id, path = link_to(client, "filing")
    with calling(server.url, None) as stranger:
        answered = stranger.post(f"{path}/file", files={"file": ("../sent-by-link.txt", b"by train")})
        assert answered.status_code == 202
        assert answered.json()["response"].endswith("/sent-by-link.txt")
    assert over(client, run_id)["state"] == "succeeded"
    (copy,) = (furnished.data_dir / "runs" / run_id / "work").rglob("sent-by-link.txt")
    assert copy.read_bytes() == b"by train"
    uploads = furnished.data_dir / "uploads"
    (kept,) = uploads.rglob("sent-by-link.txt")
    assert client.delete(f"/v1/runs/{run_id}").status_code == 204
    assert not kept.exists(), "it is deleted with the run"


def test_a_file_by_link_has_the_limits_of_an_upload_and_leaves_nothing_if_it_is_no_answer(
    server: Server, client: httpx.Client, furnished: World
) -> None:
    uploads = furnished.data_dir / "uploads"
    before = sorted(uploads.glob("*")) if uploads.exists() else []
    run_id, path = link_to(client, "form")
    with calling(server.url, None) as stranger:
        refused(stranger.post(f"{path}/file", files={"file": b"x" * (5 << 20)}), 413, "BODY_TOO_LARGE")
        refused(stranger.post(f"{path}/file", files={"other": b"x"}), 422, "REQUEST_INVALID")
        refused(stranger.post(f"{path}/file", json={"file": "x"}), 415, "MEDIA_TYPE_UNSUPPORTED")
        told = stranger.post(f"{path}/file", files={"file": b"x"})
        refused(told, 422, "REPLY_INVALID")
    assert get(client, run_id)["state"] == "waiting_user"
    assert (sorted(uploads.glob("*")) if uploads.exists() else []) == before
    assert list((furnished.data_dir / "runs" / run_id / "work").rglob("answer-*")) == []


def test_an_upload_of_somebody_else_is_no_answer_by_link(
    server: Server, client: httpx.Client, furnished: World
) -> None:
    upload = client.post("/v1/uploads", files={"file": ("secret.txt", b"theirs")}).json()
    run_id, path = link_to(client, "filing")
    with calling(server.url, None) as stranger:
        answer = stranger.post(path, json={"response": {"upload_id": upload["upload_id"]}})
    assert answer.status_code in (202, 422)
    copies = (furnished.data_dir / "runs" / run_id / "work").rglob("secret.txt")
    assert list(copies) == []


# Afterwards.


def test_the_page_tells_for_some_days_how_the_question_ended(server: Server, client: httpx.Client, held: Held) -> None:
    reply(client, held.run_id, "blue")
    page = f"{server.url}/answers/{held.link}"
    shown = httpx.get(page, headers=PAGE, timeout=PATIENCE_SEC)
    assert shown.status_code == 200
    assert '"response": "blue"' in shown.text
    assert '"answered_with": {' in shown.text


def test_some_days_after_the_close_a_link_tells_nothing(own_world: World) -> None:
    async def discard(_: Any) -> None:
        """The response is looked at, not sent."""

    async def scene() -> None:
        async with within(own_world) as (app, _, client):
            run = await waiting_run(app, (await submit(app, "asking", mode="interactive")).id)
            made = (await client.post(f"/v1/runs/{run.id}/interaction/link", json={"expires_in_sec": 2_000_000})).json()
            link = app_links(app).read(made["url"].rpartition("/")[2])
            assert link is not None
            await app.service.reply(run.id, "blue", "colour")
            for days, status in ((6, 200), (7, 401)):
                later = PageContext(
                    service=app.service,
                    clock=lambda days=days: app.clock() + timedelta(days=days),
                    health=no_health,
                    audit=app.store,
                )
                grant = Grant(name="link", scopes=frozenset(), link=link)
                scope = {"type": "http", "method": "GET", "path": "/answers/x", "headers": [], "query_string": b""}
                request = Request(scope | {"path_params": {"link": "x"}, "grant": grant})
                shown = await pages.answer(later, request)
                await shown(scope, request.receive, discard)
                assert (shown.status_code, b"blue" in shown.body) == (status, status == 200)
                assert (b"<h1>This link does not work" in shown.body) == (status == 401)

    run_async(scene)


async def no_health() -> Any:
    raise AssertionError("nobody asks")


def app_links(app: App) -> Links:
    return make_links(app.records, app.workspaces, make_tokens(app.settings, app.records, app.clock), app.clock)


def test_a_secret_answer_is_not_on_the_page(server: Server, client: httpx.Client) -> None:
    run_id, path = link_to(client, "secretive")
    page = server.url + path.replace("/v1/answers/", "/answers/")
    with calling(server.url, None) as stranger:
        assert stranger.post(path, json={"response": "hunter-2-hunter"}).status_code == 202
    shown = httpx.get(page, headers=PAGE, timeout=PATIENCE_SEC)
    assert shown.status_code == 200
    assert "hunter-2-hunter" not in shown.text
    over(client, run_id)


def test_a_browser_keeps_the_choice_on_its_way_to_the_page(server: Server, held: Held) -> None:
    led = httpx.get(f"{server.url}/v1/answers/{held.link}?choose=1", headers=PAGE, timeout=PATIENCE_SEC)
    assert (led.status_code, led.headers["location"]) == (303, f"/answers/{held.link}?choose=1")
    assert get_exactly(server, f"/v1/runs/{held.run_id}")[0] == 200
