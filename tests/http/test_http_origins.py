"""Pages of other origins: only those in the settings, only below /v1/, never with a cookie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from askback.core.errors import Invalid
from support.data_folder import World
from support.server import Server

APP = "https://app.example"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("origins"))
    world.skill([{"finish": {"colour": "red"}}], name="quick")
    with Server(world, env={"ASKBACK_SERVER__ALLOWED_ORIGINS": f'["{APP}", "http://127.0.0.1:3000"]'}) as server:
        yield server


def cors(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


def test_a_named_origin_may_call_with_a_token(open_server: Server) -> None:
    with httpx.Client(base_url=open_server.url, timeout=60, headers={"origin": APP}) as page:
        asked = page.options("/v1/runs", headers=PREFLIGHT)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, APP)
        assert "authorization" in asked.headers["access-control-allow-headers"].lower()
        assert "DELETE" in asked.headers["access-control-allow-methods"]
        page.headers.update({"authorization": f"Bearer {open_server.token}", "sec-fetch-site": "cross-site"})
        made = page.post("/v1/runs", json={"skill": "quick", "engine": "scripted"})
        assert (made.status_code, made.headers["access-control-allow-origin"]) == (201, APP)
        found = page.get(f"/v1/runs/{made.json()['id']}", params={"wait": 60})
        assert found.json()["state"] == "succeeded"
        assert "ETag" in found.headers["access-control-expose-headers"]
        assert found.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in {**found.headers, **asked.headers, **made.headers}


def test_a_cookie_of_a_named_origin_counts_for_nothing(open_server: Server) -> None:
    session = open_server.session()
    with httpx.Client(base_url=open_server.url, timeout=60, headers=session) as browser:
        assert browser.get("/v1/runs").status_code == 200
        for method, path in (("GET", "/v1/runs"), ("POST", "/v1/runs"), ("DELETE", "/v1/sessions")):
            answer = browser.request(method, path, headers={"origin": APP})
            assert answer.status_code == 401, (method, path)
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "origin",
    [
        "https://app.example.evil",
        "https://evil-app.example",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example/",
        "https://APP.example",
        "null",
        "*",
        "",
        f"{APP}, {APP}",
    ],
)
def test_any_other_origin_gets_nothing(open_server: Server, origin: str) -> None:
    headers = {"origin": origin, "authorization": f"Bearer {open_server.token}"}
    with httpx.Client(base_url=open_server.url, timeout=60) as page:
        assert cors(page.get("/v1/runs", headers=headers)) == {}
        written = page.post("/v1/runs", headers=headers, json={"skill": "quick"})
        assert (written.status_code, cors(written)) == (403, {})
        asked = page.options("/v1/runs", headers={"origin": origin, **PREFLIGHT})
        assert (asked.status_code, cors(asked)) == (401, {})


def test_pages_and_sign_ins_are_not_shared(open_server: Server) -> None:
    with httpx.Client(base_url=open_server.url, timeout=60, headers={"origin": APP}) as page:
        for path in ("/", "/enter", "/healthz", "/v1", "/metrics", "/static/app.css"):
            assert cors(page.get(path)) == {}, path
            assert cors(page.options(path, headers=PREFLIGHT)) == {}, path


def test_without_the_setting_there_is_no_header(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=60, headers={"origin": APP}) as page:
        assert cors(page.options("/v1/runs", headers=PREFLIGHT)) == {}
        assert cors(page.get("/v1/runs", headers={"authorization": f"Bearer {server.token}"})) == {}


@pytest.mark.parametrize(
    "origin", ["*", "null", "https://*.example", "app.example", "https://app.example/", "https://a@b", ""]
)
def test_an_origin_that_is_none_is_refused(tmp_path: Path, origin: str) -> None:
    with pytest.raises(Invalid):
        World(tmp_path).settings(f'[server]\nallowed_origins = ["{origin}"]\n')
