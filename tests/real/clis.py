"""The real CLIs that are installed in this folder, and a private home for each that points it at the double.

Knows each CLI's files and variables; knows nothing of Askback.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PINNED = "ASKBACK_TEST_CLIS" not in os.environ
"""`make engines-latest` names a folder with other versions, and wants these tested."""
MODULES = FOLDER / "node_modules" if PINNED else Path(os.environ["ASKBACK_TEST_CLIS"])
MODEL = "double-model"
KEY = "key-for-the-double"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An npm package. `program` is a pattern: some packages bring their program in another one, by platform.

    The launcher of such a package is put in place by an install script, and we run none; the program is the same.
    """

    name: str
    program: str


PACKAGES: Mapping[str, Package] = {
    "claude": Package(name="@anthropic-ai/claude-code", program="@anthropic-ai/claude-code-*/claude"),
    "codex": Package(name="@openai/codex", program=".bin/codex"),
    "gemini": Package(name="@google/gemini-cli", program=".bin/gemini"),
    "opencode": Package(name="opencode-ai", program="opencode-*/bin/opencode"),
    "qwen": Package(name="@qwen-code/qwen-code", program=".bin/qwen"),
}


class NotInstalled(LookupError):
    """A CLI that the tests cannot use, with what to do."""


def find_cli(engine: str) -> Path:
    """The program of an engine, of exactly the pinned version unless another folder is named."""
    package = PACKAGES[engine]
    advice = "run `npm ci --prefix tests/real`"
    if shutil.which("node") is None:
        raise NotInstalled(f"{engine} needs Node.js, which is not on the PATH; install it and {advice}")
    manifest = MODULES / package.name / "package.json"
    # Of a program for this processor and one for older ones, the shorter name is the former.
    programs = sorted(MODULES.glob(package.program), key=lambda path: len(str(path)))
    if not manifest.is_file() or not programs:
        raise NotInstalled(f"{engine} is not in {MODULES}; {advice}")
    pinned, found = _read_json(FOLDER / "package.json")["dependencies"][package.name], _read_json(manifest)["version"]
    if PINNED and found != pinned:
        raise NotInstalled(f"{engine} is {found} in tests/real/node_modules, but {pinned} is pinned; {advice}")
    return programs[0]


def find_clis() -> dict[str, Path]:
    """The programs of all engines that are installed as pinned."""
    found = {}
    for engine in PACKAGES:
        try:
            found[engine] = find_cli(engine)
        except NotInstalled:
            continue
    return found


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text())


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What points a CLI at the double, as a user would have configured it. Files are relative to a home."""

    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def _codex(url: str) -> Aim:
    config = f"""
model = "{MODEL}"
model_provider = "double"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false
remote_plugin = false

[model_providers.double]
name = "double"
base_url = "{url}/v1"
env_key = "DOUBLE_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
    return Aim(env={"DOUBLE_API_KEY": KEY}, files={".codex/config.toml": config})


def _gemini(url: str) -> Aim:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"maxAttempts": 1, "sessionRetention": {"enabled": False}, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    env = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": KEY}
    return Aim(env=env, files={".gemini/settings.json": json.dumps(settings)})


def _claude(url: str) -> Aim:
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_MODEL": MODEL}
    quiet = {
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return Aim(env=env | quiet)


def _qwen(url: str) -> Aim:
    settings = {
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "memory": {"enableManagedAutoMemory": False},
        "model": {"generationConfig": {"maxRetries": 0}},
    }
    env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": MODEL}
    return Aim(env=env, files={".qwen/settings.json": json.dumps(settings)})


def _opencode(url: str) -> Aim:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "double",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": MODEL, "tool_call": True}},
    }
    config = {
        "model": f"double/{MODEL}",
        "small_model": f"double/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"double": provider},
    }
    return Aim(files={".config/opencode/opencode.json": json.dumps(config)})


AIMS: Mapping[str, Callable[[str], Aim]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "qwen": _qwen,
}


def private_env(engine: str, home: Path) -> dict[str, str]:
    """Variables that keep a CLI inside a home of its own."""
    common = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home / "tmp"), "LANG": "C.UTF-8"}
    folders = {
        "codex": {"CODEX_HOME": ".codex"},
        "gemini": {"GEMINI_CLI_HOME": "."},
        "claude": {"CLAUDE_CONFIG_DIR": ".claude"},
        "opencode": {
            "XDG_DATA_HOME": ".local/share",
            "XDG_CONFIG_HOME": ".config",
            "XDG_STATE_HOME": ".local/state",
            "XDG_CACHE_HOME": ".cache",
        },
    }
    manners = {
        "gemini": {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        "claude": {"IS_SANDBOX": "1"},
        # Else it reads the configuration of every folder above, and looks for news of itself.
        "opencode": {
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
        "qwen": {"QWEN_CODE_NO_RELAUNCH": "true"},
    }
    places = {name: str(home / path) for name, path in folders.get(engine, {}).items()}
    return common | places | manners.get(engine, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    exit_code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of stdout that are JSON objects."""
        lines = (line for line in self.stdout.splitlines() if line.startswith("{"))
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """A CLI in a place of its own: program, home, working directory and environment."""

    engine: str
    program: Path
    home: Path
    cwd: Path
    env: Mapping[str, str]

    def run(self, *args: str, stdin: str = "", timeout_sec: float = 120.0) -> Ended:
        """Run it to its end. One that takes too long is killed with its whole group."""
        began = time.monotonic()
        with subprocess.Popen(
            [str(self.program), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.cwd,
            env=dict(self.env),
            start_new_session=True,
        ) as child:
            try:
                stdout, stderr = child.communicate(stdin.encode(), timeout_sec)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                stdout, stderr = child.communicate()
        seconds = time.monotonic() - began
        return Ended(exit_code=child.returncode, stdout=stdout.decode(), stderr=stderr.decode(), seconds=seconds)


def settle(engine: str, program: Path, url: str, folder: Path) -> Station:
    """Make a home and a working directory below `folder`, pointed at the double."""
    home, cwd = folder / "home", folder / "work"
    for place in (home / "tmp", cwd):
        place.mkdir(parents=True)
    aim = AIMS[engine](url)
    for path, content in aim.files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(content)
    return Station(engine=engine, program=program, home=home, cwd=cwd, env=private_env(engine, home) | dict(aim.env))
