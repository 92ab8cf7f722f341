"""The tools, over HTTP and stdio, in both eras of the protocol."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from askback.mcp.tools import MAX_NAME, skill_tool_name
from support.data_folder import World
from support.mcp_client import Door, called, key, refusal, run, started
from support.mcp_requests import Requests
from support.server import Server

TOOLS = ["run_skill", "get_run", "answer_question", "cancel_run", "list_questions", "list_skills"]


def test_a_skill_asks_and_its_answer_gives_the_result(door: Door) -> None:
    async def test() -> None:
        async with door.opened() as client:
            asked = await started(client, "asking")
            assert asked["state"] == "waiting_user"
            assert asked["question"]["prompt"] == "Which colour?"
            assert asked["question"]["options"] == ["red", "blue"]
            assert asked["answer_url"].startswith(door.server.url)
            assert asked["data"] is None
            about = {"run_id": asked["run_id"], "interaction_id": "colour"}
            done = await called(client, "answer_question", **about, answer="red")
            assert (done["state"], done["data"], done["question"]) == ("succeeded", {"colour": "red"}, None)
            assert done == await called(client, "get_run", run_id=asked["run_id"])

    run(test)


def test_artifacts_are_links_that_can_be_read(one_door: Door) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            asked = await started(client, "asking")
            answer = {"run_id": asked["run_id"], "interaction_id": "colour", "answer": "blue"}
            result = await client.call_tool("answer_question", answer)
            (link,) = [each for each in result.content if isinstance(each, types.ResourceLink)]
            assert (link.name, link.size) == ("deep/a b.txt", 5)
            (content,) = (await client.read_resource(link.uri)).contents
            assert isinstance(content, types.TextResourceContents)
            assert content.text == "blue\n"
            for uri in ("askback://runs/0000000000000000/artifacts/a", link.uri + "x", "file:///etc/hostname"):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)

    run(test)


def test_results_match_the_declared_schemas(door: Door) -> None:
    async def test() -> None:
        async with door.opened() as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
            assert list(tools)[: len(TOOLS)] == TOOLS
            for name, arguments in (
                ("run_skill", {"skill": "asking", "engine": "scripted", "idempotency_key": key()}),
                ("list_questions", {}),
                ("list_skills", {}),
            ):
                result = await client.call_tool(name, arguments)
                schema = tools[name].output_schema
                assert schema is not None
                jsonschema_rs.validate(schema, result.structured_content)
                first = result.content[0]
                assert isinstance(first, types.TextContent)
                assert json.loads(first.text) == result.structured_content

    run(test)


def test_questions_and_skills_are_listed(one_door: Door) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            asked = await started(client, "form")
            listed = await called(client, "list_questions", skill="form")
            assert asked["run_id"] in [each["run_id"] for each in listed["questions"]]
            skills = {each["id"]: each for each in (await called(client, "list_skills"))["skills"]}
            assert skills["quick"]["input_schema"]["required"] == ["place"]

    run(test)


def test_a_form_is_answered_with_an_object_or_its_text(one_door: Door) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            for answer in ({"name": "Anna", "count": 2}, '{"name": "Anna", "count": 2}'):
                asked = await started(client, "form")
                about = {"run_id": asked["run_id"], "interaction_id": "colour"}
                done = await called(client, "answer_question", **about, answer=answer)
                assert done["state"] == "succeeded"

    run(test)


def test_nothing_stands_for_the_default_or_is_refused(one_door: Door) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            for answer in (None, ""):
                asked = await started(client, "suggesting")
                about = {"run_id": asked["run_id"], "interaction_id": "colour"}
                done = await called(client, "answer_question", **about, answer=answer)
                assert done["data"] == {"colour": "green"}
            asked = await started(client, "free")
            about = {"run_id": asked["run_id"], "interaction_id": "colour"}
            for answer in (None, "", " "):
                told = await refusal(client, "answer_question", **about, answer=answer)
                assert told == "REPLY_INVALID: the answer is empty, and the question has no default"
            assert (await called(client, "answer_question", **about, answer="null"))["data"] == {"colour": "null"}

    run(test)


@pytest.mark.parametrize(("answer", "reply"), [(False, "no"), ("Y", "yes"), ("", "yes")])
def test_a_confirmation_is_answered_with_yes_or_no(one_door: Door, answer: Any, reply: str) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            asked = await started(client, "confirming")
            about = {"run_id": asked["run_id"], "interaction_id": "colour"}
            assert "REPLY_INVALID" in await refusal(client, "answer_question", **about, answer="maybe")
            assert (await called(client, "answer_question", **about, answer=answer))["data"] == {"colour": reply}

    run(test)


def test_a_run_is_canceled(one_door: Door) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            running = await started(client, "endless", wait_sec=1)
            assert running["state"] in ("queued", "running")
            await called(client, "cancel_run", run_id=running["run_id"])
            assert (await called(client, "get_run", run_id=running["run_id"]))["state"] == "canceled"
            assert "RUN_FINAL" in await refusal(client, "cancel_run", run_id=running["run_id"])

    run(test)


def test_failures_are_errors_with_our_codes(one_door: Door) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            unknown: dict[str, Any] = {"run_id": "0000000000000000"}
            assert "RUN_NOT_FOUND" in await refusal(client, "get_run", **unknown)
            assert "SKILL_NOT_FOUND" in await refusal(client, "run_skill", skill="no-such-skill")
            assert "INPUT_INVALID" in await refusal(client, "run_skill", skill="quick", engine="scripted")
            assert "INPUT_INVALID" in await refusal(client, "run_skill", skil="quick")
            with pytest.raises(MCPError, match="no tool 'no_such_tool'"):
                await client.call_tool("no_such_tool", {})
            with pytest.raises(MCPError, match=r"no tool 'skill_none'; the tools are run_skill, .*skill_quick"):
                await client.call_tool("skill_none", {})
            failed = {"skill": "failing", "engine": "scripted", "idempotency_key": key()}
            assert "AUTH_REQUIRED" in await refusal(client, "run_skill", **failed)
            asked = await started(client, "form")
            about = {"run_id": asked["run_id"], "interaction_id": "colour"}
            assert "REPLY_INVALID" in await refusal(client, "answer_question", **about, answer={"count": 0})
            assert (await called(client, "get_run", run_id=asked["run_id"]))["state"] == "waiting_user"

    run(test)


def test_each_skill_is_a_tool_on_demand(one_door: Door) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
            assert tools["skill_quick"].input_schema["properties"]["input"]["required"] == ["place"]
            done = await called(client, "skill_quick", input={"place": "Lisbon"}, engine="scripted")
            assert done["data"] == {"colour": "red"}

    run(test)


def test_a_skill_tool_takes_its_arguments_from_the_body_alone(world: World, server: Server) -> None:
    place = {"type": "string", "x-mcp-header": "Place"}
    fields = {"place": place, "x-mcp-header": {"type": "string"}}
    world.skill([{"finish": {"colour": "red"}}], name="routed", schemas={"input": {"properties": fields}})
    requests = Requests(server=server, declares={})
    listed = {each["name"]: each for each in requests.result("tools/list")["tools"]}
    shown = listed["skill_routed"]["inputSchema"]["properties"]["input"]["properties"]
    assert shown == {"place": {"type": "string"}, "x-mcp-header": {"type": "string"}}
    arguments = {"input": {"place": "Lisbon"}, "engine": "scripted"}
    done = requests.result("tools/call", name="skill_routed", arguments=arguments)
    assert done["structuredContent"]["state"] == "succeeded"


def test_the_name_of_a_skill_tool_fits_every_client() -> None:
    names = [skill_tool_name(each) for each in ("trip-planner", "x" * 64, "x" * 63 + "y", "a.b", "a_b", "计划")]
    assert len(set(names)) == len(names)
    assert all(len(each) <= MAX_NAME and each.isascii() for each in names)
    assert names[0] == "skill_trip-planner"
