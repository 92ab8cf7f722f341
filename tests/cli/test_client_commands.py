"""The commands that talk to a server: which one, what they print, and what they say when it is not there."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from askback.cli.connection import find, system_user
from askback.client import Client, Run
from support.data_folder import ASK, FINISH, World
from support.program import RUN_ID, Ran, Started, Terminal, askback, until
from support.receiver import Receiver, receiving
from support.server import Server

TALKING = (["runs"], ["show", "x"], ["watch", "x"], ["inbox"], ["cancel", "x"], ["delete", "x"])
SAY = {"say": "Let me see."}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("commands"))
    world.skill([SAY, ASK], [{"write": {"path": "artifacts/wall.txt", "text": "painted"}}, FINISH], name="asking")
    world.skill([{"finish": {"colour": "red"}}], name="quick")
    world.skill([{"misbehave": "auth"}], name="failing")
    evil = {"ask": {"interaction_id": "evil", "prompt": "Now\x1b[2J?\nline two", "options": ["\x1b]0;t\x07a"]}}
    world.skill([evil], name="evil")
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


def settled(client: Client, skill: str = "asking", **rest: Any) -> Run:
    return client.wait(client.create_run(skill, engine="scripted", mode="interactive", **rest).id)


# Help.


@pytest.mark.parametrize(
    "words", [*TALKING, ["reply", "x"], ["serve"], ["tokens"], ["tokens", "create"], ["tokens", "revoke"]], ids=" ".join
)
def test_every_command_tells_its_options(tmp_path: Path, words: list[str]) -> None:
    names = [word for word in words if word != "x"]
    told = askback(World(tmp_path), *names, "--help")
    assert (told.code, told.stderr) == (0, "")
    assert told.stdout.startswith(f"Usage: askback {' '.join(names)} ")
    server = ("--url", "--token") if words in TALKING or "reply" in words else ()
    assert [option for option in ("--config", "--data-dir", "--json", *server) if option not in told.stdout] == []


# Which server.


@pytest.mark.parametrize("words", [words for words in TALKING if "x" in words], ids=lambda words: words[0])
def test_without_a_server_a_run_is_looked_for_in_the_data_folder(tmp_path: Path, words: list[str]) -> None:
    told = askback(World(tmp_path), *words, "--json")
    assert (told.code, told.json["error"]["code"]) == (2, "RUN_NOT_FOUND")


def test_a_reply_to_a_run_that_is_not_here_wants_a_server(tmp_path: Path) -> None:
    told = askback(World(tmp_path), "reply", "x", "blue", "--json")
    assert (told.code, told.json["error"]["code"]) == (3, "SERVER_UNREACHABLE")
    message = told.json["error"]["message"]
    assert message.startswith(f"no server runs on the data folder {tmp_path / 'data'}; start one with: ")
    assert "there is no run 'x'" in message


@pytest.mark.parametrize("words", [*TALKING, ["reply", "x", "blue"]], ids=lambda words: words[0])
def test_a_server_that_does_not_answer_is_named(tmp_path: Path, words: list[str]) -> None:
    by_option = askback(World(tmp_path), *words, "--url", "http://127.0.0.1:1")
    by_environment = askback(World(tmp_path), *words, env={"ASKBACK_URL": "http://127.0.0.1:1"})
    for ran in (by_option, by_environment):
        assert ran.code == 3
        assert (
            "no server responds at http://127.0.0.1:1: nothing listens there, the connection was refused; start one with:"
            " askback serve, or name one with --url"
        ) in ran.stderr


def test_something_else_at_the_address_is_told_with_what_to_check(tmp_path: Path) -> None:
    for status, said in (
        (404, "check the address in --url"),
        (502, "a proxy sends this if it cannot reach the server"),
    ):
        with receiving(Receiver(answers=[status])) as other:
            told = askback(World(tmp_path), "runs", "--url", other.url)
        assert told.code != 0
        assert f"returned status {status}, not from an Askback server" in told.stderr
        assert said in told.stderr


def test_a_server_is_chosen_by_option_before_the_environment(server: Server, tmp_path: Path) -> None:
    elsewhere = World(tmp_path)
    given = {"ASKBACK_URL": server.url, "ASKBACK_TOKEN": server.token}
    assert askback(elsewhere, "runs", "--json", env=given).code == 0
    assert askback(elsewhere, "runs", "--url", "http://127.0.0.1:1", env=given).code == 3
    assert askback(elsewhere, "runs", "--token", "wrong", env=given).code == 2
    wrong = given | {"ASKBACK_TOKEN": "wrong"}
    assert askback(elsewhere, "runs", "--url", server.url, "--token", server.token, env=wrong).code == 0


def test_an_empty_variable_is_as_good_as_none(world: World, server: Server) -> None:
    assert askback(world, "runs", "--json", env={"ASKBACK_URL": "", "ASKBACK_TOKEN": ""}).code == 0


def test_a_token_that_is_not_taken_is_told_with_what_to_do(server: Server, tmp_path: Path) -> None:
    ran = askback(World(tmp_path), "inbox", "--url", server.url)
    assert ran.code == 2
    assert ran.stderr == "askback: the server requires a token; pass one with --token or ASKBACK_TOKEN\n"
    ran = askback(World(tmp_path), "inbox", "--url", server.url, "--token", "wrong")
    assert ran.code == 2
    assert ran.stderr == "askback: the server rejects the token; pass a valid one with --token or ASKBACK_TOKEN\n"


# Looking.


def test_runs_is_a_table_with_filters(world: World, client: Client) -> None:
    waiting, failed = settled(client), settled(client, "failing")
    table = askback(world, "runs")
    lines = {line.split()[1]: line for line in table.stdout.splitlines()}
    assert "waiting_user asking" in lines[waiting.id]
    assert lines[waiting.id].endswith("Which colour?")
    assert lines[failed.id].endswith("ENGINE_AUTH_REQUIRED")
    assert [run["id"] for run in askback(world, "runs", "--json", "--limit", "1").json] == [failed.id]
    chosen = askback(world, "runs", "--json", "--state", "failed", "--skill", "failing", "--engine", "scripted").json
    assert failed.id in [run["id"] for run in chosen]
    assert {run["state"] for run in chosen} == {"failed"}
    none = askback(world, "runs", "--engine", "codex")
    assert (none.code, none.stdout, none.stderr) == (0, "", "no run matches\n")
    assert "there are more" in askback(world, "runs", "--limit", "1").stderr
    assert askback(world, "runs", "--state", "lost").code == 2


def test_show_tells_what_a_run_asks_and_how_to_answer(world: World, client: Client) -> None:
    run = settled(client)
    shown = askback(world, "show", run.id)
    assert shown.code == 0
    for text in (f"run {run.id}: waiting_user", "Which colour?", "1) red", "no deadline"):
        assert text in shown.stdout
    assert f"answer with: askback reply {run.id} TEXT" in shown.stdout


@pytest.mark.contract("N-1")
def test_an_answer_by_command_has_the_name_of_the_user_of_this_machine(world: World, client: Client) -> None:
    run = settled(client)
    assert askback(world, "reply", run.id, "blue").code == 0
    (question,) = client.interactions(run.id)
    assert question.answered_with is not None
    assert (question.answered_with.name, question.answered_with.via) == (system_user().name, "cli")


@pytest.mark.parametrize("name", [".", ".."])
def test_a_run_is_not_named_by_dots(world: World, server: Server, name: str) -> None:
    shown = askback(world, "show", name)
    assert (shown.code, shown.stderr) == (2, f"askback: there is no run '{name}'\n")


def test_show_tells_how_a_run_ended(world: World, client: Client) -> None:
    run = settled(client)
    client.reply(run.id, "colour", "blue")
    client.wait(run.id)
    shown = askback(world, "show", run.id).stdout
    for text in ("succeeded", "asked    Which colour?", "answered by main, by API: blue", "wall.txt (7 B)"):
        assert text in shown
    document = askback(world, "show", run.id, "--json").json
    assert (document["state"], document["interactions"][0]["response"]) == ("succeeded", "blue")
    assert document["artifacts"] == [{"path": "wall.txt", "size": 7, "turn": 2}]
    failed = askback(world, "show", settled(client, "failing").id)
    assert (failed.code, "ENGINE_AUTH_REQUIRED: " in failed.stdout) == (0, True)


def test_a_run_that_is_not_there_is_told_so(world: World, server: Server) -> None:
    for command, name in product(("show", "watch", "cancel", "delete"), ("nope", "")):
        ran = askback(world, command, name)
        assert ran.code == 2
        assert f"there is no run '{name}'" in ran.stderr
        assert askback(world, command, name, "--json").json["error"]["code"] == "RUN_NOT_FOUND"


def test_a_unique_prefix_names_a_run_of_a_server(world: World, client: Client) -> None:
    run = settled(client)
    others = [each.id for each in client.list_runs() if each.id != run.id]
    short = next(run.id[:end] for end in range(1, 17) if not any(each.startswith(run.id[:end]) for each in others))
    assert askback(world, "show", short, "--json").json["id"] == run.id
    assert askback(world, "reply", short, "red", "--json").json["id"] == run.id
    watched = askback(world, "watch", short, "--json")
    assert (watched.code, watched.json["id"]) == (0, run.id)


def test_the_inbox_lists_questions_with_age_and_answer(world: World, client: Client) -> None:
    run = settled(client)
    listed = askback(world, "inbox")
    assert f"run {run.id}: asking on scripted\n  ? Which colour?\n    1) red\n    2) blue\n    asked " in listed.stdout
    assert f"answer with: askback reply {run.id} TEXT" in listed.stdout
    assert run.id in [each["run_id"] for each in askback(world, "inbox", "--json").json]


def test_a_deadline_is_told(world: World, client: Client) -> None:
    options = {"interactive_require_user_reply": False, "session_timeout_sec": 600}
    run = settled(client, options=options)
    assert " left\n" in askback(world, "show", run.id).stdout
    assert " left\n" in askback(world, "inbox").stdout
    client.cancel(run.id)


def test_nothing_of_a_stranger_s_text_moves_the_cursor(world: World, client: Client) -> None:
    run = settled(client, "evil")
    for words in (["runs"], ["show", run.id], ["inbox"]):
        ran = askback(world, *words)
        assert "\x1b" not in ran.stdout + ran.stderr
        assert "Now?" in ran.stdout
    client.cancel(run.id)


# Doing.


def test_reply_goes_through_the_server_of_the_data_folder(world: World, client: Client) -> None:
    run = settled(client)
    ran = askback(world, "reply", run.id, "2")
    assert (ran.code, ran.stdout) == (0, "")
    assert f"✔ sent; follow run {run.id} with: askback watch {run.id}" in ran.stderr
    client.wait(run.id)
    assert client.result(run.id).data == {"colour": "blue"}
    again = askback(world, "reply", run.id, "red", "--json")
    assert (again.code, again.json["error"]["code"]) == (2, "INTERACTION_NOT_PENDING")


def test_reply_goes_through_a_server_that_is_named(server: Server, client: Client, tmp_path: Path) -> None:
    run = settled(client)
    there = ("--url", server.url, "--token", server.token)
    wrong = askback(World(tmp_path), "reply", run.id, "red", "--interaction", "other", *there)
    assert (wrong.code, "'colour' is" in wrong.stderr) == (2, True)
    ran = askback(World(tmp_path), "reply", run.id, "--json", *there, stdin="red\n")
    assert (ran.code, ran.json["id"]) == (0, run.id)
    client.wait(run.id)
    assert client.result(run.id).data == {"colour": "red"}


def test_reply_asks_on_the_terminal_and_sees_when_another_was_quicker(
    world: World, server: Server, client: Client
) -> None:
    run = settled(client)
    with Terminal(world, "reply", run.id) as terminal:
        terminal.expect("Your answer")
        terminal.enter("blue")
        assert terminal.ended().code == 0
    assert client.wait(run.id).state == "succeeded"
    slow = settled(client)
    with Terminal(world, "reply", slow.id) as terminal:
        terminal.expect("Your answer")
        client.reply(slow.id, "colour", "red")
        terminal.expect("was settled elsewhere in the meantime")
        assert terminal.ended().code == 2


def test_leaving_a_question_leaves_the_run_waiting(world: World, client: Client) -> None:
    run = settled(client)
    with Terminal(world, "reply", run.id) as terminal:
        terminal.expect("Your answer")
        terminal.end_input()
        assert terminal.ended().code == 4
    assert client.get_run(run.id).state == "waiting_user"


def test_cancel_ends_a_run(world: World, client: Client) -> None:
    run = settled(client)
    ran = askback(world, "cancel", run.id)
    assert (ran.code, ran.stdout) == (0, f"■ run {run.id} is canceled\n")
    again = askback(world, "cancel", run.id)
    assert (again.code, f"run {run.id} is canceled already" in again.stderr) == (2, True)


def test_delete_removes_a_run_that_is_over(world: World, client: Client) -> None:
    run = settled(client)
    early = askback(world, "delete", run.id)
    assert (early.code, "only a run that is over can be deleted" in early.stderr) == (2, True)
    client.cancel(run.id)
    assert askback(world, "delete", run.id, "--json").json == {"deleted": run.id}
    assert askback(world, "show", run.id).code == 2


def test_watch_follows_a_run_to_its_end_and_prints_its_result(world: World, client: Client) -> None:
    run = settled(client)
    with Started(world, "watch", run.id) as watching:
        until(lambda: f"answer with: askback reply {run.id} TEXT" in watching.stderr)
        client.reply(run.id, "colour", "blue")
        ended = watching.ended()
    assert (ended.code, ended.stdout) == (0, '{\n  "colour": "blue"\n}\n')
    assert "  Let me see.\n" in ended.stderr
    assert "✔ asking: succeeded" in ended.stderr


def test_watch_of_a_failed_run_exits_with_1(world: World, client: Client) -> None:
    run = settled(client, "failing")
    ran = askback(world, "watch", run.id)
    assert (ran.code, ran.stdout) == (1, "")
    assert "✘ failing: failed" in ran.stderr
    document = askback(world, "watch", run.id, "--json")
    assert (document.code, document.stderr) == (1, "")
    assert (document.json["id"], document.json["status"]) == (run.id, "failed")


def test_ctrl_c_stops_watching_and_not_the_run(world: World, client: Client) -> None:
    run = settled(client)
    with Started(world, "watch", run.id) as watching:
        until(lambda: "answer with" in watching.stderr)
        assert watching.kill(signal.SIGINT) == 130
        assert f"stopped watching; run {run.id} continues" in watching.stderr
    assert client.get_run(run.id).state == "waiting_user"


# Tokens.


def token(ran: Ran) -> str:
    assert ran.code == 0, ran.stderr
    return ran.stdout.strip()


def test_a_token_allows_what_it_is_made_for_until_it_is_revoked(world: World, server: Server, client: Client) -> None:
    run = settled(client)
    reading = token(askback(world, "tokens", "create", "reader", "--scope", "read"))
    there = ("--url", server.url, "--token", reading)
    assert askback(world, "show", run.id, *there).code == 0
    refused = askback(world, "cancel", run.id, *there, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "SCOPE_MISSING")
    assert askback(world, "tokens", "revoke", "reader").code == 0
    assert "rejects the token" in askback(world, "show", run.id, *there).stderr
    unknown = askback(world, "tokens", "revoke", "reader", "--json")
    assert (unknown.code, unknown.json["error"]["code"]) == (2, "TOKEN_NOT_FOUND")


def test_tokens_are_listed_without_their_text(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert askback(world, "tokens").stderr.startswith("there are no additional tokens")
    words = ("--scope", "read", "--scope", "answer", "--expires-in", "30d", "--json")
    made = askback(world, "tokens", "create", "desk", *words).json
    listed = askback(world, "tokens", "--json")
    assert made["token"] not in listed.stdout
    (only,) = listed.json
    assert (only["name"], only["scopes"]) == ("desk", ["read", "answer"])
    created, expires = (datetime.fromisoformat(only[name]) for name in ("created_at", "expires_at"))
    assert abs(expires - created - timedelta(days=30)) < timedelta(minutes=1)
    assert "read, answer" in askback(world, "tokens").stdout
    assert made["token"] not in "".join(path.read_text() for path in world.data_dir.glob("tokens*"))


@pytest.mark.parametrize(
    "words",
    [
        ["x"],
        ["x", "--scope", "all"],
        ["x", "--scope", "read", "--expires-in", "soon"],
        ["a b", "--scope", "read"],
        ["main", "--scope", "read"],
        ["Askback", "--scope", "read"],
        [".x", "--scope", "read"],
        ["x" * 101, "--scope", "read"],
    ],
    ids=" ".join,
)
def test_a_token_that_cannot_be_is_refused(tmp_path: Path, words: list[str]) -> None:
    ran = askback(World(tmp_path), "tokens", "create", *words)
    assert (ran.code, ran.stdout) == (2, "")


@pytest.mark.parametrize("time", ["0d", "99999w", "9" * 60 + "s", "36501d"])
def test_the_range_of_a_lifetime_is_told(tmp_path: Path, time: str) -> None:
    ran = askback(World(tmp_path), "tokens", "create", "x", "--scope", "read", "--expires-in", time)
    assert (ran.code, ran.stdout) == (2, "")
    assert "must be from 1s to a hundred years (36500d)" in ran.stderr


# The Tab key.


def completions(world: World, *words: str, **env: str) -> list[str]:
    given = {"_ASKBACK_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("askback", *words)), **env}
    ran = askback(world, env={**given, "COMP_CWORD": str(len(words))})
    return [line.partition(",")[2] for line in ran.stdout.splitlines() if line]


def test_the_tab_key_completes_commands_and_runs(world: World, client: Client, tmp_path: Path) -> None:
    run = settled(client)
    assert completions(world, "wat") == ["watch"]
    for command in ("show", "watch", "cancel", "reply"):
        assert run.id in completions(world, command, run.id[:6])
    assert completions(world, "show", "zzz") == []
    assert completions(World(tmp_path), "show", "1") == []


def test_run_ids_look_as_the_commands_print_them(world: World, client: Client) -> None:
    run = settled(client)
    found = RUN_ID.search(askback(world, "show", run.id).stdout)
    assert found is not None
    assert found[1] == run.id


def test_the_token_of_the_environment_is_not_sent_to_another_host(tmp_path: Path) -> None:
    with receiving(Receiver(answers=[401])) as other:
        given = {"ASKBACK_URL": "https://askback.example.com", "ASKBACK_TOKEN": "token-of-the-environment"}
        askback(World(tmp_path), "runs", "--url", other.url, env=given)
        askback(World(tmp_path), "runs", "--url", other.url, "--token", "own", env=given)
        askback(World(tmp_path), "runs", env={**given, "ASKBACK_URL": other.url})
        askback(World(tmp_path), "runs", "--url", f"{other.url}/", env={**given, "ASKBACK_URL": other.url})
    environment = "Bearer token-of-the-environment"
    sent = [came.headers.get("authorization") for came in other.came]
    assert sent == [None, "Bearer own", environment, environment]


@pytest.mark.parametrize(
    ("env_url", "url", "sent"),
    [
        (None, "https://other.example", False),
        (None, "http://127.0.0.1.other.example:8765", False),
        (None, "http://127.0.0.1:8765", True),
        (None, "http://[::1]:8765", True),
        (None, "http://localhost:8765/", True),
        (None, "http://ab12.localhost:8765", True),
        (None, "http://localhost.other.example", False),
        ("https://mine.example", "https://mine.example:443/askback", True),
        ("https://mine.example", "http://mine.example", False),
        ("https://mine.example", "http://127.0.0.1:8765", False),
    ],
)
def test_the_token_of_the_environment_is_for_its_server_or_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, env_url: str | None, url: str, sent: bool
) -> None:
    settings = World(tmp_path).settings()
    monkeypatch.setenv("ASKBACK_TOKEN", "token-of-the-environment")
    monkeypatch.delenv("ASKBACK_URL", raising=False)
    if env_url is not None:
        monkeypatch.setenv("ASKBACK_URL", env_url)
    found, own = find(settings, url, None), find(settings, url, "own")
    assert found is not None
    assert own is not None
    assert (found.token, found.withheld) == (("token-of-the-environment", False) if sent else (None, True))
    assert own.token == "own"


def test_a_client_whose_configuration_names_a_server_sends_it_the_token_of_its_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`askback mcp install CLIENT --url URL` writes the address alone; the client has the token in ASKBACK_TOKEN."""
    monkeypatch.setenv("ASKBACK_TOKEN", "token-of-the-environment")
    monkeypatch.delenv("ASKBACK_URL", raising=False)
    found = find(World(tmp_path).settings(), "https://other.example", None, named_alone=True)
    assert found is not None
    assert found.token == "token-of-the-environment"


def test_a_token_that_was_not_sent_is_named_with_what_to_do(server: Server, tmp_path: Path) -> None:
    given = {"ASKBACK_URL": "https://askback.example.com", "ASKBACK_TOKEN": server.token}
    refused = askback(World(tmp_path), "inbox", "--url", server.url, env=given)
    assert refused.code == 2
    assert "ASKBACK_TOKEN is for the server in ASKBACK_URL" in refused.stderr
    assert "was not sent" in refused.stderr
    assert "--token" in refused.stderr
