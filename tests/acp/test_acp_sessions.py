"""`askback acp` when things go wrong: an agent or a server that dies, hostile input, two prompts at once, no server."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acp import RequestError
from askback.client import Client, RunState
from support.acp_client import agent
from support.data_folder import ASK, DEADLINE_SEC, FINISH, World, run_async, until
from support.program import ASKBACK, Terminal, environment, here
from support.server import Server

SCRIPTED = {"ASKBACK_DEFAULT_ENGINE": "scripted"}
SAY = {"say": "Let me see."}
SECRET = {"ask": {"interaction_id": "key", "prompt": "Which key?", "kind": "secret"}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("acp"))
    world.skill([SAY, ASK], [{"write": {"path": "artifacts/wall.txt", "text": "painted"}}, FINISH], name="asking")
    world.skill([{"finish": {"colour": "red"}}], name="quick")
    world.skill([SECRET], [{"finish": {"colour": "done"}}], name="secret")
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world, env=SCRIPTED) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


# Sessions.


def test_an_agent_that_was_killed_leaves_the_run_waiting_and_another_loads_the_session(
    world: World, server: Server, client: Client
) -> None:
    async def main() -> None:
        async with agent(world) as first:
            session = await first.session()
            await first.prompt(session, '/quick {"a": 1}')
            await first.prompt(session, "/asking")
            first.process.send_signal(signal.SIGKILL)
            await first.process.wait()
        async with agent(world) as second:
            with pytest.raises(RequestError, match="is not open"):
                await second.prompt(session, "blue")
            await second.load(session)
            assert second.editor.typed() == ['/quick {"a": 1}', "/asking"]
            assert '"colour": "red"' in second.editor.said()
            assert second.editor.said().endswith("Reply with a number, or in your own words.\n\n")
            before = len(second.editor.said())
            assert await second.prompt(session, "blue") == "end_turn"
            assert '"colour": "blue"' in second.editor.said()[before:]
            assert "Let me see." not in second.editor.said()[before:]
        async with agent(world) as third:
            await third.load(session)
            assert third.editor.typed() == ['/quick {"a": 1}', "/asking", "blue"]
            assert len(third.editor.links()) == 1
            await third.editor.until(lambda: bool(third.editor.commands()))

    run_async(main)


def test_a_secret_answer_is_not_replayed(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            await zed.prompt(session, "/secret")
            (run,) = client.list_runs(labels={"acp-session": session})
            client.reply(run.id, "key", "hunter2")
            client.wait(run.id)
            await zed.load(session)
            assert zed.editor.typed() == ["/secret", "(not shown)"]
            assert "hunter2" not in repr(zed.editor.updates)

    run_async(main)


def test_a_message_answers_no_run_of_another_token(world: World, server: Server, client: Client) -> None:
    alice = client.create_token("alice", ("read", "submit", "answer")).token

    async def main() -> None:
        async with agent(world, env={"ASKBACK_URL": server.url, "ASKBACK_TOKEN": alice}) as zed:
            session = await zed.session()
            await zed.prompt(session, "/asking")
            (mine,) = client.list_runs(labels={"acp-session": session})
            forged = client.create_run("asking", engine="scripted", mode="interactive", labels=mine.labels or {})
            client.wait(forged.id, timeout_sec=DEADLINE_SEC)
            assert await zed.prompt(session, "blue") == "end_turn"
            assert client.get_run(mine.id).state is RunState.SUCCEEDED
            assert client.get_run(forged.id).state is RunState.WAITING_USER
            await zed.load(session)
            assert zed.editor.typed() == ["/asking", "blue"]
            client.cancel(forged.id)

    run_async(main)


def test_a_message_answers_no_question_that_was_not_shown(world: World, server: Server, client: Client) -> None:
    size = {"ask": {"interaction_id": "size", "prompt": "Which size?"}}
    world.skill([ASK], [size], [FINISH], name="twice")

    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            await zed.prompt(session, "/twice")
            (run,) = client.list_runs(labels={"acp-session": session})
            client.reply(run.id, ASK["ask"]["interaction_id"], "red")
            await until(lambda: getattr(client.get_run(run.id).pending_interaction, "interaction_id", "") == "size")
            assert await zed.prompt(session, "blue") == "end_turn"
            assert "Your message was not sent" in zed.editor.said()
            assert "Which size?" in zed.editor.said()
            assert client.get_run(run.id).state is RunState.WAITING_USER
            assert await zed.prompt(session, "large") == "end_turn"
            assert client.get_run(run.id).state is RunState.SUCCEEDED

    run_async(main)


def test_a_session_that_is_none_cannot_be_loaded(world: World, server: Server) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            with pytest.raises(RequestError, match="there is no session"):
                await zed.load("made-up")

    run_async(main)


def test_the_end_of_the_input_ends_the_agent_and_not_the_run(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        async with agent(world, forms=True) as zed:
            session = await zed.session()
            prompt = asyncio.create_task(zed.prompt(session, "/asking"))
            await zed.editor.until(lambda: bool(zed.editor.elicited))
            assert await zed.leave() == 0
            prompt.cancel()
            (run,) = client.list_runs(labels={"acp-session": session})
            assert run.state is RunState.WAITING_USER

    run_async(main)


def test_a_second_prompt_at_the_same_time_is_refused(world: World, server: Server, client: Client) -> None:
    async def main() -> None:
        async with agent(world, forms=True) as zed:
            session, other = await zed.session(), await zed.session()
            prompt = asyncio.create_task(zed.prompt(session, "/asking"))
            await zed.editor.until(lambda: bool(zed.editor.elicited))
            with pytest.raises(RequestError, match="in progress"):
                await zed.prompt(session, "blue")
            assert await zed.prompt(other, "/quick") == "end_turn"
            await zed.connection.cancel(session_id=session)
            assert await prompt == "cancelled"
            assert len(list(client.list_runs(labels={"acp-session": session}))) == 1

    run_async(main)


def test_a_run_that_is_in_progress_is_followed_after_a_load(world: World, server: Server, client: Client) -> None:
    gate = world.folder / "gate"
    world.skill([SAY, {"wait_for": str(gate)}, {"finish": {"colour": "red"}}], name="gated")

    async def main() -> None:
        async with agent(world) as first:
            session = await first.session()
            prompt = asyncio.create_task(first.prompt(session, "/gated"))
            await first.editor.until(lambda: "Let me see." in first.editor.said())
            await first.leave()
            prompt.cancel()
        async with agent(world) as second:
            await second.load(session)
            assert "is still in progress; send a message" in second.editor.said()
            prompt = asyncio.create_task(second.prompt(session, "well?"))
            await second.editor.until(lambda: "was not sent" in second.editor.said())
            gate.touch()
            assert await prompt == "end_turn"
            assert second.editor.said().count("Let me see.") == 1
            assert '"colour": "red"' in second.editor.said()

    run_async(main)


# The server.


def test_a_server_that_restarts_in_the_middle_is_found_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    gate = tmp_path / "gate"
    world.skill([SAY, {"wait_for": str(gate)}, ASK], [FINISH], name="gated")

    async def main() -> None:
        with Server(world, env=SCRIPTED) as first:
            async with agent(world) as zed:
                session = await zed.session()
                prompt = asyncio.create_task(zed.prompt(session, "/gated"))
                await zed.editor.until(lambda: "Let me see." in zed.editor.said())
                port = first.port
                await asyncio.to_thread(first.kill)
                second = await asyncio.to_thread(lambda: Server(world, env=SCRIPTED, port=port))
                with second:
                    gate.touch()
                    assert await prompt == "end_turn"
                    assert zed.editor.said().count("**Which colour?**") == 1
                    assert await zed.prompt(session, "blue") == "end_turn"
                    assert '"colour": "blue"' in zed.editor.said()

    run_async(main)


def test_without_a_server_the_client_is_told_how_to_start_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(World(tmp_path)) as zed:
            with pytest.raises(RequestError, match="start one with: askback serve"):
                await zed.session()
            assert await zed.leave() == 0

    run_async(main)


def test_a_server_that_has_gone_is_told_in_the_chat(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([{"finish": {"colour": "red"}}], name="quick")

    async def main() -> None:
        with Server(world, env=SCRIPTED) as server:
            async with agent(world) as zed:
                session = await zed.session()
                await asyncio.to_thread(server.stop)
                assert await zed.prompt(session, "/quick") == "end_turn"
                assert "cannot reach the server" in zed.editor.said()

    run_async(main)


# The command.


def test_on_a_terminal_the_command_says_what_it_is_for(tmp_path: Path) -> None:
    with Terminal(World(tmp_path), "acp") as terminal:
        ran = terminal.ended()
    assert ran.code == 2
    assert "an editor starts this command" in ran.stderr
    assert ".md" not in ran.stderr


def test_without_the_package_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    hidden = "import sys; sys.modules['acp'] = None; from askback.cli.main import main; sys.exit(main())"
    program = [sys.executable, "-c", hidden, "acp"]

    async def main() -> None:
        child = await asyncio.create_subprocess_exec(
            *program,
            env=environment(world),
            cwd=here(world),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
        assert (child.returncode, out) == (1, b"")
        assert b"pip install 'askback[acp]'" in err

    run_async(main)


# Hostile input.

BROKEN = [
    b"not JSON\n",
    b"\n",
    b"[]\n",
    b"17\n",
    b'"text"\n',
    b"null\n",
    b"\xff\xfe\x00\n",
    b"[" * 100_000 + b"\n",
    b'{"jsonrpc": "2.0", "id": 1, "method": 5}\n',
    b'{"jsonrpc": "2.0", "id": {}, "method": "initialize"}\n',
    b'{"jsonrpc": "2.0", "id": [], "result": {}}\n',
    b'{"jsonrpc": "2.0", "id": 0, "error": "text"}\n',
    b'{"jsonrpc": "2.0"}\n',
    b'{"jsonrpc": "2.0", "id": 2, "method": "no/such"}\n',
    b'{"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": []}\n',
    b'{"jsonrpc": "2.0", "id": 4, "method": "session/prompt", "params": {"sessionId": 7, "prompt": "x"}}\n',
    b'{"jsonrpc": "2.0", "id": 5, "method": "session/new", "params": {"cwd": 1}}\n',
    b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "unknown"}}\n',
    b'{"jsonrpc": "2.0", "id": 6, "method": "session/load", "params": {"sessionId": "\\ud800", "cwd": "/", "mcpServers": []}}\n',
    b'{"jsonrpc": "2.0", "id": "' + b"x" * (17 * 1024 * 1024) + b'"}\n',
]


def test_broken_messages_are_refused_and_the_next_one_is_answered(world: World, server: Server) -> None:
    async def main() -> None:
        child = await asyncio.create_subprocess_exec(
            *ASKBACK,
            "acp",
            env=environment(world),
            cwd=here(world),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=1 << 24,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        meta = {"_meta": {"cwd": 5, "self": 1}}
        new = {
            "jsonrpc": "2.0",
            "id": "last",
            "method": "session/new",
            "params": {"cwd": "/", "mcpServers": [], **meta},
        }
        child.stdin.writelines([*BROKEN, json.dumps(new).encode() + b"\n"])
        answers: dict[Any, list[Any]] = {}
        while "last" not in answers:
            answer = json.loads(await child.stdout.readline())
            answers.setdefault(answer.get("id"), []).append(answer)
        assert "sessionId" in answers["last"][0]["result"]
        assert all(answers[number][0]["error"]["code"] for number in (1, 2, 3, 4, 5, 6))
        assert {each["error"]["code"] for each in answers[None]} == {-32700, -32600}
        child.stdin.close()
        assert await child.wait() == 0

    run_async(main)


def test_a_prompt_with_any_text_is_taken(world: World, server: Server) -> None:
    async def main() -> None:
        async with agent(world) as zed:
            session = await zed.session()
            for text in (
                "",
                " ",
                "/",
                "//",
                "\x00",
                "/quick \x00\x1b[2J",
                "/quick {}",
                "/asking" + "x" * 100_000,
                "💥\ud83d",
            ):
                assert await zed.prompt(session, text.encode("utf-8", "replace").decode()) == "end_turn"

    run_async(main)
