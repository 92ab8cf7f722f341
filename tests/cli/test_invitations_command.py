"""`askback invitations`: a device is invited from a terminal, the invitation works once, and others are revoked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from askback.cli import exit_codes
from support.data_folder import World
from support.program import DEADLINE_SEC, Ran, askback
from support.server import Server


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("invitations"))


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world) as server:
        assert askback(world, "tokens", "create", "anna", "--scope", "answer").code == 0
        yield server


def test_a_device_is_invited_and_signs_in_once(world: World, server: Server) -> None:
    made = askback(world, "invitations", "create", "anna")
    assert (made.code, made.stdout.count("\n")) == (0, 1)
    url = made.stdout.strip()
    assert url.startswith(f"{server.url}/enter?invitation=")
    assert "✔ signs one device in as anna, once, until " in made.stderr
    assert "works on the server's machine alone; set server.public_url" in made.stderr
    (listed,) = askback(world, "invitations", "--json").json
    assert listed["token"] == "anna"
    assert f"{listed['id']} " in askback(world, "invitations").stdout
    sent = {"invitation": parse_qs(urlsplit(url).query)["invitation"][0]}
    headers = {"accept": "text/html"}
    first, second = (
        httpx.post(f"{server.url}/enter", data=sent, headers=headers, timeout=DEADLINE_SEC) for _ in range(2)
    )
    assert (first.status_code, second.status_code < 400) == (200, False)
    assert askback(world, "invitations", "--json").json == []
    assert "there are no unused invitations" in askback(world, "invitations").stderr
    (entry, *_) = askback(world, "audit", "--action", "invitation.create", "--json").json
    assert entry["object"] == f"{listed['id']} for anna"


def test_an_invitation_is_revoked(world: World, server: Server) -> None:
    made = askback(world, "invitations", "create", "anna", "--expires-in", "7d", "--json").json
    assert set(made) == {"id", "token", "created_at", "expires_at", "url"}
    assert "is revoked" in askback(world, "invitations", "revoke", made["id"]).stdout
    again = askback(world, "invitations", "revoke", made["id"], "--json")
    assert (again.code, again.json["error"]["code"]) == (exit_codes.BAD_INPUT, "INVITATION_NOT_FOUND")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("nobody",), "there is no token 'nobody'; known: anna"),
        (("main",), "the server's own token signs no device in"),
        (("anna", "--expires-in", "31d"), "must be from 1s to 30 days (30d)"),
        (("anna", "--expires-in", "soon"), "write it as 4w, 30d, 12h, 45m or 90s"),
        (("anna", "--token", "wrong"), "the server rejects the token"),
    ],
)
def test_an_invitation_that_cannot_be_made_says_why(
    world: World, server: Server, words: tuple[str, ...], problem: str
) -> None:
    ran: Ran = askback(world, "invitations", "create", *words)
    assert (ran.code, ran.stdout) == (exit_codes.BAD_INPUT, "")
    assert problem in ran.stderr


def test_a_person_who_may_not_administer_invites_nobody(world: World, server: Server) -> None:
    token = askback(world, "tokens", "create", "reader", "--scope", "read").stdout.strip()
    ran = askback(world, "invitations", "create", "anna", "--token", token)
    assert (ran.code, "admin" in ran.stderr) == (exit_codes.BAD_INPUT, True)


def test_without_a_server_there_are_no_invitations(tmp_path: Path) -> None:
    ran = askback(World(tmp_path), "invitations", "create", "anna")
    assert ran.code == exit_codes.NO_SERVER
    assert "start one with: askback serve" in ran.stderr
