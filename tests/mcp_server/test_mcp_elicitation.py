"""A question at the user of the client: only an accepted one is answered, and a secret never passes a form."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from support.mcp_client import Door, called, key, refusal, run, started
from support.server import Server


class User:
    """Reacts to every elicitation in the same way, and remembers them."""

    def __init__(self, action: str, content: dict[str, Any] | None = None) -> None:
        self.action, self.content = action, content
        self.seen: list[Any] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.seen.append(params)
        return types.ElicitResult(action=self.action, content=self.content)


@pytest.mark.contract("F-2")
def test_an_accepted_form_is_the_reply(door: Door) -> None:
    async def test() -> None:
        user = User("accept", {"answer": "blue"})
        async with door.opened(user) as client:
            done = await started(client, "asking")
        assert (done["state"], done["data"]) == ("succeeded", {"colour": "blue"})
        (shown,) = user.seen
        assert shown.message == "asking asks:\nWhich colour?"
        assert shown.requested_schema["properties"]["answer"]["enum"] == ["red", "blue"]

    run(test)


PONDERED = "pondering (paint) asks:\nWhich colour?\n\nroom: kitchen; walls: 4\n\n- Red: as a rose"


def test_the_user_and_the_model_read_what_a_question_is_about(one_door: Door) -> None:
    async def test() -> None:
        user = User("decline")
        async with one_door.opened(user) as client:
            asked = await started(client, "pondering", input={"what": "paint"})
            await started(client, "picking")
            await started(client, "secretive")
            await started(client, "wordy")
        question = asked["question"]
        assert question["context"] == {"room": "kitchen", "walls": 4}
        assert question["options"][0]["description"] == "as a rose"
        pondered, picked, secret, wordy = user.seen
        assert pondered.message == PONDERED
        assert "description" not in pondered.requested_schema["properties"]["answer"]
        assert picked.requested_schema["properties"]["colour"]["description"] == "Of the walls.\n- Red: as a rose"
        assert secret.message == "secretive asks:\nWhich colour?"
        assert len(wordy.message) < 3000
        assert wordy.message.endswith("x…")
        assert "\x1b" not in wordy.message

    run(test)


@pytest.mark.contract("F-2")
@pytest.mark.parametrize(("action", "content"), [("decline", None), ("cancel", None), ("accept", {})])
def test_anything_else_leaves_the_run_waiting(door: Door, action: str, content: dict[str, Any] | None) -> None:
    async def test() -> None:
        user = User(action, content)
        async with door.opened(user) as client:
            asked = await started(client, "asking")
            assert asked["state"] == "waiting_user"
            assert asked["question"]["interaction_id"] == "colour"
            assert len(user.seen) == 1
            again = await called(client, "get_run", run_id=asked["run_id"])
            assert again["state"] == "waiting_user"
            assert len(user.seen) == 1
            about = {"run_id": asked["run_id"], "interaction_id": "colour"}
            assert (await called(client, "answer_question", **about, answer="red"))["data"] == {"colour": "red"}

    run(test)


@pytest.mark.contract("F-2")
def test_an_invalid_form_is_refused_and_leaves_the_run_waiting(one_door: Door) -> None:
    async def test() -> None:
        user = User("accept", {"name": "Anna", "count": 0})
        async with one_door.opened(user) as client:
            call = {"skill": "form", "engine": "scripted", "idempotency_key": key()}
            asked = await refused_form(client, call, "response.count")
            about = {"run_id": asked["run_id"], "interaction_id": "colour"}
            await called(client, "answer_question", **about, answer={"name": "Anna", "count": 1})
            assert len(user.seen) == 1

    run(test)


async def refused_form(client: Client, call: dict[str, Any], problem: str) -> dict[str, Any]:
    """The envelope of a run whose form was accepted and refused: what a model needs to ask again."""
    result = await client.call_tool("run_skill", call)
    assert result.is_error
    asked: dict[str, Any] = result.structured_content
    assert (asked["state"], asked["question"]["interaction_id"]) == ("waiting_user", "colour")
    assert asked["message"].startswith("REPLY_INVALID: ")
    assert problem in asked["message"]
    assert "answer_question" in asked["message"]
    return asked


@pytest.mark.contract("F-2")
def test_a_confirmation_is_a_choice_of_yes_and_no(one_door: Door) -> None:
    async def test() -> None:
        user = User("accept", {"answer": "no"})
        async with one_door.opened(user) as client:
            assert (await started(client, "confirming"))["data"] == {"colour": "no"}
            (shown,) = user.seen
            field = shown.requested_schema["properties"]["answer"]
            assert (field["enum"], field["default"]) == (["yes", "no"], "yes")
            user.content = {"answer": "maybe"}
            call = {"skill": "confirming", "engine": "scripted", "idempotency_key": key()}
            asked = await refused_form(client, call, "yes or no")
            assert asked["question"]["options"] == ["yes", "no"]
            user.content = {"answer": " "}
            await refused_form(client, call | {"skill": "free", "idempotency_key": key()}, "empty")

    run(test)


@pytest.mark.parametrize(
    ("skill", "answer"), [("secretive", "hunter2"), ("partly-secret", {"user": "anna", "password": "hunter2"})]
)
def test_a_secret_goes_by_its_link_and_never_by_form(one_door: Door, skill: str, answer: Any) -> None:
    async def test() -> None:
        user = User("decline")
        async with one_door.opened(user) as client:
            asked = await started(client, skill)
            assert asked["question"]["secret"] is True
            (shown,) = user.seen
            assert shown.mode == "url"
            assert shown.url == asked["answer_url"]
            about = {"run_id": asked["run_id"], "interaction_id": "colour"}
            assert "REPLY_INVALID" in await refusal(client, "answer_question", **about, answer=answer)
            assert (await called(client, "get_run", run_id=asked["run_id"]))["state"] == "waiting_user"

    run(test)


def test_a_secret_that_is_given_at_its_link_continues_the_call(one_door: Door) -> None:
    async def test() -> None:
        import httpx

        async def opens(context: Any, params: Any) -> types.ElicitResult:
            async with httpx.AsyncClient() as browser:
                sent = await browser.post(params.url, json={"response": "hunter2"})
                assert sent.status_code == 202, sent.text
            return types.ElicitResult(action="accept")

        async with one_door.opened(opens) as client:
            done = await started(client, "secretive")
            done = await called(client, "get_run", run_id=done["run_id"])
        assert done["state"] == "succeeded"
        assert "hunter2" not in str(done)

    run(test)


@pytest.mark.contract("F-1", "F-2")
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_an_answer_after_the_call_has_returned_still_counts(server: Server, transport: str) -> None:
    """In the older era a form stays open while the call returns."""

    async def test() -> None:
        returned = asyncio.Event()

        async def slowly(context: Any, params: Any) -> types.ElicitResult:
            await returned.wait()
            return types.ElicitResult(action="accept", content={"answer": "blue"})

        async with Door(server=server, transport=transport, mode="legacy").opened(slowly) as client:
            # The wait must be longer than the first turn takes.
            asked = await started(client, "asking", wait_sec=10)
            assert asked["state"] == "waiting_user"
            returned.set()
            done = asked
            while done["state"] != "succeeded":
                done = await called(client, "get_run", run_id=asked["run_id"], wait_sec=1)
            assert done["data"] == {"colour": "blue"}

    run(test)
