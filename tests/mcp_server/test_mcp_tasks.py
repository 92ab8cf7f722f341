"""A run as a task: for clients that declare the extension, with the same rules as everywhere."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from askback.client import Client, RunState
from support.data_folder import ASK, FINISH, World
from support.mcp_client import LIMIT_SEC, key
from support.mcp_requests import BOTH, TASKS, Requests
from support.program import ASKBACK, environment
from support.server import Server

BLUE = {"action": "accept", "content": {"answer": "blue"}}


@pytest.fixture(scope="module")
def requests(server: Server) -> Requests:
    return Requests(server=server)


@pytest.fixture
def api(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


def asked(requests: Requests, task_id: str) -> tuple[str, dict[str, Any]]:
    """The one input request of a task, and its key."""
    found = requests.settled(task_id)
    assert found["status"] == "input_required", found
    ((name, request),) = found["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    return name, request["params"]


def test_a_task_asks_and_its_answer_gives_the_result(requests: Requests, api: Client) -> None:
    task_id = requests.task("asking")
    name, form = asked(requests, task_id)
    assert (form["mode"], form["message"]) == ("form", "asking asks:\nWhich colour?")
    assert requests.result("tasks/update", taskId=task_id, inputResponses={name: BLUE}).keys() <= {
        "resultType",
        "_meta",
    }
    done = requests.settled(task_id)
    assert (done["status"], done["ttlMs"], done["resultType"]) == ("completed", None, "complete")
    envelope = done["result"]["structuredContent"]
    assert (envelope["run_id"], envelope["data"]) == (task_id, {"colour": "blue"})
    assert done["result"]["isError"] is False
    assert api.get_run(task_id).state is RunState.SUCCEEDED
    # Once more, an answer to a question that is closed is ignored.
    requests.result("tasks/update", taskId=task_id, inputResponses={name: BLUE})


def test_a_task_says_what_its_question_is_about(requests: Requests) -> None:
    _, form = asked(requests, requests.task("pondering"))
    assert form["message"] == "pondering asks:\nWhich colour?\n\nroom: kitchen; walls: 4\n\n- Red: as a rose"
    confirming = requests.task("confirming")
    name, form = asked(requests, confirming)
    assert form["requestedSchema"]["properties"]["answer"]["enum"] == ["yes", "no"]
    maybe = {"action": "accept", "content": {"answer": "maybe"}}
    refused = requests.error("tasks/update", taskId=confirming, inputResponses={name: maybe})
    assert refused["data"]["code"] == "REPLY_INVALID"


@pytest.mark.contract("F-2")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_task_whose_user_declines_gives_the_question_to_the_model(
    requests: Requests, api: Client, action: str
) -> None:
    task_id = requests.task("asking")
    name, _ = asked(requests, task_id)
    requests.result("tasks/update", taskId=task_id, inputResponses={name: {"action": action}})
    found = requests.settled(task_id)
    assert (found["status"], "inputRequests" in found) == ("completed", False)
    assert found["result"]["structuredContent"]["question"]["prompt"] == "Which colour?"
    assert api.get_run(task_id).state is RunState.WAITING_USER
    api.reply(task_id, "colour", "red")
    assert requests.settled(task_id)["result"]["structuredContent"]["data"] == {"colour": "red"}


@pytest.mark.contract("F-2")
def test_an_invalid_form_is_refused_and_its_task_still_asks(requests: Requests) -> None:
    task_id = requests.task("form")
    name, _ = asked(requests, task_id)
    for content in ({"name": "Anna", "count": 0}, {}, None):
        reaction = {"action": "accept", "content": content}
        refused = requests.error("tasks/update", taskId=task_id, inputResponses={name: reaction})
        assert refused["code"] == -32602
    assert requests.error("tasks/update", taskId=task_id, inputResponses={name: "yes"})["code"] == -32602
    assert asked(requests, task_id)[0] == name


@pytest.mark.parametrize("skill", ["secretive", "partly-secret"])
def test_a_secret_goes_by_its_link_and_never_by_an_update(requests: Requests, api: Client, skill: str) -> None:
    by_form = requests.declaring(elicitation={"form": {}}, extensions={TASKS: {}})
    task_id = requests.task(skill)
    name, page = asked(requests, task_id)
    assert (page["mode"], "requestedSchema" in page) == ("url", False)
    found = by_form.settled(task_id)
    assert (found["status"], "inputRequests" in found) == ("completed", False)
    assert found["result"]["structuredContent"]["answer_url"] == page["url"]
    secret = {"action": "accept", "content": {"answer": "hunter2", "user": "anna", "password": "hunter2"}}
    requests.result("tasks/update", taskId=task_id, inputResponses={name: secret})
    assert api.get_run(task_id).state is RunState.WAITING_USER
    # The page was opened: it is not opened again.
    assert requests.settled(task_id)["status"] == "working"


def test_a_failed_run_is_a_completed_task_with_an_error(requests: Requests) -> None:
    done = requests.settled(requests.task("failing"))
    assert (done["status"], done["result"]["isError"]) == ("completed", True)
    assert done["result"]["structuredContent"]["error"]["code"] == "ENGINE_AUTH_REQUIRED"


def test_a_canceled_task_is_canceled_once(requests: Requests, api: Client) -> None:
    task_id = requests.task("endless")
    found = requests.result("tasks/get", taskId=task_id)
    assert found["status"] == "working"
    assert found["statusMessage"] in ("The run will start soon.", "The run is working.")
    requests.result("tasks/cancel", taskId=task_id)
    found = requests.settled(task_id)
    assert (found["status"], "result" in found) == ("cancelled", False)
    assert found["statusMessage"] == "The run was canceled."
    requests.result("tasks/cancel", taskId=task_id)
    assert api.get_run(task_id).state is RunState.CANCELED


def test_a_request_that_does_not_declare_tasks_gets_none(requests: Requests) -> None:
    plain = requests.declaring(elicitation={})
    assert plain.start("endless", wait_sec=0)["structuredContent"]["state"] in ("queued", "running")
    task_id = requests.task("endless")
    for method, more in (("tasks/get", {}), ("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})):
        refused = plain.error(method, taskId=task_id, **more)
        assert refused["code"] == -32021
        assert refused["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    requests.result("tasks/cancel", taskId=task_id)


def test_the_name_header_must_be_the_task(requests: Requests) -> None:
    task_id = requests.task("endless")
    for method, more in (("tasks/get", {}), ("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})):
        sent = requests.send(method, {"mcp-name": "other"}, taskId=task_id, **more)
        assert (sent.status_code, sent.json()["error"]["code"]) == (400, -32020)
    requests.result("tasks/cancel", taskId=task_id)


def test_a_call_that_waits_gets_its_result_or_its_question(requests: Requests) -> None:
    """Whoever passes `wait_sec` wants no task for what is over soon."""
    quick = {"input": {"place": "Lisbon"}, "wait_sec": 40}
    done = requests.start("quick", **quick)
    assert (done["resultType"], done["structuredContent"]["data"]) == ("complete", {"colour": "red"})
    call = {"skill": "asking", "engine": "scripted", "idempotency_key": key(), "wait_sec": 40}
    first = requests.result("tools/call", name="run_skill", arguments=call)
    assert first["resultType"] == "input_required"
    again = {"inputResponses": {"colour": BLUE}, "requestState": first["requestState"]}
    created = requests.result("tools/call", name="run_skill", arguments=call, **again)
    assert created["resultType"] == "task"
    assert requests.settled(created["taskId"])["result"]["structuredContent"]["data"] == {"colour": "blue"}
    # A client without a user to ask gets the question for its model.
    alone = requests.declaring(extensions={TASKS: {}})
    told = alone.start("asking", wait_sec=40)
    assert (told["resultType"], told["structuredContent"]["state"]) == ("complete", "waiting_user")


@pytest.mark.contract("F-3")
def test_a_task_needs_the_scopes_and_labels_of_its_run(requests: Requests, api: Client) -> None:
    made = [f"tasks-{key()[:8]}" for _ in range(3)]
    reader = requests.with_token(api.create_token(made[0], ["read"]).token)
    starter = requests.with_token(api.create_token(made[1], ["submit"]).token)
    owner = api.create_token(made[2], ["read", "submit", "answer"], labels={"customer": key()[:12]})
    task_id = requests.task("asking")
    name, _ = asked(requests, task_id)
    answer = {"taskId": task_id, "inputResponses": {name: BLUE}}
    stranger = requests.with_token(owner.token)
    for method, params in (
        ("tasks/get", {"taskId": task_id}),
        ("tasks/update", answer),
        ("tasks/cancel", {"taskId": task_id}),
    ):
        refused = stranger.error(method, **params)
        assert (refused["code"], refused["data"]["code"]) == (-32602, "RUN_NOT_FOUND")
    # Without `answer` there is no link, and no reply.
    assert reader.result("tasks/get", taskId=task_id)["status"] == "input_required"
    assert reader.error("tasks/update", **answer)["data"]["code"] == "SCOPE_MISSING"
    assert reader.error("tasks/cancel", taskId=task_id)["data"]["code"] == "SCOPE_MISSING"
    # A task that its client could not poll is none.
    assert starter.start("endless")["resultType"] == "complete"
    for each in made:
        api.revoke_token(each)


@pytest.mark.contract("F-3")
def test_the_audit_log_knows_who_answered_and_canceled_a_task(requests: Requests, api: Client) -> None:
    name = f"anna-{key()[:8]}"
    anna = requests.with_token(api.create_token(name, ["read", "submit", "answer"]).token)
    task_id = anna.task("asking")
    question, _ = asked(anna, task_id)
    anna.result("tasks/update", taskId=task_id, inputResponses={question: BLUE})
    anna.result("tasks/cancel", taskId=anna.task("endless"))
    entries = list(api.audit(actor=name))
    assert {each.action for each in entries} >= {"run.submit", "interaction.reply", "run.cancel"}
    assert {each.actor.via for each in entries} == {"mcp"}
    api.revoke_token(name)


def test_a_task_survives_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    world = World(tmp_path_factory.mktemp("restart"))
    world.skill([ASK], [FINISH], name="asking")
    with Server(world) as server:
        before = Requests(server=server)
        task_id = before.task("asking")
        name, _ = asked(before, task_id)
        server.kill()
        port, token = server.port, server.token
    with Server(world, port=port) as server:
        after = Requests(server=server, token=token)
        assert asked(after, task_id)[0] == name
        after.result("tasks/update", taskId=task_id, inputResponses={name: BLUE})
        assert after.settled(task_id)["result"]["structuredContent"]["data"] == {"colour": "blue"}


def test_tasks_on_stdio(server: Server, world: World, api: Client) -> None:
    """One client in each era: the older one has no tasks."""
    about = {"protocolVersion": "2026-07-28", "clientCapabilities": BOTH}
    meta = {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in about.items()}}
    call = {"name": "run_skill", "arguments": {"skill": "endless", "engine": "scripted", "idempotency_key": key()}}
    created, found = _exchange(world, server, ("tools/call", call | meta), ("tasks/get", {"taskId": "none"} | meta))
    assert created["result"]["resultType"] == "task"
    assert found["error"]["code"] == -32602
    task_id = created["result"]["taskId"]
    opening = {"protocolVersion": "2025-11-25", "capabilities": BOTH, "clientInfo": {"name": "test", "version": "1"}}
    _, absent = _exchange(world, server, ("initialize", opening), ("tasks/get", {"taskId": task_id}))
    assert absent["error"]["code"] == -32601
    api.cancel(task_id)


def _exchange(world: World, server: Server, *requests: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers to requests, in their order."""
    env = environment(world, ASKBACK_URL=server.url, ASKBACK_TOKEN=server.token)
    with subprocess.Popen(
        [*ASKBACK, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        answers = []
        limit = threading.Timer(LIMIT_SEC, program.kill)
        limit.start()
        try:
            for number, (method, params) in enumerate(requests):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                program.stdin.write(json.dumps(message) + "\n")
                program.stdin.flush()
                answers.append(json.loads(program.stdout.readline()))
        finally:
            limit.cancel()
            program.kill()
    return answers
