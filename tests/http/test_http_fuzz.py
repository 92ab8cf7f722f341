"""Hostile requests by the thousand: no answer of 5xx, and none that the OpenAPI document does not allow.

ASKBACK_TEST_REQUESTS says how many; the nightly run takes 100,000.
"""

from __future__ import annotations

import http.client
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode

from support.api import PATIENCE_SEC, calling, check, openapi, operations, over, start, waiting
from support.data_folder import World
from support.server import Server

REQUESTS = int(os.environ.get("ASKBACK_TEST_REQUESTS", "3000"))
SCHEMA = schemathesis.openapi.from_dict(openapi())
FITTING = [(method, path, GenerationMode.POSITIVE) for method, path in operations()]
UNFITTING = [
    (method, path, GenerationMode.NEGATIVE)
    for (method, path), operation in operations().items()
    # Of an address alone every one fits.
    if "requestBody" in operation or any(each["in"] != "path" for each in operation.get("parameters", ()))
]
EXAMPLES = max(5, REQUESTS // 2 // len(FITTING + UNFITTING))
"""Half of the requests are made from the document; the other half from a corpus."""

NOT_MEANT = ("authorization", "cookie", "host", "content-length", "transfer-encoding", "user-agent", "connection")
GENERATING = settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    deadline=None,
    database=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, and things that are really there, so that not every request ends at an id that nobody knows."""

    server: Server
    world: World
    runs: tuple[str, ...]
    links: tuple[str, ...]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, furnished_at: Callable[[Path], World]) -> Iterator[Target]:
    world = furnished_at(tmp_path_factory.mktemp("fuzzed"))
    env = {"ASKBACK_SLOTS": "2", "ASKBACK_LIMITS__BODY": "1", "ASKBACK_LIMITS__UPLOAD": "1"}
    with Server(world, env=env) as server, calling(server.url, server.token) as client:
        asking, form, done = waiting(client), waiting(client, "form"), start(client, "quick")
        over(client, done)
        made = [client.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()["url"] for run_id in (asking, form)]
        links = tuple(str(url).rpartition("/")[2] for url in made)
        yield Target(server=server, world=world, runs=(asking, form, done), links=links)
        assert client.get("/healthz").json()["status"] == "ok"
        assert "Traceback" not in server.stderr, server.stderr
        assert "internal error" not in server.stderr


# Requests made from the document.


@pytest.mark.parametrize(("method", "path", "mode"), FITTING + UNFITTING)
def test_the_document_tells_the_truth(target: Target, method: str, path: str, mode: GenerationMode) -> None:
    chance = random.Random(f"{method} {path}")
    token = None if path.startswith("/v1/answers/") else target.server.token
    with calling(target.server.url, token) as client:

        @seed(len(path))
        @GENERATING
        @given(case=SCHEMA[path][method].as_strategy(generation_mode=mode))
        def send(case: Case) -> None:
            aim(case, target, chance)
            answer = client.send(request_of(case, client))
            if (answer.status_code, path) == (201, "/v1/runs"):
                client.post(f"/v1/runs/{answer.json()['id']}/cancel")

        send()


def hurry(case: Case) -> None:
    """A valid time to wait is waited for: a minute becomes a second."""
    query = case.query or {}
    with suppress(TypeError, ValueError):
        if 1 < float(query.get("wait", 0)) <= 60:
            query["wait"] = float(query["wait"]) / 60


def aim(case: Case, target: Target, chance: random.Random) -> None:
    """Half of the time at something that is there."""
    hurry(case)
    real = {"run_id": target.runs, "link": target.links, "skill_id": ("quick", "open"), "path": ("deep/a b.txt",)}
    for name in case.path_parameters or {}:
        if name in real and chance.random() < 0.5:
            case.path_parameters[name] = chance.choice(real[name])
    if isinstance(case.body, dict):
        for name, values in {
            "skill": ("open", "quick"),
            "interaction_id": ("colour",),
            "engine": ("scripted",),
        }.items():
            if name in case.body and chance.random() < 0.3:
                case.body[name] = chance.choice(values)


def request_of(case: Case, client: httpx.Client) -> httpx.Request:
    """The request as schemathesis means it, but for what says who sends it and how long it is."""
    meant = requests.Request(**case.as_transport_kwargs(base_url=str(client.base_url))).prepare()
    headers = {name: str(value) for name, value in meant.headers.items() if name.lower() not in NOT_MEANT}
    fitting = {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}
    return client.build_request(str(meant.method), str(meant.url), headers=fitting, content=meant.body)  # type: ignore[arg-type]


# A corpus.

NASTY = [
    "",
    " ",
    "0",
    "-1",
    "1e9",
    "NaN",
    "null",
    "true",
    "\x00",
    "a\x00b",
    "\r\nX-Injected: 1",
    "../../../../etc/passwd",
    "..\\..\\windows",
    "....//....//etc",
    "/etc/passwd",
    "file:///etc/passwd",
    "http://169.254.169.254/",
    "' OR 1=1 --",
    '"; DROP TABLE runs; --',
    "%",
    "_",
    "*",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "<script>alert(1)</script>",
    "$(id)",
    "`id`",
    "-rf",
    "--help",
    "@/etc/passwd",
    "\u202e",
    "\U0001f600",
    "\ufeff",
    "İ",
    "ß",
    "\uffff",
    "a" * 199,
    "a" * 201,
    "a" * 9_000,
    "9" * 30,
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "0x41",
    "1_000",
    "\u0661\u0662",
    "[]",
    "{}",
    "__proto__",
    "constructor",
]
BODIES = [
    *(json.dumps(text).encode() for text in NASTY),
    *(json.dumps({"skill": text, "input": {text: text}, "engine": text}).encode() for text in NASTY),
    *(json.dumps({"interaction_id": text, "response": text}).encode() for text in NASTY),
    *(json.dumps({"interaction_id": "colour", "response": {text: [text]}}).encode() for text in NASTY),
    *(
        json.dumps({"skill": "open", "options": {text: text, "model": text}, "webhooks": [{"url": text}]}).encode()
        for text in NASTY
    ),
    *(text.encode("utf-8", "surrogatepass") for text in NASTY),
    b'{"response": "\\ud800"}',
    b'{"skill": 1e999}',
    b"[" * 5000,
    b'{"a":' * 5000,
    b'{"skill": "open", "input": {"a": 99999999999999999999999999}}',
    b"PK\x05\x06" + bytes(18),
    b"--x\r\nContent-Disposition: form-data; name=file; filename=../../x\r\n\r\nx\r\n--x--\r\n",
    b"--x\r\nContent-Disposition: form-data; name=file; filename*=UTF-8''%ff%fe\r\n\r\nx\r\n--x--\r\n",
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="\r\n\r\nx\r\n--x--\r\n',
    bytes(range(256)),
]
KINDS = [
    "application/json",
    "application/json; charset=utf-16",
    "application/problem+json",
    "application/zip",
    "multipart/form-data; boundary=x",
    "multipart/form-data; boundary=" + "x" * 300,
    "application/x-www-form-urlencoded",
    "text/plain",
    "*/*",
    ";;;",
    "",
]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "FOO"]
HEADERS = ["Accept", "Last-Event-ID", "Idempotency-Key", "Origin", "Sec-Fetch-Site", "Cookie", "Range", "If-None-Match"]
HEADERS += [
    "Accept-Encoding",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "X-HTTP-Method-Override",
    "Forwarded",
]
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_hostile_request_is_a_fault_of_ours(target: Target, part: int) -> None:
    """Each a mix of nasty values in the path, the query, the headers and the body, from a seed that is always the same."""
    chance = random.Random(part)
    reached = http.client.HTTPConnection("127.0.0.1", target.server.port, timeout=PATIENCE_SEC)
    with calling(target.server.url, None) as client, closing(reached) as connection:
        for _ in range(REQUESTS // 2 // PARTS):
            method, path, headers, body = hostile(target, chance)
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = b"" if answer.headers.get_content_type() == "text/event-stream" else answer.read()
            if answer.headers.get_content_type() == "text/event-stream" or answer.will_close:
                connection.close()
            request = httpx.Request(method, target.server.url + path.partition("?")[0])
            check(httpx.Response(answer.status, headers=answer.getheaders(), content=content, request=request))
            assert answer.getheader("x-injected") is None
            if answer.status == 201 and path == "/v1/runs":
                client.post(f"/v1/runs/{json.loads(content)['id']}/cancel", headers=authorized(target))


def authorized(target: Target) -> dict[str, str]:
    return {"Authorization": f"Bearer {target.server.token}"}


def hostile(target: Target, chance: random.Random) -> tuple[str, str, dict[str, str], bytes | None]:
    method, template = chance.choice(list(operations()))
    method = method if chance.random() < 0.8 else chance.choice(METHODS)
    headers = authorized(target) if chance.random() < 0.9 and "{link}" not in template else {}
    for _ in range(chance.choice([0, 0, 1, 2])):
        text = chance.choice(NASTY).encode("utf-8", "replace").decode("latin-1")
        headers[chance.choice(HEADERS)] = "".join(letter for letter in text if letter.isprintable()).strip()
    body = chance.choice(BODIES) if method in ("POST", "PUT", "PATCH") and chance.random() < 0.9 else None
    if body is not None and (kind := chance.choice([KINDS[0], *KINDS])):
        headers["Content-Type"] = kind
    return method, address(template, target, chance), headers, body


def address(template: str, target: Target, chance: random.Random) -> str:
    real = {"{run_id}": target.runs, "{link}": target.links, "{skill_id}": ("quick",), "{path}": ("a",)}
    path = template
    for name, values in real.items():
        nasty = quote(chance.choice(NASTY), safe=chance.choice(["", "/", "/.%"]), errors="replace")
        path = path.replace(name, chance.choice(values) if chance.random() < 0.6 else nasty)
    names = ["after", "limit", "cursor", "state", "skill", "engine", "token", chance.choice(NASTY)]
    query = [
        f"{quote(chance.choice(names))}={quote(chance.choice(NASTY), errors='replace')}"
        for _ in range(chance.choice([0, 1, 2]))
    ]
    target_path = path + ("?" + "&".join(query) if query else "")
    return "".join(letter for letter in target_path if "!" <= letter <= "~") or "/"


@pytest.mark.parametrize(("method", "path"), operations())
def test_every_operation_documents_the_refusal_of_a_malformed_request(target: Target, method: str, path: str) -> None:
    """The server refuses such a request before it looks for an operation."""
    with calling(target.server.url, None) as client:
        answer = client.request(method, path, params=[(f"p{number}", "") for number in range(101)])
    assert (answer.status_code, answer.json()["code"]) == (400, "REQUEST_MALFORMED")
