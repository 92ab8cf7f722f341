"""What the suite must know of each engine to try it: how a user would point it at the double, and where it keeps things.

An engine adds itself to `ENGINES` and to nothing else. What Askback's engine module sets by itself (quiet settings,
homes, retries) stays out of here, so that the suite proves it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clis import FOLDER, KEY, MODEL, PACKAGES, Aim, find_cli


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineUnderTest:
    name: str
    aim: Callable[[str], Aim]
    """For the double's address: the least that a user configures to reach it, as variables and files below a home."""
    sessions: tuple[str, ...]
    """Patterns below a run's home: the files without which a session is unknown."""
    ask_tool: str
    """The engine's own tool for asking, which must not be offered or answered in a turn without a user."""
    ask_arguments: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    command: Callable[[], tuple[str, ...]] | None = None
    """How to start it; None: the program that is installed for the tests. Raises `NotInstalled`."""
    turn_sec: float = 30.0
    """A trivial turn ends within this, also on a busy machine."""
    ask_tool_is_offered: bool = False
    """The engine offers its ask tool all the same, and answers a call with a refusal."""
    error_body: str | None = None
    """What an HTTP error must say for the engine to give up at once, where by itself it tries again for minutes."""
    usage_is_counted: bool = True
    tells_its_tools: bool = True
    """It says what tools it uses, and where one message ends and the next begins."""
    own_files_in_repositories: tuple[str, ...] = ()
    """What it writes by itself into every repository that it is used in."""
    stands_in_for: str | None = None
    """The version of a program that can no longer be had, and that a program of ours plays."""

    def find(self) -> tuple[str, ...]:
        return self.command() if self.command is not None else (str(find_cli(self.name)),)

    def version(self) -> str:
        """The version that is pinned for the tests."""
        if self.stands_in_for is not None:
            return self.stands_in_for
        pinned = json.loads((FOLDER / "package.json").read_text())["dependencies"]
        return str(pinned[PACKAGES[self.name].name])

    def settings(self, command: tuple[str, ...], url: str, home: Path) -> str:
        """The section of `askback.toml`; the files go below `home`."""
        aim = self.aim(url)
        for path, content in aim.files.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(content)
        home.mkdir(exist_ok=True)
        env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in aim.env.items())
        lines = [
            f"[engines.{self.name}]",
            f"command = {json.dumps(command)}",
            f"home = {json.dumps(str(home))}",
            f"env = {{ {env} }}",
        ]
        if self.model is not None:
            lines.append(f"model = {json.dumps(self.model)}")
        return "\n".join(lines) + "\n"


def _codex(url: str) -> Aim:
    config = f"""
model = "{MODEL}"
model_provider = "double"

[model_providers.double]
name = "double"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
    return Aim(env={"OPENAI_API_KEY": KEY}, files={".codex/config.toml": config})


def _claude(url: str) -> Aim:
    return Aim(env={"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY})


def _opencode(url: str) -> Aim:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "{env:OPENAI_API_KEY}"},
        "models": {MODEL: {"tool_call": True}},
    }
    config = {"model": f"double/{MODEL}", "small_model": f"double/{MODEL}", "provider": {"double": provider}}
    return Aim(env={"OPENAI_API_KEY": KEY}, files={".config/opencode/opencode.json": json.dumps(config)})


def _iflow(url: str) -> Aim:
    return Aim(env={"IFLOW_BASE_URL": f"{url}/v1", "IFLOW_API_KEY": KEY, "IFLOW_MODEL_NAME": MODEL})


def _iflow_stand_in() -> tuple[str, ...]:
    return sys.executable, str(FOLDER.parent / "engines" / "iflow_stand_in.py")


def _gemini(url: str) -> Aim:
    # Without it an address of one's own means a gateway, which it cannot sign in to without a user.
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    env = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": KEY}
    return Aim(env=env, files={".gemini/settings.json": json.dumps(settings)})


def _qwen(url: str) -> Aim:
    # It sends no prompt that it believes to be longer than the model can read.
    settings = {"model": {"generationConfig": {"contextWindowSize": 4_000_000}}}
    env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": KEY}
    return Aim(env=env, files={".qwen/settings.json": json.dumps(settings)})


_QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "red", "description": "a warm one"}, {"label": "blue", "description": "a cold one"}],
}

FASTEST = "codex"
"""Starts in a tenth of a second, the others in one to four. So `make test` runs the whole suite with it alone, and
`make engines` with all."""
ENGINES: Mapping[str, EngineUnderTest] = {
    engine.name: engine
    for engine in (
        EngineUnderTest(
            name="codex",
            aim=_codex,
            sessions=(".codex/sessions/**/*.jsonl",),
            ask_tool="request_user_input",
            ask_arguments={"questions": [{**_QUESTION, "id": "colour"}]},
        ),
        EngineUnderTest(
            name="claude",
            aim=_claude,
            sessions=(".claude/projects/**/*.jsonl",),
            ask_tool="AskUserQuestion",
            ask_arguments={"questions": [{**_QUESTION, "multiSelect": False}]},
            model=MODEL,
        ),
        EngineUnderTest(
            name="opencode",
            aim=_opencode,
            sessions=(".local/share/opencode/opencode.db*",),
            ask_tool="question",
            ask_arguments={"questions": [_QUESTION]},
            own_files_in_repositories=(".git/opencode",),
            turn_sec=60.0,
        ),
        EngineUnderTest(
            name="iflow",
            aim=_iflow,
            sessions=(".iflow/projects/**/session-*.jsonl",),
            ask_tool="ask_user_question",
            command=_iflow_stand_in,
            usage_is_counted=False,
            tells_its_tools=False,
            stands_in_for="0.5.19",
        ),
        EngineUnderTest(
            name="gemini",
            aim=_gemini,
            sessions=(".gemini/tmp/*/chats/session-*",),
            ask_tool="ask_user",
            ask_arguments={
                "questions": [
                    {
                        **_QUESTION,
                        "type": "choice",
                    }
                ]
            },
            # By itself it asks a small model first which one to ask.
            model="gemini-2.5-flash",
        ),
        EngineUnderTest(
            name="qwen",
            aim=_qwen,
            sessions=(".qwen/projects/*/chats/*.jsonl",),
            ask_tool="ask_user_question",
            ask_arguments={"questions": [{**_QUESTION, "multiSelect": False}]},
            model=MODEL,
            error_body='{"error": {"message": "Request contains an invalid argument"}}',
        ),
    )
}
