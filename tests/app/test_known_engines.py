"""Engines by settings: what makes one, what changes a preset, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.app.known_engines import known_engines
from askback.core.errors import Invalid
from askback.engines.acp import AcpEngine, preset_of
from askback.engines.registry import Engines
from support.data_folder import World

STRANGER = '[engines.stranger]\nprotocol = "acp"\ncommand = ["stranger", "--acp"]\n'


def engines_of(folder: Path, config: str) -> Engines:
    return known_engines(World(folder).settings(config))


def acp(engines: Engines, name: str) -> AcpEngine:
    engine = engines[name]
    assert isinstance(engine, AcpEngine)
    return engine


@pytest.mark.contract("K-1")
def test_a_section_makes_an_engine_beside_the_others(tmp_path: Path) -> None:
    lines = 'resume = "load"\nmode = "free"\nconfig_names = [".stranger"]\nsign_in_files = [".stranger/key"]\ncaches = ["x"]\n'
    found = engines_of(tmp_path, STRANGER + lines)
    assert {"codex", "copilot", "stranger"} <= set(found)
    assert list(found) == sorted(found)
    engine = acp(found, "stranger")
    assert (engine.default_command, engine.preset.resume, engine.preset.mode) == (("stranger", "--acp"), "load", "free")
    assert (engine.credentials, engine.all_caches[-1]) == ((".stranger/key",), "x")
    assert ".stranger" in found.config_names


@pytest.mark.contract("K-1")
def test_settings_change_a_part_of_a_preset(tmp_path: Path) -> None:
    changed = acp(engines_of(tmp_path, '[engines.kimi]\nmode = "auto"\nresume = "none"\n'), "kimi").preset
    assert (changed.mode, changed.resume, changed.command) == ("auto", "none", ("kimi", "acp"))
    assert acp(engines_of(tmp_path, ""), "kimi").preset.mode == "yolo"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ('[engines.stranger]\nprotocol = "acp"\n', "engines.stranger.command: name the program"),
        ('[engines."A b"]\nprotocol = "acp"\ncommand = ["a"]\n', "the name of an engine"),
        ('[engines.codex]\nprotocol = "acp"\n', "codex is not driven by a preset; leave out protocol"),
        ('[engines.codex]\nmode = "x"\nresume = "load"\n', "leave out mode, resume"),
        (STRANGER + 'config_names = ["a/b"]\n', "config_names: 'a/b' is not the name of a single file or folder"),
    ],
)
def test_what_cannot_be_an_engine_is_refused_with_its_key(tmp_path: Path, config: str, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        engines_of(tmp_path, config)
    assert [each for each in refused.value.problems if problem in each] != []


def test_a_preset_with_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"a preset has no colour; it has: .*notices"):
        preset_of({"command": ["a"], "colour": "red"})
    with pytest.raises(ValueError, match="needs the command"):
        preset_of({"title": "A"})
