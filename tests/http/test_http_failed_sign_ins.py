"""Somebody guesses tokens, sessions, codes and links: slowed down by address, logged once, and nobody else is locked out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from askback.access.failed_sign_ins import FailedSignIns
from support.api import calling, refused
from support.data_folder import World
from support.program import Started, until
from support.server import Server

FREE = 20
GUESSES: dict[str, Callable[[httpx.Client, Server, int], httpx.Response]] = {
    "bearer": lambda client, _, n: client.get("/v1/runs", headers={"authorization": f"Bearer guess-{n}"}),
    "cookie": lambda client, server, n: client.get(
        "/v1/runs", headers={"cookie": f"askback_session_{server.port}=guess-{n}"}
    ),
    "token": lambda client, _, n: client.get("/enter", params={"token": f"guess-{n}"}),
    "form": lambda client, _, n: client.post("/enter", data={"token": f"guess-{n}"}),
    "code": lambda client, _, n: client.get("/enter", params={"code": f"guess-{n}"}),
    "link": lambda client, _, n: client.get(f"/v1/answers/guess.{n}"),
}


@pytest.mark.contract("Q-2")
@pytest.mark.parametrize("kind", GUESSES)
def test_a_guesser_is_refused_for_a_while_and_a_valid_token_is_not(own_world: World, kind: str) -> None:
    with Server(own_world, env={"ASKBACK_SERVER__FAILED_SIGN_INS": str(FREE)}) as server:
        session = server.session()
        with calling(server.url, None) as guesser:
            answers = [GUESSES[kind](guesser, server, n) for n in range(3 * FREE)]
            limited = refused(answers[-1], 429, "TOO_MANY_FAILED_SIGN_INS")
            assert "guess" not in limited["detail"]
            assert int(answers[-1].headers["retry-after"]) >= 1
            assert {each.status_code for each in answers[:FREE]} == {401}
            # Who shows nothing does not guess.
            refused(guesser.get("/v1/runs"), 401, "UNAUTHORIZED")
            page = guesser.get("/healthz")
            assert page.status_code == 200
            forged = {
                "authorization": "Bearer guess",
                "x-forwarded-for": "198.51.100.7",
                "forwarded": "for=198.51.100.7",
            }
            refused(guesser.get("/v1/runs", headers=forged), 429, "TOO_MANY_FAILED_SIGN_INS")
        with calling(server.url, server.token) as known:
            assert known.get("/v1/runs").status_code == 200
        with calling(server.url, None, **session) as known:
            assert known.get("/v1/runs").status_code == 200
        server.session()
        server.stop()
        lines = [line for line in server.stderr.splitlines() if "sign-in" in line]
        assert 1 <= len(lines) <= 2, lines
        assert "127.0.0.1" in lines[0]
        assert "guess" not in server.stderr


def test_a_person_who_mistypes_often_still_sees_the_form(own_world: World) -> None:
    with Server(own_world, env={"ASKBACK_SERVER__FAILED_SIGN_INS": "1"}) as server:
        for _ in range(5):
            answer = httpx.post(f"{server.url}/enter", data={"token": "wrong"}, headers={"accept": "text/html"})
        assert answer.status_code == 429
        assert 'action="/enter"' in answer.text


def test_the_bucket_leaks_and_the_wait_grows_to_a_bound() -> None:
    now = 0.0
    failures = FailedSignIns(FREE, lambda: now)
    assert [failures.count("192.0.2.1", "bearer") for _ in range(FREE)] == [None] * FREE
    waits = [failures.count("192.0.2.1", "bearer") or 0 for _ in range(1000)]
    assert waits[0] >= 1
    assert waits == sorted(waits)
    assert waits[-1] <= 601
    assert failures.count("192.0.2.2", "bearer") is None
    now += waits[-1] + 60
    assert failures.count("192.0.2.1", "bearer") is None


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("not an address", "another", False),
    ],
)
def test_addresses_of_one_network_count_together(one: str, other: str, together: bool) -> None:
    failures = FailedSignIns(1, lambda: 0.0)
    assert failures.count(one, "bearer") is None
    assert (failures.count(other, "bearer") is not None) == together


def test_any_number_of_addresses_takes_bounded_memory_and_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailedSignIns(FREE, lambda: 0.0)
    for number in range(100_000):
        failures.count(f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::1", "bearer")
    assert len(failures._buckets) <= 1024
    assert len(caplog.records) == 1


def test_a_failure_is_logged_without_what_was_shown(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Started(world, "serve", "--port", "0") as server:
        until(lambda: "page: " in server.stderr)
        (url,) = re.findall(r"serves (http://\S+)", server.stderr)
        httpx.get(f"{url}/v1/runs", headers={"authorization": "Bearer canary-guess"})
        until(lambda: "sign-in by bearer from 127.0.0.1 failed" in server.stderr)
        assert "canary-guess" not in server.stderr
