"""Labels on the command line: set, shown, filtered by, and as the restriction of a token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from askback.client import AsyncClient, Client, NotFound
from support.data_folder import ASK, FINISH, World
from support.program import askback
from support.server import Server


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("labels"))
    world.skill([ASK], [FINISH], name="asking")
    world.skill([{"finish": {"colour": "red"}}], name="quick")
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world) as server:
        yield server


@pytest.mark.contract("N-5")
def test_a_run_of_this_program_has_the_labels_of_the_command(world: World) -> None:
    skill = str(world.folder / "skills/quick")
    words = ("run", skill, "--engine", "scripted", "--label", "customer=a=b", "--label", "plan=trial", "--json")
    ran = askback(world, *words)
    assert ran.code == 0, ran.stderr
    run_id = json.loads(ran.stdout)["id"]
    shown = askback(world, "show", run_id)
    assert "  labels   customer=a=b, plan=trial\n" in shown.stdout
    listed = askback(world, "runs", "--label", "customer=a=b", "--json")
    assert [run["labels"] for run in json.loads(listed.stdout)] == [{"customer": "a=b", "plan": "trial"}]
    assert askback(world, "runs", "--label", "customer=other").stderr == "no run matches\n"
    again = askback(world, "run", skill, "--engine", "scripted", "--from", run_id, "--json")
    assert again.code == 0, again.stderr
    kept = json.loads(askback(world, "show", json.loads(again.stdout)["id"], "--json").stdout)
    assert kept["labels"] == {"customer": "a=b", "plan": "trial"}


def test_labels_of_programs_are_not_shown_to_people(world: World, server: Server) -> None:
    labels = {"mcp_call": "1a2b", "acp-session": "3c4d"}
    with server.client() as client:
        marked = client.create_run("asking", engine="scripted", mode="interactive", labels={"team": "red", **labels})
        plain = client.create_run("asking", engine="scripted", mode="interactive", labels=labels)
        for run in (marked, plain):
            client.wait(run.id)
        listed = askback(world, "inbox", "--label", "mcp_call=1a2b")
        assert f"run {marked.id}: asking on scripted · team=red\n" in listed.stdout
        assert f"run {plain.id}: asking on scripted\n" in listed.stdout
        assert "  labels   team=red\n" in askback(world, "show", marked.id).stdout
        assert "labels" not in askback(world, "show", plain.id).stdout
        assert askback(world, "show", plain.id, "--json").json["labels"] == labels
        for run in (marked, plain):
            client.cancel(run.id)


@pytest.mark.contract("N-5")
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("customer", "write a name and a value, such as customer=4711"),
        ("a b=1", "'a b' is not a name"),
        ("a=", "a value has 1 to 200 characters"),
        ("a=\x1b[2J", "a value is one line without control characters"),
    ],
)
@pytest.mark.parametrize(
    "words", [("runs",), ("inbox",), ("run", "quick"), ("tokens", "create", "x", "--scope", "read")]
)
def test_a_bad_label_is_refused(world: World, words: tuple[str, ...], word: str, said: str) -> None:
    told = askback(world, *words, "--label", word)
    assert told.code == 2
    assert said in told.stderr
    assert "\x1b" not in told.stderr


@pytest.mark.contract("N-5")
def test_a_restricted_token_sees_its_questions_in_the_terminal(world: World, server: Server) -> None:
    with server.client() as client:
        mine = client.create_run("asking", engine="scripted", mode="interactive", labels={"customer": "4711"})
        other = client.create_run("asking", engine="scripted", mode="interactive", labels={"customer": "4712"})
        for run in (mine, other):
            client.wait(run.id)
        made = askback(
            world, "tokens", "create", "anna", "--scope", "read", "--scope", "answer", "--label", "customer=4711"
        )
        assert "only for runs with customer=4711" in made.stderr
        assert "only customer=4711" in askback(world, "tokens").stdout
        at = ("--url", server.url, "--token", made.stdout.strip())
        inbox = askback(world, "inbox", *at).stdout
        assert mine.id in inbox
        assert "customer=4711" in inbox
        assert other.id not in inbox
        assert askback(world, "show", other.id, *at).code != 0
        assert askback(world, "inbox", "--label", "plan=x", *at).stderr == "no question with these labels is pending\n"
        assert [each.run_id for each in client.inbox(labels={"customer": "4712"})] == [other.id]
        assert [run.id for run in client.list_runs(labels={"customer": "4712"})] == [other.id]
        assert client.statistics(labels={"customer": "4712"}).unfinished.waiting_user == 1
        replied = askback(world, "reply", mine.id, "red", *at)
        assert replied.code == 0, replied.stderr
        client.wait(mine.id)
        assert [each.labels for each in client.closed_questions(labels={"customer": "4711"})] == [{"customer": "4711"}]
        with Client(server.url, made.stdout.strip()) as anna, pytest.raises(NotFound):
            anna.get_run(other.id)


@pytest.mark.contract("N-5")
def test_a_token_cannot_be_an_administrator_with_labels(world: World) -> None:
    told = askback(world, "tokens", "create", "half", "--scope", "admin", "--label", "customer=1")
    assert told.code == 2
    assert "'admin' cannot be restricted to labels" in told.stderr


@pytest.mark.contract("N-5")
def test_the_client_for_asyncio_has_the_same_filters(server: Server) -> None:
    async def main() -> None:
        async with AsyncClient(server.url, server.token) as client:
            labels = {"customer": "async", "plan": "x"}
            run = await client.create_run("asking", engine="scripted", mode="interactive", labels=labels)
            assert (await client.wait(run.id)).labels == labels
            assert [each.id async for each in client.list_runs(labels=labels)] == [run.id]
            assert [each.run_id async for each in client.inbox(labels={"plan": "x"})] == [run.id]
            assert [each async for each in client.closed_questions(labels=labels)] == []
            assert (await client.statistics(labels=labels)).unfinished.waiting_user == 1
            await client.cancel(run.id)

    asyncio.run(main())
