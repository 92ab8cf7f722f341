"""The engine `codex`: what it starts, what it reads of a probe, and what it makes of lines that no recording has."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from distortions import parser_of
from recordings import turn_of

from askback.core.errors import ErrorCode
from askback.core.runs import Handle, Mode, ProfileKind, Usage
from askback.engines.base import (
    CallResult,
    Completed,
    Exit,
    Launch,
    Probe,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.codex import FULL_AUTO, OPTIONS_BEFORE_RESUME, OUTPUT_SCHEMA, engine
from support.data_folder import World, over, run_async, submit, waiting

ID = "01a1e067-8b42-7d20-8713-0562e3ecf66c"
HANDLE = Handle(engine="codex", handle_type="session_id", handle_value=ID, created_at_turn=1)
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "minLength": 1}},
    "required": ["colour"],
    "additionalProperties": False,
}
NEW = Probe(kind=ProfileKind.RESUMABLE, reason="seen", features=(OUTPUT_SCHEMA,))
OLD = Probe(kind=ProfileKind.RESUMABLE, reason="seen", features=(FULL_AUTO, OPTIONS_BEFORE_RESUME))
FIRST = replace(turn_of(engine(), {}), probe=NEW)


def launch(**changes: Any) -> Launch:
    return engine().launch(replace(FIRST, **changes))


# What it starts.


@pytest.mark.contract("E-3")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("handle", [None, HANDLE])
@pytest.mark.parametrize(("probe", "flag"), [(NEW, "--yolo"), (OLD, "--full-auto")])
def test_every_turn_executes_by_itself(mode: Mode, handle: Handle | None, probe: Probe, flag: str) -> None:
    argv = launch(mode=mode, handle=handle, probe=probe).argv
    assert argv[1] == "exec"
    assert [word for word in argv if word in ("--yolo", "--full-auto")] == [flag]


@pytest.mark.contract("H-7", "H-10", "E-4")
@pytest.mark.parametrize("mode", Mode)
def test_a_resume_keeps_the_arguments_and_adds_the_id_before_the_prompt(mode: Mode) -> None:
    options = {"model": "m", "mode": mode, "output_schema": SCHEMA, "env": {"OPENAI_API_KEY": "k"}}
    first, resumed = launch(**options), launch(handle=HANDLE, **options)
    assert resumed.argv == ("codex", "exec", "resume", *first.argv[2:-1], ID, "-")
    assert (resumed.env, resumed.files, resumed.stdin) == (first.env, first.files, first.stdin)


@pytest.mark.contract("H-7", "E-4")
def test_a_version_whose_resume_knows_no_options_is_given_them_before() -> None:
    first, resumed = launch(probe=OLD), launch(probe=OLD, handle=HANDLE)
    assert resumed.argv == (*first.argv[:-1], "resume", ID, "-")


@pytest.mark.contract("E-4")
def test_further_arguments_stand_where_every_one_of_them_is_known() -> None:
    extra = ("-s", "workspace-write", "--profile", "mine")
    assert launch(extra_args=extra).argv[:6] == ("codex", "exec", *extra)
    assert launch(extra_args=extra, handle=HANDLE).argv[:7] == ("codex", "exec", *extra, "resume")


@pytest.mark.contract("T-8")
@pytest.mark.parametrize("handle", [None, HANDLE])
def test_its_own_ways_of_asking_and_of_going_on_are_switched_off(handle: Handle | None) -> None:
    argv = launch(handle=handle).argv
    settings = [value for flag, value in pairwise(argv) if flag == "-c"]
    assert "tools.experimental_request_user_input.enabled=false" in settings
    assert "features.goals=false" in settings


def test_its_home_is_private_and_exists() -> None:
    made = launch()
    assert made.env["CODEX_HOME"] == "/run/home/.codex"
    assert all(path.startswith(".codex/") for path in made.files)
    assert made.files
    # What a user configured is never written over.
    assert not {".codex/config.toml", ".codex/auth.json"} & made.files.keys()


def test_a_key_of_the_settings_signs_in_unless_there_is_a_sign_in() -> None:
    key = {"OPENAI_API_KEY": "k"}
    assert launch(env=key).env["CODEX_API_KEY"] == "k"
    assert "CODEX_API_KEY" not in launch(env=key, credentials=(".codex/auth.json",)).env
    assert "CODEX_API_KEY" not in launch(env={**key, "CODEX_API_KEY": "other"}).env
    assert "CODEX_API_KEY" not in launch().env


def test_signed_in_by_file_or_key() -> None:
    codex = engine()
    assert codex.signed_in([".codex/auth.json"], []) is True
    assert codex.signed_in([], ["CODEX_API_KEY"]) is True
    assert codex.signed_in([], ["OPENAI_API_KEY"]) is True
    assert codex.signed_in([], ["PATH"]) is False


def test_the_answer_is_held_to_the_schema_only_where_nobody_may_be_asked() -> None:
    held = launch(mode=Mode.AUTO, output_schema=SCHEMA)
    (option,) = [word for word in held.argv if word.startswith("--output-schema")]
    path = option.removeprefix("--output-schema=/run/home/")
    assert json.loads(held.files[path])["properties"] == {"colour": {"type": "string"}}
    for free in (
        launch(mode=Mode.INTERACTIVE, output_schema=SCHEMA),
        launch(mode=Mode.AUTO, output_schema={"type": "object"}),
        launch(mode=Mode.AUTO, output_schema=SCHEMA, probe=OLD),
        launch(mode=Mode.AUTO),
    ):
        assert not any(word.startswith("--output-schema") for word in free.argv)
        assert path not in free.files


# The probe.

EXEC_HELP = "Run Codex non-interactively\n\nUsage: codex exec [OPTIONS] [PROMPT]\n       codex exec [OPTIONS] <COMMAND> [ARGS]\n"
RESUME_HELP = """Resume a previous session

Usage: codex exec resume [OPTIONS] [SESSION_ID] [PROMPT]

      --json
      --skip-git-repo-check
  -m, --model <MODEL>
"""


def probe(resume: str, usage: str = EXEC_HELP, version: str = "codex-cli 0.166.0\n", code: int | None = 0) -> Probe:
    printed = (resume, usage, "", version)
    calls = zip(engine().probe_calls(), printed, strict=True)
    return engine().read_probe([CallResult(args=args, exit_code=code, stdout=text, stderr="") for args, text in calls])


@pytest.mark.contract("P-1", "P-4")
def test_a_version_that_resumes_is_resumable() -> None:
    schema = "      --output-schema <FILE>\n"
    assert probe(RESUME_HELP, EXEC_HELP + schema).features == ()
    seen = probe(RESUME_HELP + schema, EXEC_HELP + schema)
    assert (seen.kind, seen.version, seen.features) == (ProfileKind.RESUMABLE, "0.166.0", (OUTPUT_SCHEMA,))


@pytest.mark.contract("P-4")
def test_a_version_without_resume_is_sticky_though_its_help_exits_well() -> None:
    seen = probe(EXEC_HELP)
    assert seen.kind is ProfileKind.STICKY_PROCESS
    assert seen.reason == "its exec resume --help does not offer a SESSION_ID"


@pytest.mark.contract("P-4", "E-3")
def test_an_old_version_is_known_by_what_its_help_lacks() -> None:
    seen = probe(RESUME_HELP.replace("--json", "--last"), EXEC_HELP + "      --full-auto\n")
    assert (seen.kind, seen.features) == (ProfileKind.RESUMABLE, (FULL_AUTO, OPTIONS_BEFORE_RESUME))


# What it prints.


def turn(*events: Any, ended: Exit | None = None, resuming: bool = False) -> tuple[list[Any], Completed | TurnFailed]:
    parser = parser_of(engine(), resuming=resuming)
    lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in events]
    seen = [one for line in lines for one in parser.feed(Stream.STDOUT, line)]
    return seen, parser.finish(ended or Exit(code=0))


def item(kind: str, **rest: Any) -> dict[str, Any]:
    return {"id": "item_1", "type": kind, **rest}


DONE = {"type": "turn.completed", "usage": {"input_tokens": 120, "cached_input_tokens": 20, "output_tokens": 30}}


@pytest.mark.contract("H-3", "H-12")
def test_the_thread_is_named_as_soon_as_it_starts() -> None:
    seen, _ = turn({"type": "thread.started", "thread_id": ID})
    assert seen == [SessionNamed(value=ID)]


def test_tokens_are_those_of_the_whole_session() -> None:
    usage = Usage(input_tokens=120, output_tokens=30, cached_tokens=20, total_tokens=150)
    seen, result = turn(DONE)
    assert seen == [UsageSeen(usage=usage, whole_session=True), TurnOver()]
    assert result == Completed(messages=())


def test_tokens_of_a_session_are_counted_once() -> None:
    before = Usage(input_tokens=120, output_tokens=30, cached_tokens=20, total_tokens=150)
    whole = Usage(input_tokens=300, output_tokens=30, cached_tokens=10, total_tokens=330)
    assert whole.beyond(before) == Usage(input_tokens=180, total_tokens=180)
    assert whole.beyond(Usage()) == whole


def test_a_tool_that_comes_only_at_its_end_is_told_with_its_start() -> None:
    change = item("file_change", changes=[{"path": "a.txt", "kind": "add"}, 7], status="completed")
    called = item("mcp_tool_call", server="s", tool="look", status="failed")
    seen, _ = turn({"type": "item.completed", "item": change}, {"type": "item.completed", "item": called})
    assert seen == [
        ToolStarted(call_id="item_1", name="file_change", detail="a.txt"),
        ToolEnded(call_id="item_1", name="file_change", ok=True),
        ToolStarted(call_id="item_1", name="look"),
        ToolEnded(call_id="item_1", name="look", ok=False),
    ]


@pytest.mark.contract("T-7")
def test_only_assistant_messages_are_said() -> None:
    hidden = [
        item(kind, text="__SKILL_DONE__", message="__SKILL_DONE__") for kind in ("reasoning", "error", "todo_list")
    ]
    seen, result = turn(*({"type": "item.completed", "item": each} for each in hidden), DONE)
    assert [type(each) for each in seen] == [UsageSeen, TurnOver]
    assert result == Completed(messages=())


@pytest.mark.contract("T-6")
def test_a_turn_that_went_on_after_its_end_is_not_over() -> None:
    _, result = turn(DONE, {"type": "turn.started"})
    assert isinstance(result, TurnFailed)
    assert result.code is ErrorCode.ENGINE_CRASHED


@pytest.mark.contract("T-6", "X-9")
def test_a_failed_turn_is_no_success_whatever_else_was_said() -> None:
    failed = {"type": "turn.failed", "error": {"message": "You've hit your usage limit."}}
    for events in ((DONE, failed), (failed, DONE)):
        _, result = turn(*events)
        assert isinstance(result, TurnFailed)
        assert (result.code, result.detail) == (ErrorCode.ENGINE_RATE_LIMITED, "You've hit your usage limit.")


@pytest.mark.contract("X-9")
def test_a_time_out_is_told_as_what_the_engine_was_busy_with() -> None:
    connecting = {"type": "error", "message": "Reconnecting... 2/5 (Connection failed: error sending request)"}
    limited = {"type": "error", "message": "Reconnecting... 2/5 (unexpected status 429)"}
    out_of_time = Exit(code=-15, timed_out=True)
    for events, code in (
        ((connecting,), ErrorCode.ENGINE_UNREACHABLE),
        ((limited,), ErrorCode.ENGINE_RATE_LIMITED),
        (({"type": "error", "message": "Reconnecting... 2/5 (it went wrong)"},), ErrorCode.TURN_TIMEOUT),
        ((connecting, {"type": "item.started", "item": item("command_execution")}), ErrorCode.TURN_TIMEOUT),
    ):
        _, result = turn(*events, ended=out_of_time)
        assert isinstance(result, TurnFailed)
        assert result.code is code
    _, result = turn(connecting, ended=Exit(code=-15, timed_out=True, over_limit=True))
    assert isinstance(result, TurnFailed)
    assert result.code is ErrorCode.OUTPUT_LIMIT_EXCEEDED


# A resume that fails before its first event.

PROGRAM = """\
import json, sys
if "--help" in sys.argv:
    print("Usage: codex exec resume [OPTIONS] [SESSION_ID] [PROMPT] --json --skip-git-repo-check --model")
elif "resume" in sys.argv:
    sys.exit({words!r})
else:
    question = json.dumps({{"ask_user": {{"interaction_id": "q", "prompt": "Which?"}}}})
    for event in (
        {{"type": "thread.started", "thread_id": "{session}"}},
        {{"type": "item.completed", "item": {{"id": "1", "type": "agent_message", "text": question}}}},
        {{"type": "turn.completed", "usage": {{}}}},
    ):
        print(json.dumps(event))
"""


@pytest.mark.contract("X-9")
@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("Error: unexpected status 401 Unauthorized", ErrorCode.ENGINE_AUTH_REQUIRED),
        ("Error: exceeded retry limit, last status: 429 Too Many Requests", ErrorCode.ENGINE_RATE_LIMITED),
        ("Error: unexpected status 503 Service Unavailable", ErrorCode.ENGINE_API_ERROR),
        ("Error: error sending request for url", ErrorCode.ENGINE_UNREACHABLE),
        ("thread 'main' panicked\n    at core.rs:401:429", ErrorCode.ENGINE_CRASHED),
    ],
)
def test_the_cause_of_a_failed_resume_is_read_from_stderr(tmp_path: Path, words: str, cause: ErrorCode) -> None:
    world = World(tmp_path)
    (tmp_path / "codex.py").write_text(PROGRAM.format(words=words, session=ID))
    settings = f"[engines.codex]\ncommand = {json.dumps([sys.executable, str(tmp_path / 'codex.py')])}\n"

    async def main() -> None:
        async with world.working(settings) as app:
            asked = await waiting(app, (await submit(app, world.skill(), engine="codex")).id)
            await app.service.reply(asked.id, "green")
            run = await over(app, asked.id)
            assert run.error is not None
            assert (run.error.code, run.error.cause) == (ErrorCode.SESSION_RESUME_FAILED, cause)
            assert run.error.detail == words

    run_async(main)
