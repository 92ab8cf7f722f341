"""`askback mcp install`: what it writes, what it leaves alone, and what is said without the extra."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import httpx
import pytest

from support.data_folder import World
from support.program import askback
from support.server import Server

FILES = {
    "claude": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "copilot": ".copilot/mcp-config.json",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "kimi": ".kimi-code/mcp.json",
    "opencode": ".config/opencode/opencode.json",
    "qwen": ".qwen/settings.json",
}
NAMED = {
    "claude": ("CLAUDE_CONFIG_DIR", ".claude.json"),
    "codex": ("CODEX_HOME", "config.toml"),
    "gemini": ("GEMINI_CLI_HOME", ".gemini/settings.json"),
    "kimi": ("KIMI_CODE_HOME", "mcp.json"),
    "opencode": ("XDG_CONFIG_HOME", "opencode/opencode.json"),
}
"""Variables that move the folder of a client, and the file in it."""
SECTIONS = {"codex": "mcp_servers", "opencode": "mcp", "vscode": "servers"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "home").mkdir()
    return World(tmp_path)


def read(path: Path) -> dict[str, dict[str, dict[str, object]]]:
    text = path.read_text()
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


@pytest.mark.parametrize("client", FILES)
def test_the_file_of_each_client_gets_one_entry(world: World, client: str) -> None:
    ran = askback(world, "mcp", "install", client, "--json")
    assert ran.code == 0, ran.stderr
    path = world.folder / "home" / FILES[client]
    assert ran.json["path"] == str(path)
    assert ran.json["written"] is True
    entry = read(path)[SECTIONS.get(client, "mcpServers")]["askback"]
    command = entry["command"] if isinstance(entry["command"], list) else [entry["command"], *entry["args"]]  # type: ignore[misc]
    assert command[-1] == "mcp"
    assert Path(command[0]).is_absolute()
    before = path.read_bytes()
    again = askback(world, "mcp", "install", client, "--json")
    assert (again.json["written"], again.json["present"]) == (False, True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("client", NAMED)
def test_a_client_that_was_moved_by_its_variable_is_found(world: World, tmp_path: Path, client: str) -> None:
    variable, file = NAMED[client]
    ran = askback(world, "mcp", "install", client, "--json", env={variable: str(tmp_path / "moved")})
    assert ran.code == 0, ran.stderr
    assert ran.json["path"] == str(tmp_path / "moved" / file)
    assert Path(ran.json["path"]).is_file()


def test_everything_else_in_the_file_stays_and_a_copy_is_kept(world: World) -> None:
    path = world.folder / "home/.claude.json"
    old = '{"theme": "dark", "mcpServers": {"other": {"command": "x"}}, "名": 1}'
    path.write_text(old)
    path.chmod(0o600)
    assert askback(world, "mcp", "install", "claude").code == 0
    document = json.loads(path.read_text())
    assert document.pop("mcpServers").keys() == {"other", "askback"}
    assert document == {"theme": "dark", "名": 1}
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_name(".claude.json.before-askback").read_text() == old


def test_a_toml_file_keeps_its_comments(world: World) -> None:
    path = world.folder / "home/.codex/config.toml"
    path.parent.mkdir()
    old = '# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "x"'
    path.write_text(old)
    assert askback(world, "mcp", "install", "codex").code == 0
    assert path.read_text().startswith(old)
    assert read(path)["mcp_servers"].keys() == {"other", "askback"}


@pytest.mark.parametrize("text", ["{ // comments\n}", "[]", '{"mcpServers": []}'])
def test_a_file_that_cannot_be_read_is_not_touched(world: World, text: str) -> None:
    path = world.folder / "home/.gemini/settings.json"
    path.parent.mkdir()
    path.write_text(text)
    ran = askback(world, "mcp", "install", "gemini", "--json")
    assert ran.code == 2
    assert ran.json["error"]["code"] == "CONFIG_UNREADABLE"
    assert "by hand" in ran.json["error"]["message"]
    assert path.read_text() == text
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_print_writes_nothing_and_options_are_passed_on(world: World) -> None:
    ran = askback(world, "mcp", "--url", "http://127.0.0.1:1", "install", "vscode", "--print")
    assert ran.code == 0, ran.stderr
    entry = json.loads(ran.stdout)["servers"]["askback"]
    assert entry["args"][-3:] == ["mcp", "--url", "http://127.0.0.1:1"]
    assert not (world.folder / "here/.vscode").exists()


def without_extra(tmp_path: Path) -> dict[str, str]:
    package = tmp_path / "blocked/mcp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not installed')")
    return {"PYTHONPATH": str(package.parent)}


@pytest.mark.parametrize("option", [(), ("--print",)])
def test_without_the_extra_nothing_is_installed(world: World, tmp_path: Path, option: tuple[str, ...]) -> None:
    env = without_extra(tmp_path)
    ran = askback(world, "mcp", "install", "claude", *option, "--json", env=env, warm=False)
    assert (ran.code, ran.json["error"]["code"]) == (1, "MCP_MISSING")
    assert "pip install 'askback[mcp]'" in ran.json["error"]["message"]
    assert list((world.folder / "home").iterdir()) == []


@pytest.mark.parametrize("words", [("mcp",), ("acp",)])
def test_a_protocol_on_stdout_cannot_be_json_for_scripts(world: World, words: tuple[str, ...]) -> None:
    ran = askback(world, *words, "--json")
    assert ran.code == 2
    assert "stdout carries" in ran.json["error"]["message"]
    assert words[0].upper() in ran.json["error"]["message"]


def test_without_the_extra_it_is_said_what_to_install(world: World, tmp_path: Path) -> None:
    env = without_extra(tmp_path)
    ran = askback(world, "mcp", env=env, warm=False)
    assert ran.code == 1
    assert "askback[mcp]" in ran.stderr
    with Server(world, env=env) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        told = httpx.post(f"{server.url}/mcp", headers=headers, json={}, timeout=120)
        assert told.status_code == 404
        assert "askback[mcp]" in told.json()["detail"]
        assert httpx.get(f"{server.url}/v1/runs", headers=headers, timeout=120).status_code == 200
