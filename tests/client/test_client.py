"""The client against a real server: every call, in both clients, and what it tells when things are refused."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.client import (
    AsyncClient,
    CallFailed,
    Client,
    ClosedQuestion,
    Conflict,
    Interaction,
    NotFound,
    PendingQuestion,
    Refused,
    RunState,
    ServerUnreachable,
    TokenUnusable,
    Unauthorized,
    WaitTimedOut,
)
from askback.wire.base import plain
from support.data_folder import ASK, DEADLINE_SEC, FINISH, World
from support.server import Server

WRITE = {"write": {"path": "artifacts/deep/a b.txt", "text": "héllo\n"}}
FILE = {"type": "object", "properties": {"plan": {"type": "string", "x-input-source": "file"}}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("client"))
    world.skill([ASK], [WRITE, FINISH], name="asking")
    world.skill([{"finish": {"colour": "red"}}], name="quick")
    world.skill([{"finish": {"colour": "red"}}], name="reading", schemas={"input": FILE})
    world.skill([{"misbehave": "auth"}], name="failing")
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


def start(client: Client, skill: str = "asking", **rest: Any) -> str:
    return client.create_run(skill, **{"engine": "scripted", "mode": "interactive", **rest}).id


def refused(call: Callable[[], Any], kind: type[Refused], code: str) -> Refused:
    with pytest.raises(kind) as raised:
        call()
    assert type(raised.value) is kind
    assert raised.value.code == code
    return raised.value


# The way of a run.


def test_a_run_continues_another(client: Client) -> None:
    source = start(client)
    client.reply(source, client.wait(source).pending_interaction.interaction_id, "red")  # type: ignore[union-attr]
    client.wait(source)
    run = client.create_run("quick", engine="scripted", from_run={"run_id": source, "files": "artifacts"})
    assert run.from_run is not None
    assert run.from_run.run_id == source
    client.wait(run.id)
    assert [each.path for each in client.artifacts(run.id)] == ["deep/a b.txt"]


def test_a_run_is_carried_from_its_creation_to_its_result(client: Client, tmp_path: Path) -> None:
    run = client.wait(start(client))
    assert (run.state, run.skill, run.engine, run.mode) == (RunState.WAITING_USER, "asking", "scripted", "interactive")
    question = client.interaction(run.id)
    assert question == run.pending_interaction
    assert (question.prompt, question.options) == ("Which colour?", ("red", "blue"))

    client.reply(run.id, question.interaction_id, "blue")
    run = client.wait(run.id)
    result = client.result(run.id)
    assert (run.state, result.status, result.data) == (RunState.SUCCEEDED, RunState.SUCCEEDED, {"colour": "blue"})
    assert [(each.path, each.size) for each in result.artifacts] == [("deep/a b.txt", 7)]
    assert client.artifacts(run.id) == list(result.artifacts)
    assert client.download(run.id, "deep/a b.txt", tmp_path / "a").read_text() == "héllo\n"
    with zipfile.ZipFile(client.bundle(run.id, tmp_path / "all.zip")) as bundle:
        assert bundle.namelist() == ["deep/a b.txt"]
    (answered,) = client.interactions(run.id)
    assert isinstance(answered, Interaction)
    assert (answered.response, answered.answered_by, answered.outcome) == ("blue", "user", "answered")


def test_a_run_is_returned_again_only_if_it_has_changed(client: Client) -> None:
    run = client.wait(start(client))
    known = client.changed_run(run.id)
    assert known is not None
    assert (known[0].id, known[0].state) == (run.id, RunState.WAITING_USER)
    assert client.changed_run(run.id, known[1]) is None
    client.reply(run.id, "colour", "blue")
    changed = client.changed_run(run.id, known[1], wait_sec=60)
    assert changed is not None
    assert changed[1] != known[1]
    assert changed[0].pending_interaction is None


def test_the_events_are_the_same_live_and_as_a_list(client: Client) -> None:
    run_id = start(client, "quick")
    live = list(client.follow(run_id))
    assert [event.seq for event in live] == list(range(1, len(live) + 1))
    assert (live[0].type, live[-1].data.get("to")) == ("run.created", "succeeded")
    assert list(client.events(run_id)) == live
    assert list(client.events(run_id, after=2)) == live[2:]
    assert list(client.follow(run_id, after=len(live))) == []


def test_asyncio_programs_have_the_same_calls(server: Server, tmp_path: Path) -> None:
    async def main() -> None:
        async with server.async_client() as client, asyncio.timeout(DEADLINE_SEC):
            run = await client.create_run("asking", engine="scripted", mode="interactive")
            run = await client.wait(run.id)
            assert run.pending_interaction is not None
            assert (await client.interaction(run.id)) == run.pending_interaction
            assert run.id in [each.run_id async for each in client.inbox()]
            await client.reply(run.id, run.pending_interaction.interaction_id, "red")
            live = [event async for event in client.follow(run.id)]
            assert live == [event async for event in client.events(run.id)]
            assert (await client.result(run.id)).data == {"colour": "red"}
            saved = await client.download(run.id, "deep/a b.txt", tmp_path / "a")
            assert saved.read_text() == "héllo\n"
            assert run.id in [each.id async for each in client.list_runs(page_size=1)]
            assert (await client.health()).status == "ok"

    asyncio.run(main())


def test_waiting_for_a_run_can_be_given_up(client: Client, server: Server, world: World, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    world.skill([{"wait_for": str(gate)}, {"finish": {"colour": "red"}}], name="slow")
    run_id = start(client, "slow")
    for timeout_sec in (0, 0.3):
        with pytest.raises(WaitTimedOut, match=f"run {run_id} is still running after {timeout_sec} s") as raised:
            client.wait(run_id, timeout_sec=timeout_sec)
        assert isinstance(raised.value, TimeoutError)

    async def main() -> None:
        async with server.async_client() as client:
            for timeout_sec in (0, 0.3):
                with pytest.raises(WaitTimedOut):
                    await client.wait(run_id, timeout_sec=timeout_sec)
            gate.touch()
            assert (await client.wait(run_id, timeout_sec=DEADLINE_SEC)).state is RunState.SUCCEEDED

    asyncio.run(main())
    assert client.wait(run_id, timeout_sec=0).state is RunState.SUCCEEDED
    assert client.wait(start(client, "quick"), timeout_sec=DEADLINE_SEC).state is RunState.SUCCEEDED


def test_both_clients_have_the_same_methods() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert names(Client) == names(AsyncClient)


# Lists.


def test_a_list_goes_on_over_its_pages(client: Client) -> None:
    started = [start(client, "quick") for _ in range(5)]
    listed = [run.id for run in client.list_runs(skill="quick", page_size=2)]
    assert listed[:5] == started[::-1]
    assert len(set(listed)) == len(listed)


def test_runs_are_chosen_by_state_skill_and_engine(client: Client) -> None:
    run = client.wait(start(client, "failing"))
    assert run.error is not None
    assert run.error.code == "ENGINE_AUTH_REQUIRED"
    chosen = list(client.list_runs(state="failed", skill="failing", engine="scripted"))
    assert run.id in [each.id for each in chosen]
    assert {(each.state, each.skill) for each in chosen} == {(RunState.FAILED, "failing")}
    assert list(client.list_runs(engine="codex")) == []


def test_the_inbox_names_the_run_of_each_question(client: Client) -> None:
    run = client.wait(start(client))
    (asked,) = [each for each in client.inbox() if each.run_id == run.id]
    assert isinstance(asked, PendingQuestion)
    assert (asked.skill, asked.engine, asked.prompt) == ("asking", "scripted", "Which colour?")
    filtered = client.inbox(skill="asking", engine="scripted", words="which COLOUR", order="deadline")
    assert run.id in [each.run_id for each in filtered]
    assert list(client.inbox(words="no-such-word")) == []
    assert client.cancel(run.id).state is RunState.CANCELED
    assert run.id not in [each.run_id for each in client.inbox()]
    closed = next(each for each in client.closed_questions() if each.run_id == run.id)
    assert isinstance(closed, ClosedQuestion)
    assert (closed.outcome, closed.state, closed.skill) == ("canceled", RunState.CANCELED, "asking")


# Skills, uploads, engines.


def test_a_skill_is_installed_from_its_folder(client: Client, world: World, tmp_path: Path) -> None:
    other = World(tmp_path)
    folder = Path(other.skill([{"finish": {"colour": "red"}}], name="brought"))
    installed = client.install_skill(folder)
    assert (installed.id, installed.installed) == ("brought", True)
    assert "brought" in [skill.id for skill in client.skills()]
    assert client.skill("brought").schemas is not None
    assert client.wait(start(client, "brought")).state is RunState.SUCCEEDED
    assert next(each.path for each in client.skill_files("brought")) == "SKILL.md"
    saved = client.download_skill_file("brought", "SKILL.md", tmp_path / "copy")
    assert saved.read_bytes() == (folder / "SKILL.md").read_bytes()
    for path in ("none", "../brought/SKILL.md", "files//SKILL.md"):
        target = tmp_path / "none"
        refused(partial(client.download_skill_file, "brought", path, target), NotFound, "SKILL_FILE_NOT_FOUND")
    refused(partial(client.download, "1m7gekfsksrgk77s", "files/../a", target), NotFound, "ARTIFACT_NOT_FOUND")


def test_a_skill_is_installed_from_a_checkout_of_any_age(client: Client, tmp_path: Path) -> None:
    folder = Path(World(tmp_path).skill([{"finish": {"colour": "red"}}], name="checkout"))
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("")
    (folder / ".git" / "hooks").symlink_to(tmp_path)
    os.utime(folder / "SKILL.md", (0, 0))
    assert client.install_skill(folder).id == "checkout"


def test_a_link_in_a_skill_is_not_followed(client: Client, tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("mine")
    folder = Path(World(tmp_path).skill([], name="linked"))
    (folder / "key").symlink_to(secret)
    with pytest.raises(ValueError, match="is a symbolic link"):
        client.install_skill(folder)


def test_a_link_lets_its_holder_answer_without_a_token(client: Client, server: Server) -> None:
    run_id = client.wait(start(client)).id
    link = client.link(run_id, expires_in_sec=60)
    asked = httpx.get(link.url, timeout=DEADLINE_SEC).json()
    httpx.post(link.url, json={"response": "blue"}, timeout=DEADLINE_SEC).raise_for_status()
    assert asked["interaction_id"] == "colour"
    assert client.wait(run_id).state is RunState.SUCCEEDED
    assert link.expires_at > client.get_run(run_id).created_at


def test_links_are_listed_and_revoked(client: Client, server: Server) -> None:
    run_id = client.wait(start(client)).id
    first, second, third = (client.link(run_id) for _ in range(3))
    client.revoke_link(run_id, second.id)
    assert [each.id for each in client.links(run_id)] == [first.id, third.id]
    refused(lambda: client.revoke_link(run_id, second.id), NotFound, "LINK_NOT_FOUND")

    async def main() -> None:
        async with AsyncClient(server.url, server.token) as other:
            await other.revoke_link(run_id, first.id)
            assert [each.id for each in await other.links(run_id)] == [third.id]
            await other.revoke_links(run_id)

    asyncio.run(main())
    assert client.links(run_id) == []
    client.revoke_links(run_id)


def test_a_skill_is_deleted_and_runs_tell_no_webhook_that_there_is_none(
    client: Client, world: World, tmp_path: Path
) -> None:
    client.install_skill(Path(World(tmp_path).skill([{"finish": {"colour": "red"}}], name="short-lived")))
    run_id = client.wait(start(client, "short-lived")).id
    client.delete_skill("short-lived")
    with pytest.raises(NotFound):
        client.delete_skill("short-lived")
    assert (list(client.deliveries()), list(client.deliveries(run_id))) == ([], [])


def test_an_upload_is_a_run_s_input(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    path.write_text("the plan")
    upload = client.upload(path)
    assert (upload.name, upload.size) == ("plan.txt", 8)
    run = client.wait(start(client, "reading", input={"plan": upload.reference}))
    assert run.state is RunState.SUCCEEDED, run.error


def test_engines_and_health_can_be_asked_for(client: Client, server: Server) -> None:
    engines = {engine.name: engine for engine in client.engines()}
    assert engines["scripted"].found
    assert engines["codex"].advice
    with Client(server.url) as stranger:
        health = stranger.health()
    assert (health.status, health.slots.total > 0) == ("ok", True)


def test_statistics_count_what_ended(client: Client) -> None:
    before = client.statistics()
    client.wait(start(client, "quick"))
    stats = client.statistics(days=7)
    assert (len(before.days), len(stats.days)) == (30, 7)
    assert (stats.first, stats.last) == (stats.days[0].date, stats.days[-1].date)
    runs = {each.name: each.succeeded for each in stats.skills}
    # Runs of other tests on the same server may end in between.
    assert runs["quick"] > {each.name: each.succeeded for each in before.skills}.get("quick", 0)
    with pytest.raises(Refused):
        client.statistics(days=0)


# Refusals.


def test_a_second_try_with_the_same_key_is_the_same_run(client: Client) -> None:
    first = start(client, "quick", idempotency_key="key-1")
    assert start(client, "quick", idempotency_key="key-1") == first
    told = refused(lambda: start(client, idempotency_key="key-1"), Refused, "IDEMPOTENCY_KEY_REUSED")
    assert told.status == 422


def test_a_refusal_says_what_is_wrong(client: Client) -> None:
    told = refused(lambda: start(client, input={"plan": 1}, options={"repair_attempts": -1}), Refused, "INPUT_INVALID")
    assert told.status == 422
    assert any("repair_attempts" in problem for problem in told.problems)
    refused(lambda: client.get_run("no such?run"), NotFound, "RUN_NOT_FOUND")


def test_what_is_too_early_or_too_late_is_a_conflict(client: Client) -> None:
    run = client.wait(start(client))
    refused(lambda: client.result(run.id), Conflict, "RUN_NOT_FINAL")
    refused(lambda: client.reply(run.id, "another", "red"), Conflict, "INTERACTION_NOT_PENDING")
    client.cancel(run.id)
    refused(lambda: client.cancel(run.id), Conflict, "RUN_FINAL")
    refused(lambda: client.interaction(run.id), NotFound, "INTERACTION_NOT_FOUND")


@pytest.mark.contract("J-8")
def test_a_run_is_deleted_once_it_is_over(client: Client, server: Server) -> None:
    run = client.wait(start(client))
    refused(lambda: client.delete_run(run.id), Conflict, "RUN_NOT_FINAL")
    client.cancel(run.id)
    client.delete_run(run.id)
    refused(lambda: client.get_run(run.id), NotFound, "RUN_NOT_FOUND")
    other = client.wait(start(client, "quick"))

    async def main() -> None:
        async with AsyncClient(server.url, server.token) as twin:
            await twin.delete_run(other.id)

    asyncio.run(main())
    refused(lambda: client.delete_run(other.id), NotFound, "RUN_NOT_FOUND")


def test_a_wrong_token_and_none_are_unauthorized(server: Server) -> None:
    for token in (None, "wrong"):
        with Client(server.url, token) as stranger:
            refused(lambda: stranger.get_run("x"), Unauthorized, "UNAUTHORIZED")


def test_a_token_is_taken_with_the_end_of_its_line(server: Server) -> None:
    with Client(server.url, f"{server.token}\n") as client:
        assert list(client.list_runs(engine="codex")) == []


@pytest.mark.parametrize("token", ["geheim\nnis", "geheimnüs", "geheim\x00nis"])
def test_a_token_that_cannot_be_sent_is_not_told_either(token: str) -> None:
    with pytest.raises(TokenUnusable) as raised:
        Client("http://127.0.0.1:1", token)
    assert "geheim" not in str(raised.value)


def test_a_password_in_the_address_is_not_told() -> None:
    with pytest.raises(ServerUnreachable) as raised, Client("http://me:geheim@127.0.0.1:1") as client:
        client.health()
    assert "geheim" not in str(raised.value)
    assert "@127.0.0.1:1" in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://127.0.0.1:99999", "http://[::1", "ftp://127.0.0.1", "nonsense"]
)
def test_a_server_that_is_not_there_is_told_so(url: str) -> None:
    with pytest.raises(ServerUnreachable) as raised, Client(url) as client:
        client.health()
    assert raised.value.url == url

    async def main() -> None:
        async with AsyncClient(url) as client:
            await client.health()

    with pytest.raises(ServerUnreachable):
        asyncio.run(main())


def test_the_reason_why_a_server_cannot_be_reached_is_told_in_words(server: Server) -> None:
    reasons = {
        "http://127.0.0.1:1": "nothing listens there, the connection was refused",
        server.url.replace("http:", "https:"): "it does not speak TLS",
        "http://no-such-host.invalid": "its host name is unknown",
        "nonsense": "the address must begin with http:// or https://",
    }
    for url, reason in reasons.items():
        with pytest.raises(ServerUnreachable) as raised, Client(url) as client:
            client.health()
        assert reason in raised.value.reason

        async def ask(url: str = url) -> None:
            async with AsyncClient(url) as client:
                await client.health()

        with pytest.raises(ServerUnreachable) as raised:
            asyncio.run(ask())
        assert reason in raised.value.reason


def test_a_host_that_accepts_and_never_answers_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerUnreachable) as raised, Client(url, timeout_sec=0.2) as client:
            client.health()
    assert raised.value.reason == "it did not respond in time"


def test_following_a_server_that_never_was_there_ends_at_once() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(ServerUnreachable):
        next(client.follow("x"))


def test_what_json_cannot_hold_is_the_callers_mistake(client: Client) -> None:
    with pytest.raises(ValueError):
        start(client, input={"n": float("nan")})


def test_every_error_is_a_call_that_failed() -> None:
    assert issubclass(Refused, CallFailed)
    assert issubclass(ServerUnreachable, CallFailed)


def test_a_download_that_fails_leaves_no_file(client: Client, tmp_path: Path) -> None:
    run = client.wait(start(client, "quick"))
    refused(lambda: client.download(run.id, "none", tmp_path / "a"), NotFound, "ARTIFACT_NOT_FOUND")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../../{other}/artifacts/deep/a b.txt", "../../../../metrics", ".", "a/", "/a", "a//b", ""]
)
def test_an_artifact_is_in_its_run(client: Client, name: str, tmp_path: Path) -> None:
    run, other = (client.create_run("quick", engine="scripted") for _ in range(2))
    path = name.format(other=other.id)
    refused(lambda: client.download(run.id, path, tmp_path / "a"), NotFound, "ARTIFACT_NOT_FOUND")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", [".", "..", "", "../skills", "1m7gekfsksrgk77s/result"])
def test_a_name_is_one_segment_and_nothing_is_sent_for_another(name: str) -> None:
    with Client("http://127.0.0.1:1", "token") as nowhere:
        refused(lambda: nowhere.get_run(name), NotFound, "RUN_NOT_FOUND")
        refused(lambda: nowhere.reply(name, "colour", "red"), NotFound, "RUN_NOT_FOUND")
        refused(lambda: nowhere.revoke_link("1m7gekfsksrgk77s", name), NotFound, "LINK_NOT_FOUND")
        refused(lambda: nowhere.skill(name), NotFound, "SKILL_NOT_FOUND")
        refused(lambda: nowhere.models(name), NotFound, "ENGINE_NOT_FOUND")


def test_the_values_are_what_the_server_sent(client: Client, server: Server) -> None:
    run = client.wait(start(client, "quick"))
    sent = httpx.get(f"{server.url}/v1/runs/{run.id}", headers={"Authorization": f"Bearer {server.token}"})
    assert json.loads(json.dumps(plain(run))) == json.loads(sent.content)
