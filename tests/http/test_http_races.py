"""Races over HTTP: of many who answer, cancel or are too late, exactly one wins and the others are told so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from support.api import calling, over, reply, start, waiting
from support.data_folder import World
from support.program import until
from support.server import Server

Call = Callable[[httpx.Client], httpx.Response]


def at_once(server: Server, calls: Sequence[Call]) -> list[httpx.Response]:
    """Each call on a connection of its own that is open already, all let go at the same moment."""
    ready = threading.Barrier(len(calls))

    def make(call: Call) -> httpx.Response:
        with calling(server.url, server.token) as client:
            client.get("/healthz")
            ready.wait()
            return call(client)

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(make, calls))


def questions(client: httpx.Client, run_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
    return items


def replying(run_id: str, text: str) -> Call:
    return lambda caller: reply(caller, run_id, text)


def canceling(run_id: str) -> Call:
    return lambda caller: caller.post(f"/v1/runs/{run_id}/cancel")


@pytest.mark.contract("W-13", "B-4")
def test_of_twenty_replies_at_once_one_wins(server: Server, client: httpx.Client, furnished: World) -> None:
    for _ in range(3):
        run_id = waiting(client)
        texts = [f"<colour {number}>" for number in range(20)]
        answers = at_once(server, [replying(run_id, text) for text in texts])
        assert sorted(answer.status_code for answer in answers) == [202] + [409] * 19
        assert {answer.json().get("code") for answer in answers} == {None, "INTERACTION_NOT_PENDING"}
        (won,) = [text for text, answer in zip(texts, answers, strict=True) if answer.status_code == 202]
        over(client, run_id)
        (question,) = questions(client, run_id)
        assert (question["response"], question["outcome"]) == (won, "answered")
        told = "".join(furnished.prompts(run_id))
        assert [text for text in texts if text in told] == [won]


@pytest.mark.contract("W-13")
def test_of_a_reply_and_a_cancel_one_wins(server: Server, client: httpx.Client) -> None:
    for _ in range(8):
        run_id = waiting(client)
        replied, canceled = at_once(server, [replying(run_id, "red"), canceling(run_id)])
        run, (question,) = over(client, run_id), questions(client, run_id)
        if replied.status_code == 202:
            assert question["outcome"] == "answered"
            assert (canceled.status_code == 202) == (run["state"] == "canceled") or run["state"] == "succeeded"
        else:
            assert (replied.status_code, canceled.status_code) == (409, 202)
            assert (question["outcome"], question["response"], run["state"]) == ("canceled", None, "canceled")


@pytest.mark.contract("W-13", "A-4")
def test_of_a_reply_and_a_deadline_one_wins(server: Server, client: httpx.Client, furnished: World) -> None:
    """The deadline is tuned to where the reply comes, so that both happen."""
    outcomes: list[str] = []
    seconds = 0.4
    for _ in range(30):
        options = {"interactive_require_user_reply": False, "session_timeout_sec": seconds}
        run_id = waiting_or_past(client, options)
        mine = {"name": "mine"}
        answer = reply(client, run_id, mine)
        run, (question,) = over(client, run_id), questions(client, run_id)
        assert run["state"] == "succeeded"
        expected = ("answered", mine, "user") if answer.status_code == 202 else ("auto_decided", None, "auto_decide")
        assert (question["outcome"], question["response"], question["answered_by"]) == expected
        assert answer.status_code in (202, 409)
        assert len(furnished.prompts(run_id)) == 2
        outcomes.append(question["outcome"])
        if len(set(outcomes)) == 2 and len(outcomes) >= 8:
            return
        seconds *= 0.5 if question["outcome"] == "answered" else 1.5
    pytest.fail(f"only one of both ever won: {outcomes}")


def waiting_or_past(client: httpx.Client, options: dict[str, Any]) -> str:
    """A run that waits, or whose wait is over already."""
    run_id = start(client, "form", options=options)
    until(lambda: questions(client, run_id))
    return run_id


def test_many_cancels_at_once_are_all_told_the_truth(server: Server, client: httpx.Client) -> None:
    run_id = waiting(client)
    answers = at_once(server, [canceling(run_id)] * 10)
    assert {answer.status_code for answer in answers} <= {202, 409}
    assert [answer.status_code for answer in answers].count(202) >= 1
    assert over(client, run_id)["state"] == "canceled"
    closed = [
        each for each in client.get(f"/v1/runs/{run_id}/events").json()["items"] if each["type"] == "interaction.closed"
    ]
    assert len(closed) == 1
