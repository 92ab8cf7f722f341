"""The troubleshooting page names only what exists, and every code that a user can meet."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from askback.cli.main import cli
from askback.core.errors import ErrorCode, RefusalCode, WarningCode
from askback.core.runs import RunOptions
from askback.http.problems import RequestCode, status_of
from support.data_folder import ASK, FINISH, World
from support.guide import GUIDES, ROOT, Reader, blocks
from support.program import Started, askback, until

PAGE = "troubleshooting.md"
TEXT = (GUIDES / PAGE).read_text()
CODES = {str(code) for codes in (ErrorCode, WarningCode, RefusalCode, RequestCode) for code in codes}
SPANS = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", TEXT, flags=re.DOTALL | re.MULTILINE))


def commands() -> list[str]:
    typed = [line.partition("#")[0].strip() for block in blocks(PAGE) for line in block.text.splitlines()]
    return sorted({line for line in [*typed, *SPANS] if line.startswith("askback ")})


def test_every_code_has_its_place_and_no_other_is_named() -> None:
    named = {span for span in SPANS if re.fullmatch(r"[A-Z]+(?:_[A-Z]+)+|UNAUTHORIZED|FORBIDDEN", span)}
    variables = {span for span in named if span.startswith("ASKBACK_")}
    assert (CODES - named, named - variables - CODES) == (set(), set()), f"add the missing codes to docs/guides/{PAGE}"


def test_every_refusal_is_listed_with_its_status() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| (`[A-Z_`, ]+`) \|", TEXT, re.MULTILINE)
    assert len(rows) > 10
    for statuses, codes in rows:
        known = [
            RefusalCode(code) if code in set(RefusalCode) else RequestCode(code)
            for code in re.findall(r"[A-Z_]+", codes)
        ]
        assert {status_of(code) for code in known} == {int(status) for status in statuses.split(", ")}


@pytest.mark.parametrize("line", commands())
def test_every_command_and_option_exists(line: str) -> None:
    command: click.Command = cli
    words = shlex.split(line)[1:]
    context = click.Context(command)
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            break
        command = found
        words.pop(0)
    assert command is not cli or words[0].startswith("-"), f"there is no such command: {line}"
    known = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]} | {"--help"}
    assert {word for word in words if word.startswith("-")} <= known


def test_every_setting_and_option_of_a_run_exists() -> None:
    reference = (ROOT / "docs/reference/settings.md").read_text()
    keys = set(re.findall(r"^\| `([\w.\[\]]+)`", reference, re.MULTILINE))
    sections = {key.partition(".")[0] for key in keys if "." in key}
    named = {
        span for span in SPANS if re.fullmatch(r"[a-z_]+(?:\.[A-Za-z_]+)+", span) and span.partition(".")[0] in sections
    }
    assert len(named) >= 10
    tables = {key.rpartition(".")[0].removesuffix("[]") for key in keys}
    assert named - keys - tables == set()
    options = {span for span in SPANS if span in RunOptions.__dataclass_fields__}
    assert options == {"turn_timeout_sec", "session_timeout_sec", "repair_attempts", "interactive_profile", "effort"}


@pytest.mark.long
def test_the_commands_work_on_a_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    run = askback(world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--json").json
    reader = Reader(PAGE, world)
    first = reader.type(reader.next().replace("askback doctor  ", "askback doctor || true  "))
    assert run["id"] in first
    shown = reader.next().replace("RUN ", run["id"]).splitlines()
    assert "Which colour?" in reader.type(shown[0])
    assert shown[1].partition("#")[0].split() == ["askback", "watch", run["id"]]
    with Started(world, "watch", run["id"]) as watching:
        until(lambda: "Which colour?" in watching.stdout + watching.stderr)
    reader.finish()
    turns = world.data_dir / "runs" / run["id"] / "turns"
    assert {".prompt", ".stdout"} <= {path.suffix for path in turns.iterdir()}
