"""A caller that believes nothing: every answer it gets is held against the OpenAPI document and the rules for all answers."""

from __future__ import annotations

import functools
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import jsonschema_rs

from askback.app import App
from askback.app.server import WebServer, web_server
from askback.http.app import SAFE_HEADERS, openapi_document
from askback.http.problems import MEDIA_TYPE
from support.data_folder import World
from support.program import until
from support.server import Server

PATIENCE_SEC = 120.0
FINAL = ("succeeded", "failed", "canceled")
RFC_3339_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


openapi = openapi_document


@functools.cache
def operations() -> dict[tuple[str, str], dict[str, Any]]:
    """Every operation, by method and path template."""
    found = openapi()["paths"]
    return {(method.upper(), path): each for path, methods in found.items() for method, each in methods.items()}


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)
    made = [re.escape(part) if at % 2 == 0 else (".+" if part == "path" else "[^/]+") for at, part in enumerate(parts)]
    return re.compile("".join(made))


def template_of(method: str, path: str) -> str | None:
    fitting = [each for verb, each in operations() if verb == method and _pattern(each).fullmatch(path)]
    return max(fitting, key=lambda each: (each.count("/"), -each.count("{")), default=None)


@functools.cache
def _validator(method: str, template: str, status: str, kind: str) -> Any:
    schema = operations()[method, template]["responses"][status]["content"][kind].get("schema", {})
    return jsonschema_rs.validator_for({**schema, "components": openapi()["components"]}, validate_formats=True)


@functools.cache
def _problem_validator() -> Any:
    components = openapi()["components"]
    closed = {**components["schemas"]["Problem"], "additionalProperties": False}
    return jsonschema_rs.validator_for({**closed, "components": components})


def check(response: httpx.Response) -> None:
    """Fail unless the answer is one that the document allows, and has what every answer has."""
    for name, value in SAFE_HEADERS:
        assert name.decode() in response.headers, f"{name.decode()} is missing: {response.request.url}"
        if name != b"content-security-policy":
            assert response.headers[name.decode()] == value.decode()
    assert "access-control-allow-origin" not in response.headers
    assert response.status_code < 500, f"{response.status_code}: {response.request.method} {response.request.url}"
    kind = response.headers.get("content-type", "").partition(";")[0]
    if response.status_code >= 400:
        assert kind == MEDIA_TYPE, (kind, response.request.url)
    if kind == "text/event-stream":
        return
    response.read()
    _check_document(response, kind)


def _check_document(response: httpx.Response, kind: str) -> None:
    method, path = response.request.method, urlsplit(str(response.request.url)).path
    template = template_of(method, path)
    if kind == MEDIA_TYPE and response.request.method != "HEAD":
        _problem_validator().validate(response.json())
    if template is None or response.request.method == "HEAD":
        return
    described = operations()[method, template]["responses"].get(str(response.status_code))
    assert described is not None, f"{method} {template} does not document {response.status_code}: {response.text[:500]}"
    content = described.get("content", {})
    assert bool(content) == bool(kind), (method, template, response.status_code, kind)
    if kind.endswith("json") and "*/*" not in content:
        assert kind in content, (method, template, kind)
        _validator(method, template, str(response.status_code), kind).validate(response.json())
    elif kind:
        assert kind in content or "*/*" in content, (method, template, kind)


@contextmanager
def calling(url: str, token: str | None, **headers: str) -> Iterator[httpx.Client]:
    """A client with this token, or with none."""
    given = headers | ({"authorization": f"Bearer {token}"} if token is not None else {})
    with httpx.Client(base_url=url, headers=given, timeout=PATIENCE_SEC, event_hooks={"response": [check]}) as client:
        yield client


@asynccontextmanager
async def within(world: World, config: str = "") -> AsyncIterator[tuple[App, WebServer, httpx.AsyncClient]]:
    """The server in this very program, and a client that reaches it without a socket."""
    async with world.working(f'skills_dir = ["{world.folder}/skills"]\n{config}', serving=True) as app:
        web = web_server(app, 8765)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=web.application),
            base_url="http://127.0.0.1:8765",
            headers={"authorization": f"Bearer {web.token}"},
            event_hooks={"response": [_check_later]},
        ) as client:
            yield app, web, client


async def _check_later(response: httpx.Response) -> None:
    await response.aread()
    check(response)


# What most tests do.


def start(client: httpx.Client, skill: str = "asking", **rest: Any) -> str:
    body = {"skill": skill, "engine": "scripted", "mode": "interactive", **rest}
    made = client.post("/v1/runs", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def get(client: httpx.Client, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/runs/{run_id}").json()
    return found


def reach(client: httpx.Client, run_id: str, *states: str) -> dict[str, Any]:
    """Wait until the run is in one of these states; a final one that is none of them fails the test."""

    def look() -> dict[str, Any] | None:
        run = get(client, run_id)
        assert run["state"] in states or run["state"] not in FINAL, run
        if run["state"] in states:
            return run
        time.sleep(0.02)
        return None

    found = until(look)
    assert found is not None
    return found


def waiting(client: httpx.Client, skill: str = "asking", **rest: Any) -> str:
    """A run that waits for its user."""
    run_id = start(client, skill, **rest)
    reach(client, run_id, "waiting_user")
    return run_id


def reply(client: httpx.Client, run_id: str, response: Any, interaction_id: str = "colour") -> httpx.Response:
    body = {"interaction_id": interaction_id, "response": response}
    return client.post(f"/v1/runs/{run_id}/interaction/reply", json=body)


def over(client: httpx.Client, run_id: str) -> dict[str, Any]:
    return reach(client, run_id, *FINAL)


def newest_run(client: httpx.Client) -> list[str]:
    """The id of the newest run: the run itself may belong to another test and change at any time."""
    return [run["id"] for run in client.get("/v1/runs", params={"limit": 1}).json()["items"]]


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """What was told of a refusal of this kind."""
    assert response.status_code == status, (response.status_code, response.text)
    told: dict[str, Any] = response.json()
    assert (told["code"], told["status"]) == (code, status), told
    return told


def get_exactly(server: Server, target: str) -> tuple[int, bytes]:
    """The answer to a target that no client would send like that: its status, and all of it."""
    head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
    came = exchange(server, f"{head}Connection: close\r\n\r\n".encode())
    return int(came.split(b" ", 2)[1]), came


def exchange(server: Server, sent: bytes, *, most: int = 1 << 20) -> bytes:
    """What the server answers to these very bytes, until it closes or has said all of one answer."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) as connection:
        connection.sendall(sent)
        came = b""
        while len(came) < most and not _whole(came):
            chunk = connection.recv(65536)
            if not chunk:
                break
            came += chunk
        return came


def _whole(came: bytes) -> bool:
    head, found, body = came.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
    return bool(found) and length is not None and len(body) >= int(length[1])
