"""`askback engines check`, and what `askback engines` shows of programs that speak ACP and are no engines."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from support.data_folder import World
from support.program import Ran, askback

AGENT = str(Path(__file__).resolve().parents[1] / "support" / "acp_agent.py")


def world_with(folder: Path, *quirks: str) -> World:
    command = json.dumps([sys.executable, "-I", "-S", AGENT, *(f"--{each}" for each in quirks)])
    world = World(folder)
    world.settings(f'[engines.stranger]\nprotocol = "acp"\ncommand = {command}')
    return world


def engines(world: World, *words: str, stdin: str = "") -> Ran:
    return askback(world, "engines", *words, "--config", str(world.folder / "askback.toml"), stdin=stdin)


@pytest.mark.contract("K-3")
def test_a_check_says_what_it_costs_and_its_finding_is_kept(tmp_path: Path) -> None:
    world = world_with(tmp_path, "load")
    refused = engines(world, "check", "stranger", stdin="n\n")
    assert "some thousand tokens" in refused.stderr
    assert refused.code != 0
    assert "sticky_process" in engines(world).stdout
    done = engines(world, "check", "stranger", "--yes")
    assert (done.code, done.stdout) == (
        0,
        "✔ stranger is resumable: a new process remembered the conversation by session/load\n",
    )
    listed = json.loads(engines(world, "--json").stdout)
    (shown,) = (each for each in listed if each["name"] == "stranger")
    assert (shown["version"], shown["interactive_profile"]["kind"]) == ("1.2.3", "resumable")


@pytest.mark.contract("K-3")
def test_a_check_that_fails_ends_with_1_and_says_why(tmp_path: Path) -> None:
    done = engines(world_with(tmp_path, "resume", "forgets"), "check", "stranger", "--json")
    found = json.loads(done.stdout)
    assert (done.code, found["resumes"]) == (1, False)
    assert "did not remember" in found["reason"]


def test_programs_on_the_path_that_speak_acp_are_listed_with_the_lines_that_add_them(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("goose", "unheard-of-acp", "pi-acp"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    world = World(tmp_path)
    world.settings()
    shown = askback(world, "engines", env={"PATH": f"{programs}:{os.environ['PATH']}"}).stdout
    assert '[engines.goose]\nprotocol = "acp"\ncommand = ["goose", "acp"]\n' in shown
    assert '[engines.unheard-of]\nprotocol = "acp"\ncommand = ["unheard-of-acp"]\n' in shown
    # It is an engine already.
    assert '["pi-acp"]' not in shown
