"""`askback acp`, driven by the SDK's own client: skills as commands, questions, answers, results and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acp.schema import CancelElicitationResponse, DeclineElicitationResponse

from acp import RequestError
from askback.cli.connection import system_user
from askback.client import Client, RunState
from support.acp_client import Editor, accept, agent
from support.data_folder import ASK, FINISH, World, run_async
from support.server import Server

SAY = {"say": "Let me see."}
TOOL = {"tool": {"name": "shell", "detail": "ls", "output": "wall.txt"}}
WRITE = {"write": {"path": "artifacts/wall.txt", "text": "painted"}}
INPUT = {
    "type": "object",
    "required": ["place", "days"],
    "properties": {"place": {"type": "string"}, "days": {"type": "integer"}, "pace": {"enum": ["slow", "fast"]}},
    "additionalProperties": False,
}
ONE = {"type": "object", "required": ["topic"], "properties": {"topic": {"type": "string"}}}
FORM = {
    "ask": {
        "interaction_id": "trip",
        "prompt": "Your trip",
        "context": "The hotel has four nights.",
        "questions": [
            {"id": "pace", "prompt": "Which pace?", "options": ["slow", "fast"]},
            {"id": "nights", "prompt": "How many nights?", "kind": "integer"},
        ],
    }
}
SECRET = {"ask": {"interaction_id": "key", "prompt": "Which key?", "kind": "secret"}}
NUMBER = {"ask": {"interaction_id": "n", "prompt": "How many?", "response_schema": {"type": "integer", "minimum": 1}}}
ANY: dict[str, Any] = {"type": "object"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("acp"))
    world.skill([SAY, ASK], [WRITE, FINISH], name="asking")
    world.skill([{"finish": {"colour": "red"}}], name="trip", schemas={"input": INPUT})
    world.skill([{"finish": {"colour": "red"}}], name="topic", schemas={"input": ONE})
    world.skill([{"misbehave": "auth"}], name="failing")
    world.skill([FORM], [{"finish": {"given": "{{reply}}"}}], name="form", output=ANY)
    world.skill([SECRET], [{"finish": {"colour": "done"}}], name="secret")
    world.skill([NUMBER], [{"finish": {"given": "{{reply}}"}}], name="number", output=ANY)
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world, env={"ASKBACK_DEFAULT_ENGINE": "scripted"}) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


# Commands.


def test_skills_are_commands_with_hints(world: World, server: Server) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            await zed.session()
            await zed.editor.until(lambda: bool(zed.editor.commands()))
            offered = zed.editor.commands()
            assert {"asking", "trip", "cancel"} <= offered.keys()
            assert offered["trip"].input.root.hint == "place=… days=… [pace=…]"

    run_async(main)


@pytest.mark.parametrize(
    "typed", ['/trip {"place": "Lisbon", "days": 3}', "/trip place=Lisbon days=3", "/trip days=3 place='Lisbon'"]
)
def test_a_command_starts_a_run(world: World, server: Server, client: Client, typed: str) -> None:
    async def main() -> None:
        async with agent(world, "--engine", "scripted") as zed:
            session = await zed.session()
            assert await zed.prompt(session, typed) == "end_turn"
            assert '"colour": "red"' in zed.editor.said()
            (run,) = client.list_runs(labels={"acp-session": session})
            assert client.get_run(run.id).input == {"place": "Lisbon", "days": 3}

    run_async(main)


def test_text_goes_to_the_only_field(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            assert await zed.prompt(session, "/topic the sea, and what lives there") == "end_turn"
            (run,) = client.list_runs(labels={"acp-session": session})
            assert client.get_run(run.id).input == {"topic": "the sea, and what lives there"}

    run_async(main)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("/trip place=Lisbon days=many", "input.days"),
        ("/trip Lisbon for three days", "each needs its name"),
        ("/trip {broken", "not valid JSON"),
        ("/trip place=Lisbon days=many", "Use it like this: `/trip "),
        ("/trop place=Lisbon", "Did you mean `/trip`?"),
        ("hello", "- `/asking`: For tests."),
        ("/cancel", "There is no run to cancel."),
    ],
)
def test_what_starts_no_run_is_explained(world: World, server: Server, client: Client, typed: str, told: str) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            assert await zed.prompt(session, typed) == "end_turn"
            assert told in zed.editor.said()
            assert list(client.list_runs(labels={"acp-session": session})) == []

    run_async(main)


def test_a_file_is_uploaded_from_the_folder_of_the_session(world: World, server: Server, tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["notes"], "properties": {"notes": {"type": "string", "x-type": "file"}}}
    world.skill([{"finish": {"colour": "red"}}], name="reading", schemas={"input": schema})
    (tmp_path / "notes.txt").write_text("red walls")

    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session(str(tmp_path))
            await zed.prompt(session, "/reading notes=missing.txt")
            assert "there is no file" in zed.editor.said()
            await zed.prompt(session, "/reading notes.txt")
            assert "succeeded" in zed.editor.said()

    run_async(main)


# Questions as messages.


def test_a_question_ends_the_turn_and_the_next_prompt_answers_it(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            assert await zed.prompt(session, "/asking") == "end_turn"
            assert "Let me see.\n\n" in zed.editor.said()
            assert "**Which colour?**\n\n1. red\n2. blue" in zed.editor.said()
            assert "ask_user" not in zed.editor.said()
            assert await zed.prompt(session, "9") == "end_turn"
            assert "there is no option 9" in zed.editor.said()
            (run,) = client.list_runs(labels={"acp-session": session})
            assert run.state is RunState.WAITING_USER
            assert await zed.prompt(session, "/trip place=x days=1") == "end_turn"
            assert "still waits for an answer" in zed.editor.said()
            assert await zed.prompt(session, "2") == "end_turn"
            assert '"colour": "blue"' in zed.editor.said()
            (link,) = zed.editor.links()
            assert Path(link.uri.removeprefix("file://")).read_text() == "painted"
            (asked,) = client.interactions(run.id)
            assert (asked.response, asked.answered_with.via) == ("blue", "acp")

    run_async(main)


def test_a_command_that_does_not_exist_is_no_answer(world: World, server: Server, client: Client) -> None:
    options = {"ask": {"interaction_id": "way", "prompt": "Which way?", "options": ["/north", "/etc/hosts"]}}
    world.skill([options], [options], [options], [{"finish": {"colour": "red"}}], name="ways")

    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            await zed.prompt(session, "/ways")
            (run,) = client.list_runs(labels={"acp-session": session})
            assert await zed.prompt(session, "/trip-planner destination=Lisbon") == "end_turn"
            assert "There is no command `/trip-planner`, so your message was not sent" in zed.editor.said()
            assert await zed.prompt(session, "/cancel later") == "end_turn"
            assert client.get_run(run.id).state is RunState.WAITING_USER
            for typed in ("/north", "/etc/passwd", "2"):
                assert await zed.prompt(session, typed) == "end_turn"
            assert [each.response for each in client.interactions(run.id)] == ["/north", "/etc/passwd", "/etc/hosts"]

    run_async(main)


@pytest.mark.contract("F-3")
def test_a_token_decides_what_the_agent_may_do(world: World, server: Server, client: Client, tmp_path: Path) -> None:
    """Labels restrict what it sees and marks, a scope is missing where it was not given, and the audit log has its name."""
    token = client.create_token("zed", ["submit", "answer", "read"], labels={"team": "red"}).token
    reader = client.create_token("watcher", ["read"]).token
    # The data folder of another machine.
    env = {"ASKBACK_URL": server.url, "ASKBACK_TOKEN": token, "ASKBACK_DATA_DIR": str(tmp_path)}

    async def main() -> None:
        async with agent(world, env=env) as zed:
            session = await zed.session()
            await zed.prompt(session, "/asking")
            await zed.prompt(session, "red")
            (run,) = client.list_runs(labels={"acp-session": session})
            assert run.labels == {"acp-session": session, "team": "red"}
            (asked,) = client.interactions(run.id)
            assert (asked.answered_with.name, asked.answered_with.via) == ("zed", "acp")
            actions = {entry.action for entry in client.audit(actor="zed", run_id=run.id)}
            assert {"run.submit", "interaction.reply"} <= {str(action) for action in actions}
            (link,) = zed.editor.links()
            assert link.uri == f"{server.url}/v1/runs/{run.id}/artifacts/wall.txt"
        async with agent(world, env=env | {"ASKBACK_TOKEN": reader}) as zed:
            session = await zed.session()
            await zed.prompt(session, "/asking")
            assert "SCOPE_MISSING" in zed.editor.said()
            assert "Use it like this" not in zed.editor.said()
        async with agent(world, env=env | {"ASKBACK_TOKEN": "wrong"}) as zed:
            with pytest.raises(RequestError, match="rejects the token"):
                await zed.session()

    run_async(main)


@pytest.mark.parametrize(
    "typed", ['{"pace": "fast", "nights": 3}', "pace: fast\nnights: 3", "- `pace`: 2\n- nights: 3"]
)
def test_a_form_is_answered_as_json_or_by_lines(world: World, server: Server, client: Client, typed: str) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            await zed.prompt(session, "/form")
            assert "- `nights`: How many nights? (whole number)" in zed.editor.said()
            await zed.prompt(session, "whatever you like")
            assert "is not the name of a question" in zed.editor.said()
            await zed.prompt(session, "pace: fast")
            assert "nights" in zed.editor.said()
            await zed.prompt(session, typed)
            (run,) = client.list_runs(labels={"acp-session": session})
            assert run.state is RunState.SUCCEEDED
            assert client.interactions(run.id)[0].response == {"pace": "fast", "nights": 3}

    run_async(main)


def test_a_typed_answer_has_the_type_of_its_schema(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            await zed.prompt(session, "/number")
            await zed.prompt(session, "many")
            assert "many is not a whole number" in zed.editor.said()
            await zed.prompt(session, "4")
            (run,) = client.list_runs(labels={"acp-session": session})
            assert client.interactions(run.id)[0].response == 4

    run_async(main)


def test_a_secret_is_never_taken_from_the_chat(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        async with agent(world, forms=True) as zed:
            session = await zed.session()
            await zed.prompt(session, "/secret")
            (run,) = client.list_runs(labels={"acp-session": session})
            assert "do not type it here" in zed.editor.said()
            assert f"askback reply {run.id}" in zed.editor.said()
            assert f"{server.url}/" in zed.editor.said()
            assert await zed.prompt(session, "hunter2") == "end_turn"
            assert "not sent" in zed.editor.said()
            assert client.get_run(run.id).state is RunState.WAITING_USER
            assert zed.editor.elicited == []

    run_async(main)


# Questions as elicitations.


@pytest.mark.parametrize(("content", "colour"), [({"answer": "blue"}, "blue"), ({"own_words": "green"}, "green")])
@pytest.mark.contract("F-2")
def test_an_accepted_elicitation_is_the_reply(
    world: World, server: Server, content: dict[str, str], colour: str
) -> None:
    async def main() -> None:
        editor = Editor(answer=lambda message, mode: accept(**content))
        async with agent(world, editor=editor, forms=True) as zed:
            session = await zed.session()
            assert await zed.prompt(session, "/asking") == "end_turn"
            assert f'"colour": "{colour}"' in editor.said()
            ((message, mode),) = editor.elicited
            assert message == "Which colour?"
            choice = mode["requestedSchema"]["properties"]["answer"]
            assert [each["const"] for each in choice["oneOf"]] == ["red", "blue"]

    run_async(main)


@pytest.mark.parametrize(
    "kind", [DeclineElicitationResponse(action="decline"), CancelElicitationResponse(action="cancel")]
)
@pytest.mark.contract("F-2")
def test_anything_but_accept_leaves_the_run_waiting(world: World, server: Server, client: Client, kind: Any) -> None:
    async def main() -> None:
        async with agent(world, editor=Editor(answer=lambda message, mode: kind), forms=True) as zed:
            session = await zed.session()
            assert await zed.prompt(session, "/asking") == "end_turn"
            (run,) = client.list_runs(labels={"acp-session": session})
            assert run.state is RunState.WAITING_USER
            assert "The run waits." in zed.editor.said()
            assert await zed.prompt(session, "red") == "end_turn"
            assert '"colour": "red"' in zed.editor.said()

    run_async(main)


def test_a_form_is_one_elicitation(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        editor = Editor(answer=lambda message, mode: accept(pace="fast", nights=3))
        async with agent(world, editor=editor, forms=True) as zed:
            session = await zed.session()
            await zed.prompt(session, "/form")
            (run,) = client.list_runs(labels={"acp-session": session})
            assert client.interactions(run.id)[0].response == {"pace": "fast", "nights": 3}
            ((message, mode),) = editor.elicited
            assert message == "Your trip\n\nThe hotel has four nights."
            assert mode["requestedSchema"]["required"] == ["pace", "nights"]

    run_async(main)


def test_an_accepted_answer_that_is_invalid_is_told_and_asked_once(world: World, server: Server) -> None:
    async def main() -> None:
        editor = Editor(answer=lambda message, mode: accept(answer=0))
        async with agent(world, editor=editor, forms=True) as zed:
            session = await zed.session()
            assert await zed.prompt(session, "/number") == "end_turn"
            assert len(editor.elicited) == 1
            assert "not an answer" in editor.said()
            assert await zed.prompt(session, "2") == "end_turn"
            assert "succeeded" in editor.said()

    run_async(main)


def test_a_secret_is_asked_by_url_and_completed_when_it_is_answered(
    world: World, server: Server, client: Client
) -> None:
    async def main() -> None:
        editor = Editor(answer=lambda message, mode: accept())
        async with agent(world, editor=editor, forms=True, urls=True) as zed:
            session = await zed.session()
            prompt = asyncio.create_task(zed.prompt(session, "/secret"))
            await editor.until(lambda: bool(editor.elicited))
            ((_, mode),) = editor.elicited
            assert mode["url"].startswith(server.url)
            (run,) = client.list_runs(labels={"acp-session": session})
            client.reply(run.id, "key", "hunter2")
            assert await prompt == "end_turn"
            assert editor.completed == [mode["elicitationId"]]
            assert "hunter2" not in repr(editor.updates)

    run_async(main)


def test_an_answer_from_elsewhere_ends_the_elicitation(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        async with agent(world, forms=True) as zed:
            session = await zed.session()
            prompt = asyncio.create_task(zed.prompt(session, "/asking"))
            await zed.editor.until(lambda: bool(zed.editor.elicited))
            (run,) = client.list_runs(labels={"acp-session": session})
            client.reply(run.id, "colour", "red")
            assert await prompt == "end_turn"
            assert "Answered by main, by API: red" in zed.editor.said()
            assert '"colour": "red"' in zed.editor.said()

    run_async(main)


# Ends.


def test_a_failure_is_told_with_its_code(world: World, server: Server) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            assert await zed.prompt(session, "/failing") == "end_turn"
            assert "failed: ENGINE_AUTH_REQUIRED: " in zed.editor.said()

    run_async(main)


def test_tool_calls_are_shown_until_they_end(world: World, server: Server) -> None:
    world.skill([TOOL, {"finish": {"colour": "red"}}], name="tooling")

    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            await zed.prompt(session, "/tooling")
            calls = [each for each in zed.editor.updates if each.session_update.startswith("tool_call")]
            assert [each.status for each in calls] == ["in_progress", "completed"]
            assert calls[0].tool_call_id == calls[1].tool_call_id
            assert calls[0].title == "shell ls"
            assert calls[1].content[0].content.text == "wall.txt"

    run_async(main)


def test_cancel_cancels_the_run(world: World, server: Server, client: Client) -> None:
    world.skill([SAY, {"wait_for": "never"}], name="slow")

    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            prompt = asyncio.create_task(zed.prompt(session, "/slow"))
            await zed.editor.until(lambda: "Let me see." in zed.editor.said())
            await zed.connection.cancel(session_id=session)
            assert await prompt == "cancelled"
            (run,) = client.list_runs(labels={"acp-session": session})
            assert run.state is RunState.CANCELED
            assert "was canceled by " in zed.editor.said()

    run_async(main)


def test_a_waiting_run_is_canceled_by_a_command(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            await zed.prompt(session, "/asking")
            assert await zed.prompt(session, "/cancel") == "cancelled"
            (run,) = client.list_runs(labels={"acp-session": session})
            assert run.state is RunState.CANCELED
            (canceled,) = (each for each in client.audit(run_id=run.id) if each.action == "run.cancel")
            assert (canceled.actor.name, canceled.actor.via) == (system_user().name, "acp")
            assert "by ACP" in zed.editor.said()
            assert await zed.prompt(session, "/topic sea") == "end_turn"
            assert "succeeded" in zed.editor.said()

    run_async(main)
