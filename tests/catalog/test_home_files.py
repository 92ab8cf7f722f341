"""The files of an engine in the home of a run: its settings go over those that the user has configured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from askback.catalog.probes import home_files
from askback.engines.base import Launch

NAME = ".tool/settings.json"
SETTINGS = {NAME: {"general": {"retention": {"enabled": False}}, "servers": {"askback": {"command": "ask"}}}}
GIVEN = """{
  // What the user wants.
  "general": {"retention": {"enabled": true, "days": 3}, "url": "http://127.0.0.1/*"}, /* and
  more */ "servers": {"mine": {"command": "c:\\\\tool \\"//\\""}}
}"""


def written(home: Path | None) -> dict[str, bytes]:
    return home_files(Launch(argv=("tool",), files={"other": b"1"}, settings=SETTINGS), home)


def configured(folder: Path, content: bytes) -> Path:
    (folder / ".tool").mkdir()
    (folder / NAME).write_bytes(content)
    return folder


def test_settings_have_priority_and_leave_the_others_of_the_user(tmp_path: Path) -> None:
    files = written(configured(tmp_path, GIVEN.encode()))
    assert files["other"] == b"1"
    assert json.loads(files[NAME]) == {
        "general": {"retention": {"enabled": False, "days": 3}, "url": "http://127.0.0.1/*"},
        "servers": {"mine": {"command": 'c:\\tool "//"'}, "askback": {"command": "ask"}},
    }


def test_without_a_file_of_the_user_they_are_all(tmp_path: Path) -> None:
    assert json.loads(written(None)[NAME]) == json.loads(written(tmp_path)[NAME]) == SETTINGS[NAME]


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_file_that_cannot_be_read_is_left_to_the_engine(tmp_path: Path, content: bytes) -> None:
    assert written(configured(tmp_path, content)) == {"other": b"1"}
