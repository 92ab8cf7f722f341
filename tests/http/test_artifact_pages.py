"""The list of artifacts page by page: in the API, in the client, on the page and in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from support.api import calling, over, refused, start
from support.data_folder import World
from support.program import askback
from support.server import Server

COUNT = 1_203
NAMES = sorted(f"{number}.txt" for number in range(COUNT))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("many"))
    world.skill([{"finish": {}}], name="many", output=None)
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with calling(server.url, server.token) as client:
        yield client


@pytest.fixture(scope="module")
def run_id(world: World, client: httpx.Client) -> str:
    made = start(client, "many")
    over(client, made)
    for name in NAMES:
        (world.data_dir / "runs" / made / "work" / "artifacts" / name).write_text("x")
    return made


def test_pages_of_any_size_have_every_artifact_once(client: httpx.Client, run_id: str) -> None:
    for limit in (1, 100, COUNT - 1, COUNT, COUNT + 1):
        found: list[str] = []
        query = {"limit": str(limit)}
        while True:
            page = client.get(f"/v1/runs/{run_id}/artifacts", params=query).json()
            assert len(page["items"]) <= limit
            found += [each["path"] for each in page["items"]]
            if page["next_cursor"] is None or len(found) > 20 * limit:
                break
            query["cursor"] = page["next_cursor"]
        assert found == NAMES[: len(found)]
        assert len(found) == COUNT or limit == 1


def test_without_parameters_a_usual_run_has_one_page(client: httpx.Client, run_id: str) -> None:
    page = client.get(f"/v1/runs/{run_id}/artifacts").json()
    assert (len(page["items"]), page["next_cursor"]) == (COUNT, None)
    result = client.get(f"/v1/runs/{run_id}/result").json()
    assert (len(result["artifacts"]), "more_artifacts" in result) == (COUNT, False)


def test_a_cursor_beyond_the_end_is_an_empty_page(client: httpx.Client, run_id: str) -> None:
    page = client.get(f"/v1/runs/{run_id}/artifacts", params={"cursor": "999999"}).json()
    assert page == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("query", [{"cursor": "x"}, {"cursor": "-1"}, {"limit": "0"}, {"limit": "10001"}])
def test_what_is_no_page_is_refused(client: httpx.Client, run_id: str, query: dict[str, str]) -> None:
    refused(client.get(f"/v1/runs/{run_id}/artifacts", params=query), 422, "REQUEST_INVALID")


def test_the_client_and_the_commands_follow_the_pages(world: World, server: Server, run_id: str) -> None:
    with server.client() as client:
        assert [each.path for each in client.artifacts(run_id)] == NAMES
    at = {"ASKBACK_URL": server.url, "ASKBACK_TOKEN": server.token}
    shown = askback(world, "show", run_id, env=at).stdout
    assert shown.count("  file     ") == 500
    assert f"… {COUNT} files in all; --json lists them" in shown
    assert len(askback(world, "show", run_id, "--json", env=at).json["artifacts"]) == COUNT


def test_the_page_says_that_there_are_more(client: httpx.Client, run_id: str) -> None:
    page = client.get(f"/runs/{run_id}", headers={"accept": "text/html"}).text
    assert page.count('class="file-name"') == 500
    assert "More than 500 files. All of them are in the zip file." in page
