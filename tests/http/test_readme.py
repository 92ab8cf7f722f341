"""The lines in the README work as they are printed, from creating a run to its result."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from program import DEADLINE_SEC, environment
from served import Server
from world import World

ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
HEADING = "## Use it over HTTP\n"


def printed_lines() -> str:
    """The block of the section that holds the curl lines."""
    section = README.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    if not section:
        pytest.skip(f"{README} has no section {HEADING.strip()!r} yet")
    (block,) = [block for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) if "curl" in block]
    return block


def test_the_curl_lines_lead_from_a_run_to_its_result(tmp_path: Path) -> None:
    lines = printed_lines()
    world = World(tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    with Server(world) as server:
        known = environment(world, ASKBACK_URL=server.url, ASKBACK_TOKEN=server.token, PATH=os.environ["PATH"])
        ran = subprocess.run(
            ["bash", "-eu", "-c", lines],
            capture_output=True,
            text=True,
            env=known,
            cwd=tmp_path,
            timeout=DEADLINE_SEC,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert '"prompt":"What pace would you like in Lisbon?"' in ran.stdout
    assert "event: interaction.closed\n" in ran.stdout
    assert '"status":"succeeded","data":{"title":"Lisbon, day by day","pace":"relaxed"' in ran.stdout
    assert ran.stdout.count("event: run.created\n") == 1
    assert "# Lisbon, day by day\n\nPace: relaxed\n" in ran.stdout
