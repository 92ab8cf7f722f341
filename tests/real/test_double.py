"""The model double does what its script says, in every protocol, and tells what it was asked."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from clients import CLIENTS, Client, events, send
from double import Entry, Kind, ModelDouble, Request, Step, always, break_off, call_tool, fail, hang, run_shell, say
from double import nobody_listens as nobody

TEXT = "Größe?\n漢字, \"quoted\", {'a': 1} and a \\ backslash"


@pytest.fixture(params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


def ask(double: ModelDouble, client: Client, text: str = "hello", **how: bool) -> tuple[int, bytes]:
    path, body = client.ask(text, **how)
    status, _, answer = send(double.url, path, body)
    return status, answer


def said(double: ModelDouble, client: Client, text: str = "hello", **how: bool) -> str:
    status, answer = ask(double, client, text, **how)
    assert status == 200
    return client.whole_text(json.loads(answer))


def test_text_comes_whole(double: ModelDouble, client: Client) -> None:
    double.play(say(TEXT))
    assert said(double, client) == TEXT


def test_text_comes_in_pieces(double: ModelDouble, client: Client) -> None:
    double.play(say(TEXT))
    _, answer = ask(double, client, streaming=True)
    pieces = [piece for event in events(answer) if (piece := client.stream_text(event))]
    assert len(pieces) > 1
    assert "".join(pieces) == TEXT


def test_tool_is_called(double: ModelDouble, client: Client) -> None:
    double.play(call_tool("shell", {"command": "ls"}))
    _, answer = ask(double, client)
    assert client.whole_call(json.loads(answer)) == ("shell", {"command": "ls"})


def test_tool_is_called_in_a_stream(double: ModelDouble, client: Client) -> None:
    double.play(call_tool("shell", {"command": "ls"}, saying="I look."))
    _, answer = ask(double, client, streaming=True)
    assert b'"shell"' in answer
    assert b"ls" in answer
    assert (
        "".join(client.stream_text(event) for event in events(answer) if "functionCall" not in str(event)) == "I look."
    )


def test_conversation_is_recorded_in_one_form(double: ModelDouble, client: Client) -> None:
    double.play(say("ok"))
    send(double.url, client.path(False), client.body(client.talk, False) | client.tools)
    (request,) = double.requests
    call, result = request.transcript[1:3]
    assert [(each.role, each.kind) for each in request.transcript] == [
        ("user", Kind.TEXT),
        ("assistant", Kind.TOOL_CALL),
        ("user", Kind.TOOL_RESULT),
        ("assistant", Kind.TEXT),
    ]
    assert request.transcript[0] == Entry(role="user", text="list")
    assert (call.name, json.loads(call.text)) == ("shell", {"command": "ls"})
    assert result.text == "a b"
    assert request.assistant_texts == ("two files",)
    assert list(request.asked.tools) == ["shell"]


def test_instructions_are_no_part_of_the_conversation(double: ModelDouble) -> None:
    double.play(always(say("ok")))
    for client in (CLIENTS["chat"], CLIENTS["responses"]):
        send(double.url, client.path(False), client.body(client.talk, False) | client.tools)
    assert all("be brief" in request.asked.system for request in double.requests)


def test_steps_are_played_in_order(double: ModelDouble, client: Client) -> None:
    double.play(say("one"), say("two"))
    double.play(say("three"))
    assert [said(double, client) for _ in range(3)] == ["one", "two", "three"]


def test_answer_is_made_from_the_request(double: ModelDouble, client: Client) -> None:
    def echo(request: Request) -> Step:
        return say(request.user_texts[-1].upper())

    double.play(echo)
    assert said(double, client, "hush") == "HUSH"


def test_failure_has_status_headers_and_body(double: ModelDouble, client: Client) -> None:
    double.play(fail(429, {"Retry-After": "7"}, "slow down"))
    path, body = client.ask("hello", streaming=True)
    status, headers, answer = send(double.url, path, body)
    assert (status, headers["Retry-After"], answer) == (429, "7", b"slow down")


def test_failure_without_a_body_is_in_the_protocols_words(double: ModelDouble, client: Client) -> None:
    double.play(fail(401))
    status, answer = ask(double, client)
    assert status == 401
    assert "401" in json.loads(answer)["error"]["message"]


def test_failure_may_last(double: ModelDouble, client: Client) -> None:
    double.play(say("fine"), always(fail(500)))
    assert [ask(double, client)[0] for _ in range(4)] == [200, 500, 500, 500]


@pytest.mark.parametrize("streaming", [True, False])
def test_connection_breaks_off_in_the_middle(double: ModelDouble, client: Client, streaming: bool) -> None:
    double.play(break_off("This is half of what"))
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(double, client, streaming=streaming)
    assert caught.value.partial


def test_hanging_request_waits_for_its_release(double: ModelDouble, client: Client) -> None:
    held = hang(then=say("at last"))
    double.play(held)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(said, double, client)
        assert held.reached.wait(10)
        assert not answer.done()
        held.release()
        assert answer.result(10) == "at last"


def test_closing_lets_go_of_everybody() -> None:
    client = CLIENTS["chat"]
    before = threading.active_count()
    with ThreadPoolExecutor(1) as pool:
        # The second client says no word on its connection.
        with ModelDouble() as double, socket.create_connection(("127.0.0.1", urlsplit(double.url).port)):
            held = hang()
            double.play(held)
            answer = pool.submit(ask, double, client)
            assert held.reached.wait(10)
        with pytest.raises(http.client.RemoteDisconnected):
            answer.result(10)
    assert threading.active_count() == before


def test_nobody_listens() -> None:
    with nobody() as url, pytest.raises(ConnectionRefusedError):
        send(url, "/v1/messages", {})


def test_conversations_have_their_own_scripts(double: ModelDouble, client: Client) -> None:
    names = [f"wall-{number}" for number in range(8)]
    for name in names:
        double.play(say(f"{name} first"), say(f"{name} second"), when=name)
    double.play(say("the rest"))

    def talk(name: str) -> list[str]:
        return [said(double, client, f"paint {name}.") for _ in range(2)]

    with ThreadPoolExecutor(len(names)) as pool:
        talks = list(pool.map(talk, names))
    assert talks == [[f"{name} first", f"{name} second"] for name in names]
    assert said(double, client, "paint the door") == "the rest"


def test_script_without_a_step_refuses(double: ModelDouble, client: Client) -> None:
    status, answer = ask(double, client)
    assert status == 400
    assert b"no step" in answer


def test_request_without_tools_uses_no_step(double: ModelDouble, client: Client) -> None:
    double.play(say("mine"))
    assert said(double, client, "a title, please", tools=False) == "ok"
    assert said(double, client) == "mine"
    assert [request.user_texts for request in double.side_requests] == [("a title, please",)]
    assert len(double.requests) == 1


def test_helper_with_tools_uses_no_step(double: ModelDouble) -> None:
    system = "You are now acting as the managed memory extraction subagent for somebody."
    path, body = CLIENTS["chat"].ask("remember")
    body["messages"].insert(0, {"role": "system", "content": system})
    send(double.url, path, body)
    assert [request.side for request in double.side_requests] == ["memory"]


def test_side_request_gets_what_its_schema_wants(double: ModelDouble) -> None:
    speaker = {"type": "STRING", "enum": ["user", "model"]}
    schema = {"type": "OBJECT", "properties": {"why": {"type": "STRING"}, "next": speaker}, "required": ["why", "next"]}
    path, body = CLIENTS["gemini"].ask("who is next?", tools=False)
    body["generationConfig"] = {"responseMimeType": "application/json", "responseSchema": schema}
    _, _, answer = send(double.url, path, body)
    assert json.loads(CLIENTS["gemini"].whole_text(json.loads(answer))) == {"why": "ok", "next": "user"}


def test_shell_tool_is_chosen_from_what_is_offered(double: ModelDouble) -> None:
    double.play(run_shell("ls"))
    path, body = CLIENTS["messages"].ask("list")
    body["tools"][0] = body["tools"][0] | {"name": "Bash"}
    _, _, answer = send(double.url, path, body)
    assert CLIENTS["messages"].whole_call(json.loads(answer)) == ("Bash", {"command": "ls"})


def test_step_that_raises_fails_the_test() -> None:
    with pytest.raises(LookupError, match="offered: shell"):
        play_and_ask(run_shell("ls"), CLIENTS["chat"])


def play_and_ask(step: Step, client: Client) -> None:
    with ModelDouble() as double:
        double.play(step)
        assert ask(double, client)[0] == 400


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens?beta=true", "/v1beta/models/m:countTokens"])
def test_tokens_are_counted(double: ModelDouble, path: str) -> None:
    status, _, answer = send(double.url, path, {})
    assert status == 200
    assert 100 in json.loads(answer).values()
    assert [visit.path for visit in double.visits] == [path]


def test_test_can_wait_for_a_request(double: ModelDouble) -> None:
    double.play(say("ok"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(double.wait_for_requests, 1, 10)
        ask(double, CLIENTS["chat"])
        waiting.result(10)
    with pytest.raises(TimeoutError):
        double.wait_for_requests(2, 0.01)
