"""A data folder that others can reach, names that are no text, and JSON on a terminal."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from support.data_folder import FINISH, World
from support.program import askback
from support.server import Server

HOSTILE = "a\x9b31mred\x85\u202eevil\u2066x\u200b\ufeff\x7f"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def findings(world: World) -> dict[str, bool | None]:
    return {each["what"]: each["ok"] for each in askback(world, "doctor", "--json").json["findings"]}


@pytest.mark.parametrize(
    "words",
    [
        ("skills", "install", "tested"),
        ("engines",),
        ("doctor",),
        ("tokens", "create", "app", "--scope", "read"),
        ("run", "tested", "--engine", "scripted"),
    ],
    ids=lambda words: words[0],
)
def test_whichever_command_comes_first_the_folder_is_for_its_owner_alone(world: World, words: tuple[str, ...]) -> None:
    skill = world.skill([FINISH])
    outer = world.folder / "share"
    env = {"ASKBACK_DATA_DIR": str(outer / "askback")}
    askback(world, *(skill if word == "tested" else word for word in words), env=env)
    assert [mode(path) for path in (outer, outer / "askback")] == [0o700, 0o700]


@pytest.mark.parametrize("bits", [0o777, 0o775, 0o722])
def test_write_access_of_others_is_withdrawn_and_told(world: World, bits: int) -> None:
    world.data_dir.mkdir()
    world.data_dir.chmod(bits)
    assert findings(world)["data folder"] is False
    assert mode(world.data_dir) & 0o022 == 0
    world.data_dir.chmod(bits)
    assert "other users" in askback(world, "engines").stderr


@pytest.mark.parametrize("bits", [0o1777, 0o777])
def test_a_folder_that_is_shared_with_others_is_refused_and_left_alone(world: World, bits: int) -> None:
    """As when somebody names /tmp."""
    world.data_dir.mkdir()
    (world.data_dir / "of somebody else").touch()
    world.data_dir.chmod(bits)
    done = askback(world, "engines", "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "STORE_UNUSABLE")
    assert "chmod 700" in done.json["error"]["message"]
    assert mode(world.data_dir) == bits
    assert [path.name for path in world.data_dir.iterdir()] == ["of somebody else"]


def test_a_folder_that_others_can_read_is_told(world: World) -> None:
    world.data_dir.mkdir(mode=0o755)
    # For a script that reads its output, every other command stays silent about it.
    assert askback(world, "engines", "--json").stderr == ""
    assert findings(world)["data folder"] is None
    assert mode(world.data_dir / "askback.db") == 0o600


@pytest.mark.parametrize("command", ["doctor", "engines", "runs", "demo", "serve", "tokens"])
def test_a_data_folder_whose_name_is_no_text_is_refused_in_words(world: World, command: str) -> None:
    folder = os.fsencode(world.folder) + b"/d\xff\xfe"
    done = askback(world, command, "--data-dir", folder)
    assert (done.code, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "UTF-8" in done.stderr


def test_a_settings_file_whose_name_is_no_text_works(world: World) -> None:
    path = os.fsencode(world.folder) + b"/c\xff.toml"
    Path(os.fsdecode(path)).write_text("slots = 7\n")
    done = askback(world, "doctor", "--json", "--config", path)
    assert "7 engines at a time" in [each["message"] for each in done.json["findings"]]


def test_json_cannot_drive_a_terminal(world: World) -> None:
    ask = {"ask": {"interaction_id": "colour", "prompt": HOSTILE, "options": [HOSTILE]}}
    world.skill([ask], [FINISH])
    with Server(world) as server, server.client() as client:
        run = client.create_run("tested", engine="scripted", mode="interactive")
        client.wait(run.id, timeout_sec=60)
        for words in (("show", run.id), ("inbox",), ("runs",)):
            done = askback(world, *words, "--json")
            assert not set(done.stdout) & set("\x7f\x85\x9b\u200b\u202e\u2066\ufeff"), words
            assert done.code == 0
        assert HOSTILE in json.dumps(askback(world, "show", run.id, "--json").json, ensure_ascii=False).replace(
            "\\u007f", "\x7f"
        )
