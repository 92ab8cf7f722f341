"""The real CLIs, run directly against the double: what the engines of this project build on.

Two processes for each CLI: a first turn that answers, and a resumed one that uses its shell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clis
import pytest
from clis import PACKAGES, Ended, NotInstalled, Station, find_cli, find_clis, settle
from double import Kind, ModelDouble, Request, run_shell, say

FIRST = "-- Paint the wall.\n\nAsk for the colour; 'quotes', \"quotes\", $HOME and 漢字 stay as they are."
REPLY = "--blue, and\nthen some"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The arguments of a first turn and of a resumed one, where the output names the session, and how it ends."""

    first: tuple[str, ...]
    resume: Callable[[str], tuple[str, ...]]
    session: Callable[[Mapping[str, Any]], str | None]
    ended: Callable[[Mapping[str, Any]], bool]


_CODEX = ("--json", "--skip-git-repo-check", "--yolo")
_GEMINI = ("--output-format", "stream-json", "--yolo", "-m", "gemini-2.5-flash")
_CLAUDE = ("-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
_QWEN = ("--output-format", "stream-json", "--yolo", "--auth-type", "openai")
_OPENCODE = ("run", "--format", "json", "--auto")

COMMANDS: Mapping[str, Commands] = {
    "codex": Commands(
        first=("exec", *_CODEX, "-"),
        resume=lambda session: ("exec", "resume", *_CODEX, session, "-"),
        session=lambda event: event.get("thread_id"),
        ended=lambda event: event["type"] == "turn.completed",
    ),
    "gemini": Commands(
        first=_GEMINI,
        resume=lambda session: (*_GEMINI, "--resume", session),
        session=lambda event: event.get("session_id"),
        ended=lambda event: event["type"] == "result" and event["status"] == "success",
    ),
    "claude": Commands(
        first=_CLAUDE,
        resume=lambda session: (*_CLAUDE, "--resume", session),
        session=lambda event: event.get("session_id"),
        ended=lambda event: event["type"] == "result" and not event["is_error"],
    ),
    "qwen": Commands(
        first=_QWEN,
        resume=lambda session: (*_QWEN, "--resume", session),
        session=lambda event: event.get("session_id"),
        ended=lambda event: event["type"] == "result" and not event["is_error"],
    ),
    "opencode": Commands(
        first=_OPENCODE,
        resume=lambda session: (*_OPENCODE, "--session", session),
        session=lambda event: event.get("sessionID"),
        ended=lambda event: event["type"] == "step_finish" and event["part"]["reason"] == "stop",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """What happened in the two processes."""

    station: Station
    commands: Commands
    first: Ended
    second: Ended
    requests: tuple[Request, ...]

    def session(self, ended: Ended) -> str:
        return next(name for event in ended.events if (name := self.commands.session(event)))


@pytest.fixture(scope="module", params=sorted(COMMANDS))
def talk(request: pytest.FixtureRequest, cli: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Talk:
    engine: str = request.param
    commands = COMMANDS[engine]
    with ModelDouble() as double:
        station = settle(engine, cli(engine), double.url, tmp_path_factory.mktemp(engine))
        double.play(say("Which colour?"), run_shell("echo blue > wall.txt && cat wall.txt"), say("It is painted."))
        first = station.run(*commands.first, stdin=FIRST)
        assert first.exit_code == 0, first.stderr
        session = next(name for event in first.events if (name := commands.session(event)))
        second = station.run(*commands.resume(session), stdin=REPLY)
        return Talk(station=station, commands=commands, first=first, second=second, requests=double.requests)


def arrived(station: Station, text: str) -> str:
    """What the model is sent for a text on stdin."""
    return f"{text}\n\n" if station.engine == "qwen" else text


def test_both_turns_end_by_their_own_event(talk: Talk) -> None:
    for ended in (talk.first, talk.second):
        assert (ended.exit_code, ended.stderr if ended.exit_code else "") == (0, "")
        assert talk.commands.ended(ended.events[-1])


def test_text_on_stdin_reaches_the_model_exactly(talk: Talk) -> None:
    assert talk.requests[0].user_texts[-1] == arrived(talk.station, FIRST)
    assert talk.requests[1].user_texts[-1] == arrived(talk.station, REPLY)


def test_new_process_goes_on_with_the_conversation(talk: Talk) -> None:
    assert talk.session(talk.second) == talk.session(talk.first)
    first, second, _ = talk.requests
    assert "Which colour?" not in first.assistant_texts
    assert arrived(talk.station, FIRST) in second.user_texts
    assert second.assistant_texts[-1] == "Which colour?"


def test_shell_tool_leaves_its_file(talk: Talk) -> None:
    assert (talk.station.cwd / "wall.txt").read_text() == "blue\n"
    last = talk.requests[-1]
    assert [each.kind for each in last.transcript[-2:]] == [Kind.TOOL_CALL, Kind.TOOL_RESULT]
    assert "blue" in last.tool_results[-1]


def test_nothing_is_asked_but_what_the_script_knows(talk: Talk) -> None:
    assert len(talk.requests) == 3


def test_answer_is_printed(talk: Talk) -> None:
    assert "It is painted." in "".join(texts(talk.second.events))


def texts(events: list[dict[str, Any]]) -> list[str]:
    """Every string anywhere in the events, in order: gemini prints an answer in pieces."""
    return [found for event in events for found in _strings(event)]


def _strings(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [
                found for key in ("content", "text", "message", "part", "item") for found in _strings(value.get(key))
            ]
        case list():
            return [found for each in value for found in _strings(each)]
        case _:
            return []


def test_every_engine_is_pinned_exactly() -> None:
    pinned = json.loads((clis.FOLDER / "package.json").read_text())["dependencies"]
    assert sorted(package.name for package in PACKAGES.values()) == sorted(pinned)
    assert all(version.replace(".", "").isdigit() for version in pinned.values())


def test_lock_holds_no_address() -> None:
    lock = json.loads((clis.FOLDER / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_missing_program_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clis, "MODULES", tmp_path)
    assert find_clis() == {}
    with pytest.raises(NotInstalled, match=r"^codex .*npm ci --prefix tests/real"):
        find_cli("codex")


def test_missing_node_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstalled, match=r"gemini needs Node\.js"):
        find_cli("gemini")


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program, manifest = tmp_path / ".bin/qwen", tmp_path / "@qwen-code/qwen-code/package.json"
    for path, content in ((program, ""), (manifest, '{"version": "0.0.1"}')):
        path.parent.mkdir(parents=True)
        path.write_text(content)
    monkeypatch.setattr(clis, "PINNED", True)
    monkeypatch.setattr(clis, "MODULES", tmp_path)
    with pytest.raises(NotInstalled, match=r"qwen is 0\.0\.1 .* pinned"):
        find_cli("qwen")
