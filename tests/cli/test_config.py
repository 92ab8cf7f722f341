"""`askback config` says what is in effect and why, and shows no secret; the log follows its settings."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from support.data_folder import World
from support.program import askback, here, until
from support.server import Server

SETTINGS = """
slots = 3
[server]
port = 9000
token = "n0t-to-be-shown-N0T-TO-BE-SHOWN"
[engines.codex]
model = "gpt-9"
extra_args = ["--verbose", "--api-key=n0t-to-be-shown", "--auth-token", "n0t-to-be-shown"]
env = { OPENAI_API_KEY = "n0t-to-be-shown" }
[[webhooks]]
url = "https://hooks.example.org/services/n0t-to-be-shown"
secret = "whsec_bjB0LXRvLWJlLXNob3duLW4wdC10by1iZS1zaG93bg=="
[notifications.email]
password = "n0t-to-be-shown"
"""


def written(world: World, text: str = SETTINGS) -> str:
    path = here(world) / "mine.toml"
    path.write_text(text)
    return str(path)


def test_every_value_has_its_source(tmp_path: Path) -> None:
    world = World(tmp_path)
    file = written(world)
    env = {"ASKBACK_SERVER__PORT": "9001", "ASKBACK_LIMITS": '{"line": 4}'}
    data_dir = str(tmp_path / "elsewhere")
    shown = askback(world, "config", "--config", file, "--data-dir", data_dir, "--json", env=env).json
    assert shown["files"] == [file]
    found = {each["key"]: (each["value"], each["source"], each["name"]) for each in shown["settings"]}
    assert found["slots"] == (3, "file", file)
    assert found["server.port"] == (9001, "environment", "ASKBACK_SERVER__PORT")
    assert found["limits.line"] == (4.0, "environment", "ASKBACK_LIMITS")
    assert found["limits.output"] == (256.0, "default", None)
    assert found["data_dir"] == (data_dir, "command_line", None)
    assert found["engines.codex.model"] == ("gpt-9", "file", file)
    assert found["webhooks.0.kind"] == ("standard", "file", file)


@pytest.mark.parametrize("form", [["--json"], []])
def test_no_secret_is_shown(tmp_path: Path, form: list[str]) -> None:
    world = World(tmp_path)
    ran = askback(world, "config", "--config", written(world), *form)
    assert ran.code == 0
    assert "n0t-to-be-shown" not in ran.stdout.lower()
    assert "whsec_" not in ran.stdout
    assert ran.stdout.count("[redacted]") == 6
    assert "https://hooks.example.org/" in ran.stdout
    assert "--verbose" in ran.stdout


def test_a_key_narrows_what_is_shown(tmp_path: Path) -> None:
    world = World(tmp_path)
    file = written(world)
    ran = askback(world, "config", "engines.codex.model", "--config", file)
    assert (ran.code, ran.stdout) == (0, f'engines.codex.model  "gpt-9"  · {file}\n')
    shown = askback(world, "config", "log", "--json").json["settings"]
    assert [(each["key"], each["value"]) for each in shown] == [("log.level", "info"), ("log.format", "text")]
    wrong = askback(world, "config", "server.prot")
    assert wrong.code == 2
    assert "did you mean 'server.port'?" in wrong.stderr


def test_an_engine_without_settings_has_the_defaults(tmp_path: Path) -> None:
    world = World(tmp_path)
    shown = askback(world, "config", "engines.codex", "--json").json["settings"]
    values = {each["key"]: each["value"] for each in shown}
    assert (values["engines.codex.command"], values["engines.codex.renew_sign_in"]) == (None, True)
    assert {each["source"] for each in shown} == {"default"}
    wrong = askback(world, "config", "engines.nope")
    assert wrong.code == 2
    assert "there is no engine 'nope'; known: claude, codex, " in wrong.stderr
    assert "did you mean 'engines.codex.model'?" in askback(world, "config", "engines.codex.modell").stderr


def test_sizes_have_their_unit(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert askback(world, "config", "limits.body").stdout == "limits.body  32 MB  · default\n"
    env = {"ASKBACK_ENGINES__CODEX__LIMITS__DISK": "0.5"}
    shown = askback(world, "config", "engines.codex.limits.disk", env=env).stdout
    assert shown.startswith("engines.codex.limits.disk  0.5 MB  · ")
    assert askback(world, "config", "quotas.upload").stdout == "quotas.upload  4096 MB  · default\n"


def test_a_variable_that_sets_nothing_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    message = "ASKBACK_SLOT is not a setting, and is ignored; did you mean ASKBACK_SLOTS?"
    told = askback(world, "doctor", "--json", env={"ASKBACK_SLOT": "3"}).json
    assert [each["message"] for each in told["findings"] if each["what"] == "environment"] == [message]
    with Server(world, env={"ASKBACK_SLOT": "3"}) as server:
        server.stop()
        assert message in server.stderr


def test_a_log_in_json_has_one_object_per_line(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Server(world, env={"ASKBACK_LOG__FORMAT": "json"}) as server:
        refused = httpx.get(f"{server.url}/v1/runs", headers={"authorization": "Bearer wrong"}, timeout=60)
        assert refused.status_code == 401
        until(lambda: server.stderr.endswith("\n"))
        server.stop()
        records = [json.loads(line) for line in server.stderr.splitlines()]
    assert records
    assert all(set(record) >= {"time", "level", "logger", "message"} for record in records)


def test_a_log_contains_nothing_below_its_level(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Server(world, env={"ASKBACK_LOG__LEVEL": "error"}) as server:
        server.stop()
        assert server.stderr == ""
    ran = askback(world, "serve", env={"ASKBACK_LOG__LEVEL": "loud"})
    assert ran.code == 2
    assert "log.level: must be 'debug', 'info', 'warning' or 'error'" in ran.stderr
