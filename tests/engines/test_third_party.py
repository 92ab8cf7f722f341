"""An engine that somebody else wrote: the worked example, found by its entry point and driven end to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from askback.core.errors import ErrorCode, Invalid
from askback.core.runs import RunState
from askback.engines import registry
from askback.engines.base import Engine
from support.data_folder import World, over, run_async, submit, waiting
from support.program import askback

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/engine"
PAGE = ROOT / "docs/guides/add-an-engine.md"
PROGRAM = [sys.executable, str(EXAMPLE / "askback_parrot/program.py")]
SETTINGS = f"[engines.parrot]\ncommand = {json.dumps(PROGRAM)}\n"
COLOUR: dict[str, Any] = {"type": "object", "required": ["colour"], "properties": {"colour": {"type": "string"}}}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installer would have done it: the package on the path, and beside it what its pyproject.toml offers."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    info = tmp_path / "site" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n")
    points = "\n".join(f"{key} = {value}" for key, value in project["entry-points"][registry.GROUP].items())
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{points}\n")
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.syspath_prepend(tmp_path / "site")


def test_it_is_found_beside_the_bundled_ones() -> None:
    found = registry.engines()
    assert found["parrot"].title == "Parrot"
    assert "scripted" in found
    assert found.broken == {}


@pytest.mark.contract("H-6")
def test_a_skill_runs_through_it_with_a_question(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill(output=COLOUR)

    async def main() -> None:
        async with world.working(SETTINGS) as app:
            asked = await waiting(app, (await submit(app, skill, engine="parrot")).id)
            assert asked.pending_interaction is not None
            assert asked.pending_interaction.prompt == "Which colour should I say?"
        async with world.working(SETTINGS) as app:
            await app.service.reply(asked.id, "green")
            run = await over(app, asked.id)
            assert (run.state, run.error, run.handle) == (RunState.SUCCEEDED, None, asked.handle)
            assert (await app.service.result(run.id)).data == {"colour": "green", "turns": 2}

    run_async(main)


def test_no_skill_may_contain_its_configuration(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = Path(world.skill(output=COLOUR))
    (skill / "deep/.PARROT").mkdir(parents=True)
    (skill / "deep/.PARROT/hooks.json").write_text("{}")
    archive = Path(shutil.make_archive(str(tmp_path / "evil"), "zip", skill))
    site = os.pathsep.join((str(tmp_path / "site"), str(EXAMPLE)))

    def refused(*words: str) -> None:
        ran = askback(world, *words, env={"PYTHONPATH": site}, warm=False)
        assert ran.code == 2, ran.stderr
        assert ".PARROT configures a coding-agent CLI" in ran.stdout + ran.stderr

    refused("skills", "check", str(skill))
    refused("skills", "install", str(skill))
    refused("skills", "install", str(archive))
    refused("run", str(skill), "--engine", "parrot")

    async def main() -> None:
        async with world.working(SETTINGS) as app:
            with pytest.raises(Invalid, match="configures a coding-agent CLI"):
                await submit(app, str(skill), engine="parrot")

    run_async(main)


@pytest.mark.contract("X-1")
def test_a_session_that_it_lost_ends_the_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill(output=COLOUR)

    async def main() -> None:
        async with world.working(SETTINGS) as app:
            asked = await waiting(app, (await submit(app, skill, engine="parrot")).id)
            for path in (world.data_dir / "runs" / asked.id / "home" / ".parrot").iterdir():
                path.unlink()
            await app.service.reply(asked.id, "green")
            run = await over(app, asked.id)
            assert run.error is not None
            assert (run.error.code, run.error.detail) == (
                ErrorCode.SESSION_RESUME_FAILED,
                "parrot: no such session",
            )

    run_async(main)


def test_it_inherits_the_tests_of_an_engine() -> None:
    """Its tests run as its author runs them, without the configuration of this repository."""
    path = os.pathsep.join((str(ROOT / "src"), str(EXAMPLE)))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(EXAMPLE),
    ]
    ran = subprocess.run(
        [*command, str(EXAMPLE / "test_parrot.py")],
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert "15 passed" in ran.stdout


def test_the_page_shows_the_files_as_they_are() -> None:
    blocks = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert (EXAMPLE / "askback_parrot/__init__.py").read_text() in blocks
    assert (EXAMPLE / "test_parrot.py").read_text() in blocks
    offered = [block for block in blocks if registry.GROUP in block and "import" not in block]
    assert offered
    assert all(block in (EXAMPLE / "pyproject.toml").read_text() for block in offered)


def test_the_page_names_all_that_an_engine_needs() -> None:
    told = PAGE.read_text()
    parts = {*Engine.__annotations__, *(name for name, part in vars(Engine).items() if callable(part))}
    assert [part for part in sorted(parts) if not part.startswith("_") and f"`{part}" not in told] == []
