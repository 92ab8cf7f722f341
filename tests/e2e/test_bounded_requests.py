"""Every route and page with the longest headers, queries and files, while another process watches `/healthz`.

What a stranger, a token or an engine can make large is bounded where it is made: nobody else waits for it, the response is of
a bounded size, and so is the memory of the server.
"""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest
from mcp.shared.inbound import MCP_NAME_HEADER
from starlette.routing import Route

from askback.http.app import api
from askback.http.auth import MCP, USER_HEADER, VIA_HEADER
from askback.http.protocol import MAX_HEAD_BYTES
from askback.web.app import PAGES, _static_routes
from askback.web.files import MAX_PICTURE
from askback.workspace.artifacts import MAX_NAMES, PAGE_NAMES
from support.api import PATIENCE_SEC, operations, over, reach, start
from support.data_folder import World
from support.health_watch import HealthWatch
from support.server import Server

MB = 1 << 20
GAP_SEC = 5.0
"""Far more than any of this takes, also on a busy machine."""
TRIES = 2
CALLERS = 3
MEMORY_MB = 900
MAX_PAGE_BYTES = 12 * MB
ROOM = MAX_HEAD_BYTES - 1_000
"""What is left of a head for one long value."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("bounded"))
    made.skill([{"write": {"path": "artifacts/plan.txt", "text": "1"}}, {"finish": {}}], name="writing", output=None)
    long = {"interaction_id": "long", "prompt": "b" * 31_900 + "a", "response_schema": {"type": "string"}}
    made.skill([{"ask": long}], [{"finish": {}}], name="asking", output=None)
    return made


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world, env={"ASKBACK_SLOTS": "4"}) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_SEC) as client:
        yield client


@pytest.fixture(scope="module")
def finished(client: httpx.Client) -> str:
    """A run that has ended."""
    run_id = start(client, "writing")
    over(client, run_id)
    return run_id


@pytest.fixture(scope="module")
def artifacts(world: World, finished: str) -> Path:
    """The folder that its engine could write to."""
    return world.data_dir / "runs" / finished / "work" / "artifacts"


def memory_mb(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def holds(server: Server, works: Sequence[Callable[[], object]], callers: int = CALLERS) -> None:
    """Nobody waits for this work, all of it at the same time. Tried again where the machine was busy with something else."""
    for _ in range(TRIES):
        with HealthWatch(server.url) as watch:
            with ThreadPoolExecutor(callers) as threads:
                list(threads.map(lambda work: work(), works))
            seen = watch.ended()
        if seen.gap_sec < GAP_SEC and not seen.refused:
            break
    print(seen, f"peak {memory_mb(server)} MB")
    # The response is 503 after the event loop was five seconds late.
    assert (seen.gap_sec < GAP_SEC, seen.refused) == (True, ()), seen
    assert memory_mb(server) < MEMORY_MB


def sent(server: Server, head: str) -> bytes:
    """The start of the response to this head, which arrives at once."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) as connection:
        connection.sendall(head.encode("latin-1"))
        return connection.recv(4096)


# A stranger's headers.

QUADRATIC = 'askback_language="' + '\\"' * 30_000 + '"'
HEADERS = {
    "cookie": ['askback_language="' + '\\"' * (ROOM // 2 - 20) + '"', "a=b;" * (ROOM // 4), ";" * ROOM, "=" * ROOM],
    "accept-language": ["zh;q=0.1," * (ROOM // 9), "," * ROOM, "zh;q=" + "9" * ROOM, "-" * ROOM],
    "accept": ["text/html," + "a/b;q=0.1," * (ROOM // 11), "," * ROOM, ";" * ROOM, "text/event-stream" + ";" * ROOM],
    "authorization": ["Bearer " + " " * ROOM + "a", "a" * ROOM, "Bearer " + "a" * ROOM],
    "content-type": ["multipart/form-data;" + 'a="";' * (ROOM // 5), 'multipart/form-data; a="' + ";" * ROOM],
    "content-length": ["9" * 4_000],
    "range": ["bytes=" + "0-1," * (ROOM // 4)],
    "if-none-match": ['"a",' * (ROOM // 4)],
    "last-event-id": ["9" * ROOM],
    "idempotency-key": ["a" * ROOM],
    "traceparent": ["00-" + "0" * ROOM],
    "origin": ["http://" + "a." * (ROOM // 2)],
    "host": ["a." * (ROOM // 2), ":" * ROOM],
    "forwarded": ["for=a," * (ROOM // 6)],
    "x-forwarded-for": ["1.1.1.1," * (ROOM // 8)],
    "user-agent": ["a(" * (ROOM // 2)],
    "sec-fetch-site": ["same-origin" * (ROOM // 11)],
    VIA_HEADER: ["mcp," * (ROOM // 4)],
    USER_HEADER: ["%C3%A9" * (ROOM // 6)],
    MCP_NAME_HEADER.lower(): ["=?base64?" + "a" * (ROOM - 20) + "?="],
    "mcp-session-id": ["a" * ROOM],
    "access-control-request-method": ["GET," * (ROOM // 4)],
    "x": ["a\r\nx: " * (ROOM // 6)],
}


@pytest.mark.parametrize("path", ["/", "/enter", "/v1/runs", "/v1/uploads", "/healthz"])
def test_a_strangers_longest_headers_hold_up_nobody(server: Server, path: str) -> None:
    def work(name: str, value: str) -> None:
        host = "" if name == "host" else f"Host: 127.0.0.1:{server.port}\r\n"
        answer = sent(server, f"GET {path} HTTP/1.1\r\n{host}Accept: text/html\r\n{name}: {value}\r\n\r\n")
        assert answer.split()[1] in (b"200", b"400", b"401", b"403"), answer

    holds(server, [lambda n=n, v=v: work(n, v) for n, values in HEADERS.items() for v in values])  # type: ignore[misc]


@pytest.mark.parametrize("path", ["/", "/v1/runs", "/enter"])
def test_a_stranger_cannot_stop_the_server_with_a_cookie(server: Server, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAccept: text/html\r\nCookie: {QUADRATIC}\r\n\r\n"
    holds(server, [lambda: sent(server, head)] * CALLERS)


def flood(server: Server, content: bytes) -> None:
    """Send this, whether the server reads it or not, and wait for the first bytes of a response."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) as connection, suppress(OSError):
        connection.sendall(content)
        connection.recv(4096)


@pytest.mark.parametrize("path", ["/healthz", "/v1/uploads"])
def test_a_stranger_cannot_stop_the_server_with_tiny_chunks(server: Server, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    holds(server, [lambda: flood(server, head + b"1\r\na\r\n" * 40_000 + b"0\r\n\r\n")] * 40, 40)


def test_a_stranger_cannot_stop_the_server_with_countless_headers(server: Server) -> None:
    head = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode()
    assert sent(server, head.decode() + "a:\r\n" * 3_900 + "\r\n").startswith(b"HTTP/1.1 400 ")
    assert sent(server, head.decode() + "a:\r\n" * 90 + "\r\n").startswith(b"HTTP/1.1 200 ")
    holds(server, [lambda: flood(server, (head + b"a:\r\n" * 90 + b"\r\n") * 400)] * 60, 60)


@pytest.mark.parametrize("length", [20_000, 60_000, 200_000])
def test_a_head_that_is_too_long_is_refused_however_it_arrives(server: Server, length: int) -> None:
    head = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nx: {'a' * length}\r\n\r\n"
    assert sent(server, head).startswith(b"HTTP/1.1 400 ")
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) as connection:
        connection.sendall(head[:-4].encode())
        connection.sendall(head[-4:].encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")


# Every route and page.


def filled(path: str, run_id: str) -> str:
    """The path of a template, of the run where it names one."""
    known = {"run_id": run_id, "skill_id": "writing", "name": "scripted", "path": "plan.txt"}
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: known.get(found[1], "a" * 3_000), path)


def routes() -> Iterator[tuple[str, str]]:
    """Every method and path of the server, as it serves them, and the two paths that the gate answers itself."""
    served = [*api(cast(Any, None), {MCP: cast(Any, None)}).routes, *_static_routes()]
    for route in served:
        assert isinstance(route, Route)
        for method in route.methods or ("GET", "POST", "DELETE"):
            yield method, route.path
    yield from (("GET", page.path) for page in PAGES)
    yield from (("GET", "/enter"), ("POST", "/enter"))


def query_names(module: str) -> set[str]:
    """What the functions of a module that read a query could call its parameters: each short text in them."""
    source = ast.parse(Path(sys.modules[module].__file__ or "").read_text())
    functions = [each for each in ast.walk(source) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    readers = [each for each in functions if "query_params" in ast.unparse(each)]
    texts = (each.value for reader in readers for each in ast.walk(reader) if isinstance(each, ast.Constant))
    return {text for text in texts if isinstance(text, str) and re.fullmatch(r"[a-z_]{1,12}", text)}


def longest(schema: dict[str, object]) -> list[str]:
    """Values of a parameter: the longest that it allows, and longer ones."""
    allowed = int(str(schema.get("maxLength", 200)))
    return ["a" * allowed, "a " * (ROOM // 6), "9" * ROOM]


def requests(run_id: str) -> Iterator[tuple[str, str]]:
    """Every method and target of the server, with each parameter in turn as long as possible."""
    for method, path in routes():
        target = filled(path, run_id if method == "GET" else "none")
        yield method, target
        for each in operations().get((method, path), {}).get("parameters", []):
            if each["in"] == "query":
                for value in longest(each["schema"]):
                    yield method, f"{target}?{each['name']}={quote(value)}"
    for page in PAGES:
        path = filled(page.path, run_id)
        for name in query_names(page.show.__module__):
            yield "GET", f"{path}?{name}={quote('a:b ' * (ROOM // 8))}"
        yield "GET", path + "?" + "&".join(f"label=a{number}:b" for number in range(ROOM // 12))
        yield "GET", path + "?q=" + "ba+" * (ROOM // 3)


def test_every_route_and_page_with_the_longest_parameters_holds_up_nobody(
    server: Server, client: httpx.Client, finished: str
) -> None:
    def work(method: str, target: str) -> None:
        body = {"content": json.dumps({"a": "b" * 200_000}), "headers": {"content-type": "application/json"}}
        with client.stream(method, target, **({} if method == "GET" else body)) as answer:  # type: ignore[arg-type]
            assert answer.status_code < 500, (method, target[:100], answer.status_code)
            if answer.headers.get("content-type", "") == "text/event-stream":
                return
            size = sum(len(piece) for piece in answer.iter_bytes())
            assert size < MAX_PAGE_BYTES, (method, target[:100], size)

    every = list(requests(finished))
    assert query_names("askback.web.pages") >= {"actor", "action", "run_id", "cursor"}
    assert len(every) > 300
    holds(server, [lambda m=m, t=t: work(m, t) for m, t in every])  # type: ignore[misc]


def test_every_route_and_page_with_the_longest_headers_holds_up_nobody(server: Server, finished: str) -> None:
    """Behind the gate, with each header that any of them reads."""

    def work(method: str, target: str, name: str, value: str) -> None:
        given = {"host": f"127.0.0.1:{server.port}", "authorization": f"Bearer {server.token}", name: value}
        body = "" if method in ("GET", "HEAD") else '{"a": "b"}'
        given |= {"content-length": str(len(body)), "content-type": given.get("content-type", "application/json")}
        head = "".join(f"{each}: {text}\r\n" for each, text in given.items())
        answer = sent(server, f"{method} {target} HTTP/1.1\r\n{head}\r\n{body}")
        assert answer.split()[1] < b"500", (method, target, name, answer[:500])

    parameters = [each for operation in operations().values() for each in operation.get("parameters", [])]
    assert {each["name"].lower() for each in parameters if each["in"] == "header"} <= HEADERS.keys()
    kinds = {
        name: values[-1] for name, values in HEADERS.items() if name not in ("authorization", "content-length", "host")
    }
    every = [(method, filled(path, finished if method == "GET" else "none")) for method, path in routes()]
    holds(
        server,
        [
            lambda m=m, t=t, n=n, v=v: work(m, t[:1_000], n, v)  # type: ignore[misc]
            for m, t in every
            for n, v in kinds.items()
        ],
    )


@pytest.mark.parametrize("path", ["/enter", "/v1/runs", "/healthz"])
def test_a_query_has_at_most_a_hundred_parameters(server: Server, path: str) -> None:
    def status(parameters: int) -> int:
        query = "&".join(f"%61{number}=%ff" for number in range(parameters))
        return httpx.get(f"http://127.0.0.1:{server.port}{path}?{query}").status_code

    assert status(100) != 400
    assert status(101) == 400


# Searches.


def test_a_search_with_countless_words_holds_up_nobody(server: Server, client: httpx.Client) -> None:
    for run_id in [start(client, "asking") for _ in range(12)]:
        reach(client, run_id, "waiting_user")
    assert client.get("/runs", params={"q": "bbbba asking"}).text.count("/runs/") > client.get(
        "/runs?q=bbc"
    ).text.count("/runs/")

    def work(length: int) -> None:
        head = f"GET /runs?q={'bbbba+' * (length // 6)} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        sent(server, f"{head}Authorization: Bearer {server.token}\r\n\r\n")

    holds(server, [lambda: work(ROOM)] * CALLERS)
    holds(server, [lambda: work(60_000)] * CALLERS)


# Previews.

DEEP = "[" * 450 + ",".join(["[]"] * 150_000) + "]" * 450
FILES = {
    "deep.json": DEEP,
    "numbers.json": "[" + "1e5," * 120_000 + "1]",
    "names.json": "{" + ",".join(f'"{number:05}":{{}}' for number in range(40_000)) + "}",
    "references.md": f"[a]: <http://x/{'y' * 100_000}>\n\n" + "[a] " * 2_000,
    "titles.md": f'[a]: x "{"y" * 100_000}"\n\n' + "[a] " * 2_000,
    "table.md": "|a" * 20_000 + "|\n" + "|-" * 20_000 + "|\n" + "|a\n" * 30_000,
    "paragraphs.md": "a\n\n" * 160_000,
    "emphasis.md": "*a " * 60_000,
    "quotes.md": ">" * 500_000,
    "signs.txt": '"' * 600_000,
    "lines.csv": "a,b\n" * 150_000,
    "signs.html": "<b>&" * 120_000,
    "empty.svg": "<svg>" + "<g>" * 100_000,
    "controls.txt": "\x01" * 500_000,
    "quotes.markdown": "> " * 250_000,
    "pictures.md": "![a](b)" * 70_000,
    "html.md": "<a>" * 170_000,
    "code.md": "```\n" * 120_000,
    "lists.md": "".join("  " * (number % 40) + "- a\n" for number in range(20_000)),
}


def test_no_preview_is_much_longer_than_its_file(
    server: Server, client: httpx.Client, finished: str, artifacts: Path
) -> None:
    for name, text in FILES.items():
        (artifacts / name).write_text(text)

    def work(page: str, name: str) -> None:
        answer = client.get(f"/runs/{finished}/{page}", params={"path": name})
        assert answer.status_code == 200, (page, name)
        assert len(answer.content) < MAX_PAGE_BYTES, (page, name, len(answer.content))

    holds(server, [lambda p=p, n=n: work(p, n) for n in FILES for p in ("preview", "changes")])  # type: ignore[misc]
    (artifacts / "large.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(MAX_PICTURE - 8))
    holds(
        server, [lambda: client.get(f"/runs/{finished}/picture", params={"path": "large.png"}).raise_for_status()] * 9
    )
    (artifacts / "large.png").unlink()
    for name in FILES:
        (artifacts / name).unlink()


# Lists.


def test_countless_artifacts_with_long_paths_are_listed_page_by_page(
    server: Server, client: httpx.Client, finished: str, artifacts: Path
) -> None:
    folder = os.open(artifacts, os.O_RDONLY)
    for _ in range(14):
        os.mkdir("d" * 250, dir_fd=folder)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    for number in range(20_000):
        os.close(os.open(f"{number:05}", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)

    def listed() -> list[str]:
        paths: list[str] = []
        query: dict[str, str] = {}
        while True:
            answer = client.get(f"/v1/runs/{finished}/artifacts", params=query)
            assert len(answer.content) < 2 * PAGE_NAMES
            page = answer.json()
            paths += [each["path"] for each in page["items"]]
            if page["next_cursor"] is None:
                return paths
            query = {"cursor": page["next_cursor"]}

    def other(path: str) -> None:
        answer = client.get(path)
        assert (answer.status_code, len(answer.content) < 2 * PAGE_NAMES) == (200, True), path

    paths = listed()
    assert len(set(paths)) == len(paths)
    assert MAX_NAMES - 4_096 < sum(map(len, paths)) <= MAX_NAMES
    assert client.get(f"/v1/runs/{finished}/result").json()["more_artifacts"] is True
    assert "More than" in client.get(f"/runs/{finished}").text
    assert client.get(f"/v1/runs/{finished}/bundle").json()["code"] == "BUNDLE_TOO_LARGE"
    ways = [f"/runs/{finished}", f"/runs/{finished}/files", f"/v1/runs/{finished}/result"]
    holds(server, [listed, *(lambda path=path: other(path) for path in ways)])  # type: ignore[misc]
