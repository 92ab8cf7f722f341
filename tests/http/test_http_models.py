"""`GET /v1/engines/{name}/models`, the clients, the command and the page that use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from askback.client import AsyncClient, Client, EngineModel, Refused
from support.data_folder import World
from support.listing_engine import ListingEngine
from support.program import askback
from support.server import Server

BIG = EngineModel(id="big-1", title="Big 1", description="The large one.", efforts=("low", "high"), is_default=True)
SMALL = EngineModel(id="small-1", title="Small 1")


@pytest.fixture
def listing(tmp_path: Path) -> ListingEngine:
    engine = ListingEngine(tmp_path)
    (tmp_path / "askback.toml").write_text(engine.settings)
    return engine


@pytest.fixture
def server(tmp_path: Path, listing: ListingEngine) -> Iterator[Server]:
    with Server(World(tmp_path), "--config", str(tmp_path / "askback.toml")) as started:
        yield started


def test_a_storm_of_requests_starts_one_process(server: Server, listing: ListingEngine) -> None:
    def asked(_: int) -> httpx.Response:
        headers = {"authorization": f"Bearer {server.token}"}
        return httpx.get(f"{server.url}/v1/engines/codex/models", headers=headers, timeout=120)

    with ThreadPoolExecutor(20) as threads:
        found = list(threads.map(asked, range(60)))
    assert {each.status_code for each in found} == {200}
    assert len({each.text for each in found}) == 1
    document = found[0].json()
    assert (document["engine"], [each["id"] for each in document["models"]]) == ("codex", ["big-1", "small-1"])
    assert (document["reason"], len(listing.starts)) == (None, 1)


def test_both_clients_read_them(server: Server) -> None:
    with Client(server.url, server.token) as client:
        found = client.models("codex")
        assert (found.models, found.reason) == ((BIG, SMALL), None)
        silent = client.models("scripted")
        assert silent.models is None
        assert "does not list its models" in str(silent.reason)
        with pytest.raises(Refused) as refused:
            client.models("codx")
        assert refused.value.code == "ENGINE_UNKNOWN"

    async def main() -> None:
        async with AsyncClient(server.url, server.token) as client:
            assert await client.models("codex") == found

    asyncio.run(main())


def test_it_needs_a_token_that_may_read(server: Server, tmp_path: Path) -> None:
    made = askback(World(tmp_path), "tokens", "create", "answers", "--scope", "answer", "--json").json
    for token, status in (("nonsense", 401), (made["token"], 403)):
        headers = {"authorization": f"Bearer {token}"}
        answer = httpx.get(f"{server.url}/v1/engines/codex/models", headers=headers, timeout=120)
        assert answer.status_code == status


def test_the_command_lists_them(tmp_path: Path, listing: ListingEngine) -> None:
    world, config = World(tmp_path), str(tmp_path / "askback.toml")
    shown = askback(world, "engines", "models", "codex", "--config", config)
    assert shown.code == 0
    first, second = (line.split() for line in shown.stdout.splitlines())
    assert (first[0], second[0]) == ("big-1", "small-1")
    assert "the default" in shown.stdout
    assert "effort: low, high" in shown.stdout
    document = askback(world, "engines", "models", "codex", "--config", config, "--json").json
    assert [each["id"] for each in document["models"]] == ["big-1", "small-1"]
    listing.answer(says="not today")
    refused = askback(world, "engines", "models", "codex", "--config", config)
    assert (refused.code, refused.stdout) == (1, "")
    assert "no list of models: the engine did not list its models: not today" in refused.stderr
    unknown = askback(world, "engines", "models", "codx", "--config", config)
    assert (unknown.code, "did you mean 'codex'?" in unknown.stderr) == (2, True)
