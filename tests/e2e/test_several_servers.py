"""Two servers with a data folder each, on one PostgreSQL database: what one has made works at the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from support import postgres
from support.api import PATIENCE_SEC, calling, over, waiting
from support.data_folder import ASK, FINISH, World
from support.postgres import databases
from support.program import askback, until
from support.server import Server

HOST = {"host": "askback.example"}
"""A name that leads to both, as a proxy does."""
ENV = {"ASKBACK_SERVER__PUBLIC_URL": "http://askback.example"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    one: Server
    other: Server
    worlds: tuple[World, World]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("several")
    with databases.chosen(True):
        first, second = World(folder / "one"), World(folder / "other")
        second.database = first.database
        first.skill([ASK], [FINISH], name="asking")
        with Server(first, env=ENV) as one:
            second.data_dir.mkdir(parents=True, mode=0o700)
            # The files of runs and packages, and the locks of programs, are those of one disk.
            for name in ("runs", "packages", "programs"):
                (first.data_dir / name).mkdir(mode=0o700, exist_ok=True)
            for name in ("runs", "packages", "programs", "database-id"):
                (second.data_dir / name).symlink_to(first.data_dir / name)
            with Server(second, env=ENV) as other:
                yield Pair(one=one, other=other, worlds=(first, second))


def made(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code in (201, 202), answer.text
    found: dict[str, Any] = answer.json()
    return found


def status(server: Server, token: str, path: str = "/v1/runs") -> int:
    with calling(server.url, token) as client:
        return client.get(path).status_code


@pytest.mark.contract("M-7")
def test_both_have_the_same_token_which_commands_on_each_machine_find(pair: Pair) -> None:
    assert pair.one.token == pair.other.token
    for world in pair.worlds:
        assert (world.data_dir / "token").read_text().strip() == pair.one.token
        listed = askback(world, "runs", "--json")
        assert listed.code == 0, listed.stderr


@pytest.mark.contract("M-7")
def test_a_token_of_one_is_valid_and_revoked_at_the_other(pair: Pair) -> None:
    with calling(pair.one.url, pair.one.token) as client:
        token = made(client, "/v1/tokens", name="app", scopes=["read"])["token"]
        assert status(pair.other, token) == 200
        again = client.post("/v1/tokens", json={"name": "app", "scopes": ["read"]})
        assert again.status_code == 422
        client.delete("/v1/tokens/app").raise_for_status()
    assert status(pair.one, token) == 401, "at once where it was revoked"
    until(lambda: status(pair.other, token) == 401)
    by_command = askback(pair.worlds[1], "tokens", "create", "cli", "--scope", "read", "--json")
    assert by_command.code == 0, by_command.stderr
    assert status(pair.one, by_command.json["token"]) == 200
    assert askback(pair.worlds[0], "tokens", "revoke", "cli").code == 0
    for server in (pair.one, pair.other):
        until(lambda server=server: status(server, by_command.json["token"]) == 401)  # type: ignore[misc]


def signed_in(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.headers["set-cookie"].partition(";")[0].partition("=")[2])


def browser(server: Server, session: str) -> httpx.Client:
    """The name of the cookie has the port of the server, which is the same on the machines of one site."""
    return calling(server.url, None, **HOST, cookie=f"askback_session_{server.port}={session}")


def entered(server: Server, **form: str) -> httpx.Response:
    return httpx.post(f"{server.url}/enter", data=form, headers=HOST, timeout=PATIENCE_SEC)


@pytest.mark.contract("M-7")
def test_a_browser_that_signed_in_at_one_is_signed_in_and_out_at_the_other(pair: Pair) -> None:
    session = signed_in(entered(pair.one, token=pair.one.token))
    with browser(pair.other, session) as there, browser(pair.one, session) as here:
        assert there.get("/v1/runs").status_code == 200
        assert here.get("/v1/runs").status_code == 200
        there.delete("/v1/sessions", headers={"origin": "http://askback.example"}).raise_for_status()
        assert there.get("/v1/runs").status_code == 401
        until(lambda: here.get("/v1/runs").status_code == 401)


@pytest.mark.contract("M-7")
def test_an_invitation_of_one_is_used_once_at_the_other(pair: Pair) -> None:
    with calling(pair.one.url, pair.one.token) as client:
        made(client, "/v1/tokens", name="anna", scopes=["answer"])
        invitation = made(client, "/v1/invitations", token="anna")
    secret = parse_qs(urlsplit(invitation["url"]).query)["invitation"][0]
    session = signed_in(entered(pair.other, invitation=secret))
    for server in (pair.one, pair.other):
        assert entered(server, invitation=secret).status_code == 401
        with browser(server, session) as phone:
            assert phone.get("/v1/inbox").status_code == 200


@pytest.mark.contract("M-7")
def test_a_link_of_one_shows_its_question_at_the_other_until_it_is_revoked(pair: Pair) -> None:
    with calling(pair.one.url, pair.one.token) as client:
        run_id = waiting(client)
        links = [made(client, f"/v1/runs/{run_id}/interaction/link")["url"] for _ in range(2)]
        paths = [urlsplit(url).path for url in links]
        with calling(pair.other.url, None) as holder:
            shown = [holder.get(path) for path in paths]
            assert [each.json()["interaction_id"] for each in shown] == ["colour", "colour"]
            listed = client.get(f"/v1/runs/{run_id}/interaction/links").json()["items"]
            client.delete(f"/v1/runs/{run_id}/interaction/links/{listed[0]['id']}").raise_for_status()
            until(lambda: sorted(holder.get(path).status_code for path in paths) == [200, 401])
            (valid,) = [path for path in paths if holder.get(path).status_code == 200]
            answered = holder.post(valid, json={"response": "red"})
            assert answered.status_code == 202, answered.text
        over(client, run_id)
        client.delete(f"/v1/runs/{run_id}").raise_for_status()
    names = databases.server.execute("SELECT name FROM askback.collections", _name(pair.worlds[0]))
    assert not [name for (name,) in names if run_id in name], "the links end with their run"


@pytest.mark.contract("M-7")
def test_a_skill_that_is_installed_at_one_is_in_the_list_of_the_other(pair: Pair) -> None:
    assert askback(pair.worlds[0], "skills", "install", "trip-planner").code == 0

    def is_listed(server: Server) -> bool:
        with calling(server.url, server.token) as client:
            return "trip-planner" in [each["id"] for each in client.get("/v1/skills").json()["items"]]

    for server in (pair.one, pair.other):
        until(lambda server=server: is_listed(server))  # type: ignore[misc]


def _name(world: World) -> str:
    return str(world.database).partition("@/")[2].partition("?")[0]


def test_the_keys_are_in_the_database_alone(pair: Pair) -> None:
    for world in pair.worlds:
        records = world.records
        keys = [records.known_secret(name) for name in ("token", "link-key", "push-key")]
        assert None not in keys
        assert not (world.data_dir / "link-key").exists(), "it is in the database alone"
