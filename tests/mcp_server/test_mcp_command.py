"""`askback mcp install` and `uninstall`: what they write, what they leave alone, and what is said without the extra."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import httpx
import pytest

from support.data_folder import World
from support.program import Terminal, askback
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
    ran = askback(world, "mcp", "install", client, "--json", "--yes")
    assert ran.code == 0, ran.stderr
    path = world.folder / "home" / FILES[client]
    assert ran.json["path"] == str(path)
    assert ran.json["written"] is True
    entry = read(path)[SECTIONS.get(client, "mcpServers")]["askback"]
    command = entry["command"] if isinstance(entry["command"], list) else [entry["command"], *entry["args"]]  # type: ignore[misc]
    assert command[-3:] == ["mcp", "--data-dir", str(world.data_dir)]
    assert Path(command[0]).is_absolute()
    before = path.read_bytes()
    again = askback(world, "mcp", "install", client, "--json")
    assert (again.json["written"], again.json["present"]) == (False, True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("client", NAMED)
def test_a_client_that_was_moved_by_its_variable_is_found(world: World, tmp_path: Path, client: str) -> None:
    variable, file = NAMED[client]
    ran = askback(world, "mcp", "install", client, "--json", "--yes", env={variable: str(tmp_path / "moved")})
    assert ran.code == 0, ran.stderr
    assert ran.json["path"] == str(tmp_path / "moved" / file)
    assert Path(ran.json["path"]).is_file()


def test_everything_else_in_the_file_stays_and_a_copy_is_kept(world: World) -> None:
    path = world.folder / "home/.claude.json"
    old = '{"theme": "dark", "mcpServers": {"other": {"command": "x"}}, "名": 1}'
    path.write_text(old)
    path.chmod(0o600)
    assert askback(world, "mcp", "install", "claude", "--yes").code == 0
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
    assert askback(world, "mcp", "install", "codex", "--yes").code == 0
    assert path.read_text().startswith(old)
    assert read(path)["mcp_servers"].keys() == {"other", "askback"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": "//", // comments\n}', "it has comments"),
        ('{"a": "//",}', "line 1"),
        ("\ufeff{}", "byte order mark"),
        ("[]", "is not an object"),
        ('{"mcpServers": []}', "is not an object"),
    ],
)
def test_a_file_that_cannot_be_read_is_not_touched(world: World, text: str, reason: str) -> None:
    path = world.folder / "home/.gemini/settings.json"
    path.parent.mkdir()
    path.write_text(text)
    printed = askback(world, "mcp", "install", "gemini", "--print")
    assert (printed.code, list(json.loads(printed.stdout)["mcpServers"])) == (0, ["askback"])
    ran = askback(world, "mcp", "install", "gemini", "--json", "--force")
    assert ran.code == 2
    assert ran.json["error"]["code"] == "CONFIG_UNREADABLE"
    assert reason in ran.json["error"]["message"]
    assert "by hand" in ran.json["error"]["message"]
    assert askback(world, "mcp", "uninstall", "gemini", "--yes").code == 2
    assert path.read_text() == text
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("planted", [".vscode", ".vscode/mcp.json", ".vscode/mcp.json.before-askback"])
def test_links_in_a_project_lead_nowhere(world: World, planted: str) -> None:
    """A cloned repository must not choose which files of the user are written."""
    theirs, project = world.folder / "home/theirs", world.folder / "here"
    (theirs / "mcp.json").parent.mkdir()
    for name in ("mcp.json", "profile"):
        (theirs / name).write_text('{"servers": {}}')
    link = project / planted
    link.parent.mkdir(parents=True, exist_ok=True)
    if planted.endswith("askback"):
        (project / ".vscode/mcp.json").write_text('{"servers": {}, "x": "planted"}')
    link.symlink_to(theirs if planted == ".vscode" else theirs / "profile")
    ran = askback(world, "mcp", "install", "vscode", "--yes")
    assert [each.read_text() for each in sorted(theirs.iterdir())] == ['{"servers": {}}'] * 2
    assert link.is_symlink()
    assert (ran.code, "is a link" in ran.stderr) == ((0, False) if planted.endswith("askback") else (2, True))


def test_print_writes_nothing_and_options_are_passed_on(world: World) -> None:
    there = ("--url", "http://127.0.0.1:1")
    data = ("--data-dir", str(world.data_dir))
    for words in (("mcp", *there, "install", "vscode"), ("mcp", "install", "vscode", *there)):
        ran = askback(world, *words, "--print")
        assert ran.code == 0, ran.stderr
        entry = json.loads(ran.stdout)["servers"]["askback"]
        assert entry["args"][-5:] == ["mcp", *data, *there]
    assert not (world.folder / "here/.vscode").exists()


def test_the_entry_has_what_the_environment_selects_but_no_token(world: World) -> None:
    env = {"ASKBACK_URL": "http://127.0.0.1:1", "ASKBACK_TOKEN": "hunter2hunter2hunter2hunter2"}
    ran = askback(world, "mcp", "install", "cursor", "--print", "--data-dir", "elsewhere", env=env)
    args = json.loads(ran.stdout)["mcpServers"]["askback"]["args"]
    assert args[-5:] == ["mcp", "--data-dir", str(world.folder / "here/elsewhere"), "--url", env["ASKBACK_URL"]]
    assert "hunter2" not in ran.stdout + ran.stderr
    ran = askback(world, "mcp", "--url", "https://anna:hunter2@127.0.0.1", "install", "cursor", "--yes")
    assert ran.code == 2
    assert "hunter2" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1"])
def test_a_url_of_no_server_is_refused_as_by_other_commands(world: World, url: str) -> None:
    ran = askback(world, "mcp", "--url", url, "install", "claude", "--yes", "--json")
    assert ran.code == 3
    assert ran.json["error"] == askback(world, "runs", "--url", url, "--json").json["error"]
    assert list((world.folder / "home").iterdir()) == []


# Consent.


@pytest.mark.parametrize("words", [("install", "claude"), ("install", "claude", "--json"), ("uninstall", "cursor")])
def test_without_a_terminal_nothing_is_changed_unless_the_user_agrees(world: World, words: tuple[str, ...]) -> None:
    path = world.folder / "home/.cursor/mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"askback": {}}}')
    ran = askback(world, "mcp", *words)
    assert ran.code == 2
    assert "pass --yes" in ran.stdout + ran.stderr
    assert path.read_text() == '{"mcpServers": {"askback": {}}}'
    assert not (world.folder / "home/.claude.json").exists()


def test_no_is_an_answer(world: World) -> None:
    with Terminal(world, "mcp", "install", "claude") as terminal:
        terminal.expect("Add it?")
        terminal.enter("n")
        ran = terminal.ended()
    assert ran.code == 1
    assert "nothing was changed" in ran.stderr
    assert "interrupted" not in ran.stderr
    assert list((world.folder / "home").iterdir()) == []


def test_on_a_terminal_it_is_said_who_starts_the_command(world: World) -> None:
    with Terminal(world, "mcp") as terminal:
        ran = terminal.ended()
    assert ran.code == 2
    assert "askback mcp install CLIENT" in ran.stderr


# Entries that are there.


STALE_TOML = """# mine
model = "m"

[mcp_servers.askback]
command = "/gone/askback"
args = ["mcp", "--token", "hunter2"]

[mcp_servers.askback.env]
ASKBACK_TOKEN = "hunter2"

# the other one
[mcp_servers.other]
command = "x"
"""
STALE_JSON = (
    '{"mcpServers": {"askback": {"command": "/gone/askback", "env": {"ASKBACK_TOKEN": "hunter2"}}, '
    '"other": {"command": "x"}}}'
)
STALE = {"codex": STALE_TOML, "claude": STALE_JSON}


@pytest.mark.parametrize("client", STALE)
def test_a_stale_entry_is_shown_and_replaced_by_force_alone(world: World, client: str) -> None:
    path = world.folder / "home" / FILES[client]
    path.parent.mkdir(exist_ok=True)
    path.write_text(STALE[client])
    copies = [path.with_name(f"{path.name}.before-askback{number}") for number in ("", ".2")]
    copies[0].write_text("older")
    ran = askback(world, "mcp", "install", client, "--yes")
    assert ran.code == 2
    assert "--force" in ran.stderr
    assert "/gone/askback" in ran.stderr
    assert "--data-dir" in ran.stderr
    assert "hunter2" not in ran.stderr
    assert path.read_text() == STALE[client]
    ran = askback(world, "mcp", "install", client, "--force", "--json")
    assert (ran.json["written"], ran.json["present"], ran.json["backup"]) == (True, True, str(copies[1]))
    assert [each.read_text() for each in copies] == ["older", STALE[client]]
    servers = read(path)[SECTIONS.get(client, "mcpServers")]
    assert servers["other"] == {"command": "x"}
    assert servers["askback"]["command"] != "/gone/askback"
    again = askback(world, "mcp", "install", client)
    assert (again.code, "nothing is to be done" in again.stderr) == (0, True)


def test_a_stale_entry_is_replaced_if_its_user_agrees(world: World) -> None:
    path = world.folder / "home/.claude.json"
    path.write_text(STALE_JSON)
    with Terminal(world, "mcp", "install", "claude") as terminal:
        assert "/gone/askback" in terminal.expect("Replace it?")
        terminal.enter("y")
        ran = terminal.ended()
    assert ran.code == 0
    assert read(path)["mcpServers"]["askback"]["command"] != "/gone/askback"


@pytest.mark.parametrize("client", STALE)
def test_uninstall_removes_the_entry_alone(world: World, client: str) -> None:
    path = world.folder / "home" / FILES[client]
    path.parent.mkdir(exist_ok=True)
    path.write_text(STALE[client])
    ran = askback(world, "mcp", "uninstall", client, "--yes", "--json")
    assert ran.code == 0, ran.stderr
    assert ran.json == {
        "client": client,
        "path": str(path),
        "removed": True,
        "backup": f"{path}.before-askback",
    }
    assert read(path)[SECTIONS.get(client, "mcpServers")] == {"other": {"command": "x"}}
    assert Path(ran.json["backup"]).read_text() == STALE[client]
    if client == "codex":
        assert path.read_text() == ('# mine\nmodel = "m"\n\n\n# the other one\n[mcp_servers.other]\ncommand = "x"\n')
    before = path.read_bytes()
    again = askback(world, "mcp", "uninstall", client, "--json")
    assert (again.code, again.json["removed"]) == (0, False)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ['mcp_servers.askback.command = "x"', '[mcp_servers]\naskback = {command = "x"}'])
def test_a_form_of_toml_that_is_not_edited_stays(world: World, text: str) -> None:
    path = world.folder / "home/.codex/config.toml"
    path.parent.mkdir()
    path.write_text(text)
    for words in (("install", "codex", "--force"), ("uninstall", "codex", "--yes")):
        ran = askback(world, "mcp", *words)
        assert (ran.code, "by hand" in ran.stderr) == (2, True)
    assert path.read_text() == text


def test_an_error_names_the_file_of_the_client(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = askback(world, "mcp", "install", "claude", "--yes", "--file", str(tmp_path / "file/config.json"), "--json")
    assert ran.code != 0
    assert f"{tmp_path}/file/config.json cannot be" in ran.json["error"]["message"]
    # The name of the temporary file is too long.
    path = tmp_path / ("a" * 250)
    ran = askback(world, "mcp", "install", "claude", "--yes", "--file", str(path), "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "CONFIG_UNWRITABLE")
    assert ran.json["error"]["message"].startswith(f"{path} cannot be written: ")


def without_extra(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked/sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    return {"PYTHONPATH": str(tmp_path / "blocked")}


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
