"""Help: quick, because it loads nothing that only the work needs; and there for every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from askback import __version__
from askback.cli.main import cli
from support.data_folder import World
from support.program import ASKBACK, DEADLINE_SEC, Terminal, askback, environment, here

HEAVY = {
    "apsw",
    "asyncio",
    "jsonschema_rs",
    "msgspec",
    "pydantic",
    "pydantic_settings",
    "rich",
    "sqlite3",
    "yaml",
    "askback.app",
    "askback.settings.model",
}
COMMANDS = (
    ["skills", "new"],
    ["runs"],
    ["show"],
    ["inbox"],
    ["demo"],
    ["run"],
    ["reply"],
    ["skills"],
    ["skills", "check"],
    ["skills", "install"],
    ["engines"],
    ["engines", "models"],
    ["engines", "check"],
    ["permissions", "explain"],
    ["doctor"],
    ["webhooks"],
    ["webhooks", "test"],
)


def loaded(world: World, *words: str) -> set[str]:
    """The modules that the program loads, as Python itself reports them."""
    command = [sys.executable, "-X", "importtime", *ASKBACK[1:], *words]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment(world),
        cwd=here(world),
        timeout=DEADLINE_SEC,
        check=True,
    )
    lines = [line for line in ran.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["run", "--help"]], ids=" ".join)
def test_help_loads_nothing_that_only_the_work_needs(tmp_path: Path, words: list[str]) -> None:
    modules = loaded(World(tmp_path), *words)
    assert {"click", "askback.cli.main"} <= modules
    assert modules & HEAVY == set()


def test_work_is_seen_to_load_them(tmp_path: Path) -> None:
    assert {"apsw", "asyncio", "pydantic"} <= loaded(World(tmp_path), "engines", "--json")


def test_every_command_is_in_the_list_and_has_help(tmp_path: Path) -> None:
    world = World(tmp_path)
    listed = askback(world, "--help")
    assert listed.code == 0
    for words in COMMANDS:
        assert f"\n  {words[0]} " in listed.stdout
        for flag in ("-h", "--help"):
            told = askback(world, *words, flag)
            assert (told.code, told.stderr) == (0, "")
            assert told.stdout.startswith(f"Usage: askback {' '.join(words)} ")
            for option in ("--config", "--data-dir", "--json"):
                assert option in told.stdout


def test_completion_shows_the_text_of_the_list() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.short_help


def test_the_version_is_told(tmp_path: Path) -> None:
    assert askback(World(tmp_path), "--version").stdout == f"askback, version {__version__}\n"


def test_commands_stand_in_groups_with_examples_and_fit_80_columns(tmp_path: Path) -> None:
    world = World(tmp_path)
    listed = askback(world, "--help").stdout
    groups = [line for line in listed.splitlines() if line.endswith(":") and not line.startswith(" ")]
    expected = ["Options:", "Start here:", "Runs:", "Skills and engines:", "Server:", "This machine:", "Examples:"]
    assert groups == expected
    for words in (
        [],
        *COMMANDS,
        ["completion"],
        ["tokens"],
        ["sessions"],
        ["trust"],
        ["watch"],
        ["cancel"],
        ["resume"],
        ["usage"],
        ["serve"],
        ["worker"],
        ["workers"],
    ):
        with Terminal(world, *words, "--help", columns=80, env={"NO_COLOR": "1"}) as terminal:
            shown = terminal.ended().stderr
        assert [line for line in shown.splitlines() if len(line) > 80] == [], words
        assert "\nExamples:\n  " in shown, words
        assert b"\x1b[" not in terminal.raw


def test_headings_of_help_are_bold_on_a_terminal_only(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, "run", "--help") as terminal:
        terminal.ended()
    assert b"\x1b[1mOptions:\x1b[0m" in terminal.raw
    assert "\x1b" not in askback(world, "run", "--help").stdout
