"""Versions of artifacts over HTTP: which turn changed a file, its versions, and the differences between them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from askback.client import AsyncClient, Client, NotFound
from support.api import calling, over, refused, reply, waiting
from support.data_folder import ASK, FINISH, World, run_async
from support.server import Server

PATH = "deep/a b.md"


def wrote(text: str, name: str = PATH) -> dict[str, object]:
    return {"write": {"path": f"artifacts/{name}", "text": text}}


@pytest.fixture(scope="module")
def writing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, World, str]]:
    """A server, and a run that is over and has changed a file in its second turn."""
    world = World(tmp_path_factory.mktemp("versions"))
    world.skill([wrote("same\none\n"), wrote("x", "b"), ASK], [wrote("same\ntwo\n"), FINISH], name="writing")
    with Server(world) as server, calling(server.url, server.token) as client:
        run_id = waiting(client, "writing")
        reply(client, run_id, "red")
        over(client, run_id)
        yield server, world, run_id


@pytest.fixture
def http(writing: tuple[Server, World, str]) -> Iterator[httpx.Client]:
    server, _, run_id = writing
    with calling(server.url, server.token) as client:
        client.base_url = f"{server.url}/v1/runs/{run_id}"
        yield client


def test_a_file_has_its_turn_and_its_versions(http: httpx.Client) -> None:
    files = http.get("/artifacts").json()["items"]
    assert [(each["path"], each["turn"]) for each in files] == [("b", 1), (PATH, 2)]
    assert http.get("/result").json()["artifacts"] == files
    answer = http.get("/versions", params={"path": PATH})
    assert answer.json() == {
        "items": [
            {"turn": turn, "size": 9, "kept": True, "digest": sha256(text).hexdigest()}
            for turn, text in ((1, b"same\none\n"), (2, b"same\ntwo\n"))
        ],
        "next_cursor": None,
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"from": 1}, "@@ -1,2 +1,2 @@\n same\n-one\n+two\n"),
        ({"from": 2, "to": 1}, "@@ -1,2 +1,2 @@\n same\n-two\n+one\n"),
        ({"from": 0, "to": 1}, "@@ -0,0 +1,2 @@\n+same\n+one\n"),
        ({"from": 2}, ""),
        ({"from": 2, "to": "now"}, ""),
    ],
)
def test_two_versions_are_compared(http: httpx.Client, query: dict[str, str | int], expected: str) -> None:
    answer = http.get("/diff", params={"path": PATH, **query})
    assert answer.status_code == 200
    assert answer.json() == {
        "path": PATH,
        "from": query["from"],
        "to": query.get("to", "now"),
        "diff": expected,
        "cut": False,
    }


@pytest.mark.parametrize(
    ("query", "problems"),
    [
        ({"from": 0, "to": 99}, ["to: there is no turn 99"]),
        ({"from": 3}, ["from: there is no turn 3"]),
        ({"from": 3, "to": 4}, ["from: there is no turn 3", "to: there is no turn 4"]),
    ],
)
def test_a_turn_that_the_run_has_not_had_is_refused(
    http: httpx.Client, query: dict[str, int], problems: list[str]
) -> None:
    assert refused(http.get("/diff", params={"path": PATH, **query}), 422, "INPUT_INVALID")["problems"] == problems


def test_what_is_not_text_has_no_diff(http: httpx.Client, writing: tuple[Server, World, str]) -> None:
    _, world, run_id = writing
    new: Path = world.data_dir / "runs" / run_id / "work" / "artifacts" / "blob"
    new.write_bytes(b"\0")
    assert http.get("/versions", params={"path": "blob"}).json()["items"] == []
    assert http.get("/diff", params={"path": "blob", "from": 0}).json()["diff"] is None
    new.unlink()


@pytest.mark.parametrize("path", ["missing", "../skill/SKILL.md", "/etc/passwd", "deep", "a\0b", "\ud7ff/x"])
def test_a_path_that_is_no_artifact_is_not_found(http: httpx.Client, path: str) -> None:
    refused(http.get("/versions", params={"path": path}), 404, "ARTIFACT_NOT_FOUND")
    refused(http.get("/diff", params={"path": path, "from": 1}), 404, "ARTIFACT_NOT_FOUND")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"from": 1}, "path: required"),
        ({"path": ""}, "path:"),
        ({"path": PATH}, "from: required"),
        ({"path": PATH, "from": "x"}, "from:"),
        ({"path": PATH, "from": -1}, "from:"),
        ({"path": PATH, "from": 1, "to": "later"}, "to:"),
    ],
)
def test_a_wrong_query_names_its_field(http: httpx.Client, query: dict[str, str | int], problem: str) -> None:
    found = refused(http.get("/diff", params=query), 422, "REQUEST_INVALID")
    assert found["problems"][0].startswith(problem)


def test_a_token_that_may_not_read_gets_nothing(http: httpx.Client, writing: tuple[Server, World, str]) -> None:
    server, _, run_id = writing
    for path in ("versions", "diff"):
        answer = httpx.get(f"{server.url}/v1/runs/{run_id}/{path}", params={"path": PATH, "from": 1})
        refused(answer, 401, "UNAUTHORIZED")


def test_the_clients_read_versions_and_diffs(writing: tuple[Server, World, str]) -> None:
    server, _, run_id = writing
    with Client(server.url, server.token) as client:
        assert [each.turn for each in client.versions(run_id, PATH)] == [1, 2]
        found = client.diff(run_id, PATH, 1, 2)
        assert (found.from_, found.to, found.diff) == (1, 2, "@@ -1,2 +1,2 @@\n same\n-one\n+two\n")
        with pytest.raises(NotFound):
            client.diff(run_id, "missing", 1)

    async def main() -> None:
        async with AsyncClient(server.url, server.token) as later:
            assert [each.turn for each in await later.versions(run_id, PATH)] == [1, 2]
            assert (await later.diff(run_id, PATH, 2)).diff == ""

    run_async(main)
