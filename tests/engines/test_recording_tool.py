"""`tools/record.py`: a recording from a kept turn or a started program, without what is only true on one machine."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from recordings import EXPECTED, Recording, differences, read

from askback.engines import registry
from support.data_folder import ASK, FINISH, World, over, run_async, submit, waiting

TOOL = Path(__file__).resolve().parents[2] / "tools/record.py"
ID = "session-8d8d71fe-fc2c-4de9-8878-9f1f3ac19168"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("record", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(*args: str, prompt: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *args]
    return subprocess.run(command, input=prompt, capture_output=True, text=True, timeout=60, check=False)


def expected(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / EXPECTED).read_text())
    return told


def test_a_kept_turn_becomes_a_recording(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill, kept = world.skill([ASK], [FINISH]), []

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "red")
            kept.append(await over(app, run.id))

    run_async(main)
    (run,) = kept
    assert run.handle is not None
    arguments = ("run", run.id, "--data-dir", str(world.data_dir), "--turn", "2", "--case", "again")
    made = record(*arguments, "--into", str(tmp_path / "made"))
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "made" / "again"
    assert json.loads((folder / "turn.json").read_text())["handle"] == run.handle.handle_value
    assert expected(folder)["sessions"] == [run.handle.handle_value]
    assert "red" in expected(folder)["messages"][-1]
    assert str(tmp_path) not in (folder / "stdout").read_text()
    assert differences(expected(folder), read(registry.get("scripted"), Recording.load(folder))) == []

    again = record(*arguments, "--into", str(tmp_path / "made"))
    assert again.returncode == 2
    assert "--replace" in again.stderr


def test_a_started_program_becomes_a_recording(tmp_path: Path) -> None:
    program = tmp_path / "iflow"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "if '--help' in sys.argv: print('--resume'); sys.exit()\n"
        "print(sys.stdin.read(), os.environ['HOME'], os.environ['IFLOW_API_KEY'])\n"
        f"""print('<Execution Info>{{"session-id": "{ID}"}}</Execution Info>', file=sys.stderr)\n"""
    )
    program.chmod(0o755)
    config = tmp_path / "askback.toml"
    config.write_text(f'[engines.iflow]\ncommand = ["{program}"]\nenv = {{ IFLOW_API_KEY = "very-secret-indeed" }}\n')
    arguments = ("start", "iflow", "--config", str(config), "--case", "told", "--into", str(tmp_path / "made"))
    made = record(*arguments, "--handle", ID, prompt="Say it.")
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "made" / "told"
    assert (folder / "stdout").read_text() == "Say it. /run/home [redacted]\n"
    assert (folder / "exit").read_text() == "0\n"
    assert json.loads((folder / "turn.json").read_text()) == {"handle": ID}
    assert expected(folder)["messages"] == ["Say it. /run/home [redacted]"]


def test_what_is_only_true_here_is_scrubbed(tool: ModuleType) -> None:
    machine = "/ho" + "me/someone/.x"
    text = f'at {machine}/y.js:3:4 https://api.vendor.test/v1 http://127.0.0.1:99/v1 sk-abcdefghijklmnop "/kept/path"'
    told = tool.scrubbed(text.encode(), {"/kept": "/run"}, ()).decode()
    assert told == 'at /elsewhere:3:4 https://host.example/v1 http://127.0.0.1:99/v1 [redacted] "/run/path"'
