"""The MCP clients that Askback can be added to, and their configuration files.

The entry for Askback is added, replaced or removed. Everything else in a file stays.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askback.cli.exit_codes import FAILED, CommandFailed

NAME = "askback"
_TOOL_TIMEOUT_SEC = 60
"""Every call returns within 45 s."""
_START_TIMEOUT_SEC = 60
"""A start takes a second or two, and longer on a busy machine."""
_TOKEN = "ASKBACK_TOKEN"
_VARIABLES = (_TOKEN, "ASKBACK_URL", "ASKBACK_DATA_DIR", "XDG_DATA_HOME")
"""What we read of the environment, for a client that passes on only what is named. The values stay in the environment."""
_BACKUP = ".before-askback"
_BOM = "\ufeff"
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|(//|/\*)', re.DOTALL)
_HIDDEN = "…"
_PRIVATE = frozenset({"env", "environment", "headers", "http_headers"})
"""Parts of an entry that may hold tokens: their values are never shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClient:
    """A client with a configuration file. `section` is the key of its MCP servers."""

    path: Callable[[], Path]
    section: str
    entry: Callable[[Sequence[str]], dict[str, Any]]
    toml: bool = False
    in_project: bool = False
    """Its file is in the current folder, which somebody else may have written."""


def _plain(command: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:]), **more}


def _in(variable: str, fallback: str, name: str) -> Callable[[], Path]:
    """A file in the folder that the variable of a client names, or in its usual one."""

    def find() -> Path:
        # Loads a lot, and the names of the clients are part of every help.
        from askback.settings.environment import named_folder

        return named_folder(variable, fallback) / name

    return find


def _claude_desktop() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/Claude/claude_desktop_config.json"
    return _in("XDG_CONFIG_HOME", ".config", "Claude/claude_desktop_config.json")()


CLIENTS: Mapping[str, McpClient] = {
    "claude": McpClient(
        path=_in("CLAUDE_CONFIG_DIR", "", ".claude.json"),
        section="mcpServers",
        # Otherwise the tools are behind a search.
        entry=lambda command: {"type": "stdio", **_plain(command, alwaysLoad=True)},
    ),
    "claude-desktop": McpClient(path=_claude_desktop, section="mcpServers", entry=_plain),
    "codex": McpClient(
        path=_in("CODEX_HOME", ".codex", "config.toml"),
        section="mcp_servers",
        entry=lambda command: _plain(
            command,
            env_vars=list(_VARIABLES),
            startup_timeout_sec=_START_TIMEOUT_SEC,
            tool_timeout_sec=_TOOL_TIMEOUT_SEC,
        ),
        toml=True,
    ),
    "copilot": McpClient(
        path=lambda: Path.home() / ".copilot/mcp-config.json",
        section="mcpServers",
        entry=lambda command: {"type": "local", **_plain(command, tools=["*"])},
    ),
    "cursor": McpClient(path=lambda: Path.home() / ".cursor/mcp.json", section="mcpServers", entry=_plain),
    "gemini": McpClient(
        path=_in("GEMINI_CLI_HOME", "", ".gemini/settings.json"),
        section="mcpServers",
        # It does not pass tokens on, unless they are named. One that is not set becomes empty.
        entry=lambda command: _plain(command, env={_TOKEN: f"${_TOKEN}"}),
    ),
    "kimi": McpClient(
        path=_in("KIMI_CODE_HOME", ".kimi-code", "mcp.json"),
        section="mcpServers",
        entry=lambda command: _plain(
            command, startupTimeoutMs=_START_TIMEOUT_SEC * 1000, toolTimeoutMs=_TOOL_TIMEOUT_SEC * 1000
        ),
    ),
    "opencode": McpClient(
        path=_in("XDG_CONFIG_HOME", ".config", "opencode/opencode.json"),
        section="mcp",
        entry=lambda command: {
            "type": "local",
            "command": list(command),
            "enabled": True,
            "timeout": _TOOL_TIMEOUT_SEC * 1000,
        },
    ),
    "qwen": McpClient(
        path=lambda: Path.home() / ".qwen/settings.json",
        section="mcpServers",
        entry=lambda command: _plain(command, alwaysLoadTools=True),
    ),
    "vscode": McpClient(
        path=lambda: Path.cwd() / ".vscode/mcp.json",
        section="servers",
        entry=lambda command: {"type": "stdio", **_plain(command)},
        in_project=True,
    ),
}


def command_line(further: Sequence[str] = ()) -> list[str]:
    """How a client starts us. With a whole path, because a client may have another `PATH`."""
    program = Path(sys.argv[0]).absolute()
    if program.name == NAME and os.access(program, os.X_OK):
        return [str(program), "mcp", *further]
    return [sys.executable, "-m", NAME, "mcp", *further]


def entry_text(client: McpClient, entry: Mapping[str, Any]) -> str:
    """An entry alone, as it is in the file of the client."""
    if client.toml:
        # A string, number or list of strings in JSON is one in TOML, too.
        lines = (f"{key} = {json.dumps(value, ensure_ascii=False, default=str)}" for key, value in entry.items())
        return "\n".join([f"[{client.section}.{NAME}]", *lines])
    return json.dumps({client.section: {NAME: entry}}, indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    client: McpClient
    path: Path
    text: str
    """Empty if there is no file."""
    document: Mapping[str, Any]
    by_hand: str
    """What to do by hand, if the file cannot be changed."""

    @classmethod
    def read(cls, client: McpClient, path: Path, by_hand: str) -> ConfigFile:
        """Raises `CommandFailed` if the file cannot be changed safely. In a project, links may lead to any file of the user."""
        if client.in_project and (link := next((each for each in (path, path.parent) if each.is_symlink()), None)):
            raise _unchangeable(path, f"{link} is a link, which another author of this folder may have made", by_hand)
        text = _read(path)
        if text.startswith(_BOM):
            raise _unchangeable(path, "it starts with a byte order mark (BOM)", by_hand)
        try:
            document = tomllib.loads(text) if client.toml else json.loads(text) if text.strip() else {}
        except (ValueError, RecursionError) as error:
            commented = not client.toml and any(found[1] for found in _STRING_OR_COMMENT.finditer(text))
            reason = "it has comments, which would be lost" if commented else str(error)
            raise _unchangeable(path, reason, by_hand) from None
        if not isinstance(document, dict) or not isinstance(document.get(client.section, {}), dict):
            raise _unchangeable(path, f"{client.section} is not an object", by_hand)
        return cls(client=client, path=path, text=text, document=document, by_hand=by_hand)

    @property
    def existing(self) -> Any | None:
        return self._servers.get(NAME)

    @property
    def existing_text(self) -> str:
        """The entry that is there now, for people: without what may be secret."""
        entry = self.existing
        if not isinstance(entry, dict):
            return json.dumps(entry)
        return entry_text(self.client, {name: _shown_part(name, value) for name, value in entry.items()})

    def has(self, entry: Mapping[str, Any]) -> bool:
        """Whether the entry is there. What its user has added to it does not count."""
        there = self.existing
        return isinstance(there, dict) and {**there, **entry} == there

    def with_entry(self, entry: Mapping[str, Any]) -> str:
        """The file with this entry instead of the one that is there."""
        wanted = {**self.document, self.client.section: {**self._servers, NAME: entry}}
        if not self.client.toml:
            return _json_text(wanted)
        rest = self.text if self.existing is None else _without_tables(self.text, [self.client.section, NAME])
        text = f"{rest.rstrip()}\n\n{entry_text(self.client, entry)}\n".lstrip("\n")
        return self._checked(text, wanted)

    def without_entry(self) -> str:
        servers = {name: entry for name, entry in self._servers.items() if name != NAME}
        wanted = {**self.document, self.client.section: servers}
        if not self.client.toml:
            return _json_text(wanted)
        rest = _without_tables(self.text, [self.client.section, NAME]).rstrip()
        return self._checked(f"{rest}\n" if rest else "", wanted)

    def write(self, text: str) -> Path | None:
        """Replace the file atomically; a link stays a link. Returns the backup of the old file, if there was one."""
        try:
            return _replace(self.path.resolve(), text)
        except OSError as error:
            message = f"{self.path} cannot be written: {error.strerror or error}"
            raise CommandFailed("CONFIG_UNWRITABLE", message, exit_code=FAILED) from None

    @property
    def _servers(self) -> Mapping[str, Any]:
        servers: Mapping[str, Any] = self.document.get(self.client.section, {})
        return servers

    def _checked(self, text: str, wanted: Mapping[str, Any]) -> str:
        """The text, if it means what is wanted. TOML has forms of tables that we do not edit."""
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _unchangeable(self.path, str(error), self.by_hand) from None
        section = self.client.section
        if {section: {}, **found} != {section: {}, **wanted}:
            raise _unchangeable(self.path, f"{section}.{NAME} is not a table with a header", self.by_hand)
        return text


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise _unchangeable(path, "it is not UTF-8") from None
    except OSError as error:
        raise _unchangeable(path, error.strerror or str(error)) from None


def _replace(target: Path, text: str) -> Path | None:
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
        backup = None
        if target.exists():
            backup = _copy_old(target)
            shutil.copymode(target, name)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return backup


def _copy_old(target: Path) -> Path:
    """Back the file up. Earlier backups stay: further ones get a number. Follows no link."""
    content, mode = target.read_bytes(), stat.S_IMODE(target.stat().st_mode)
    for number in itertools.count(1):
        copy = target.with_name(target.name + _BACKUP + (f".{number}" if number > 1 else ""))
        with suppress(FileExistsError):
            descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(content)
            return copy
    raise AssertionError


def _json_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _shown_part(name: str, value: Any) -> Any:
    if name in _PRIVATE and isinstance(value, dict):
        return dict.fromkeys(value, _HIDDEN)
    if isinstance(value, list):
        return [
            _HIDDEN if before == "--token" else "--token=" + _HIDDEN if str(word).startswith("--token=") else word
            for before, word in zip([None, *value], value, strict=False)
        ]
    return value


def _unchangeable(path: Path, reason: str, by_hand: str = "") -> CommandFailed:
    advice = f"; {by_hand}" if by_hand else ""
    return CommandFailed("CONFIG_UNREADABLE", f"{path} cannot be changed: {reason}{advice}")


def _without_tables(text: str, key: list[str]) -> str:
    """The text without the table of this key, and the tables in it."""
    return "".join(line for table, lines in _tables(text) for line in (_rest(lines) if table[:2] == key else lines))


def _tables(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The key and the lines of each table. What is before the first one has an empty key."""
    table: list[str] = []
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if key := _header(line):
            yield table, lines
            table, lines = key, []
        lines.append(line)
    yield table, lines


def _header(line: str) -> list[str]:
    """The key in the header of a table, or nothing."""
    if not line.lstrip().startswith("["):
        return []
    try:
        found: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return []
    key: list[str] = []
    while isinstance(found, dict) and found:
        ((name, found),) = found.items()
        key.append(name)
        found = found[0] if isinstance(found, list) else found
    return key


def _rest(lines: list[str]) -> list[str]:
    """What stays of a table that is removed: comments at its end, which belong to the next one."""
    end = len(lines)
    while end > 0 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return lines[end:] if any(line.strip() for line in lines[end:]) else []
