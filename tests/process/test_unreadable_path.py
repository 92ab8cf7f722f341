"""After `su user`, PATH still has folders of the other user. Inaccessible folders are ignored, and nothing fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from askback.skills.library import DEMO
from support.data_folder import DEADLINE_SEC

NOBODY = 65534
_CAPABILITIES = "-dac_override,-dac_read_search"
INSTALLED = Path(sys.executable).with_name("askback")


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user can access, unlike those of pytest."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to take a folder away from a program")
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_other(folder: Path, *words: str, sandbox: str = "auto") -> subprocess.CompletedProcess[str]:
    """The program without root's privileges, and with another user's folder on its PATH."""
    home, closed = folder / "home", folder / "closed"
    for each in (home, closed / "bin"):
        each.mkdir(parents=True, exist_ok=True)
    (closed / "bin/codex").write_text("#!/bin/sh\n")
    (closed / "bin/codex").chmod(0o755)
    closed.chmod(0o700)
    os.chown(closed, NOBODY, NOBODY)
    env = {
        "PATH": f"{closed}/bin:{closed}/node_modules/.bin:{os.defpath}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "ASKBACK_SANDBOX": sandbox,
    }
    return subprocess.run(
        ["setpriv", f"--bounding-set={_CAPABILITIES}", f"--inh-caps={_CAPABILITIES}", str(INSTALLED), *words],
        cwd=home,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SEC,
        check=False,
    )


def test_doctor_and_engines_pass_over_what_cannot_be_read(public_folder: Path) -> None:
    doctor = as_other(public_folder, "doctor", "--json")
    assert json.loads(doctor.stdout)["ok"], doctor.stdout + doctor.stderr
    engines = as_other(public_folder, "engines", "--json")
    found = {each["name"]: each["found"] for each in json.loads(engines.stdout)}
    assert (found["scripted"], found["codex"]) == (True, False)


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_a_run_succeeds_with_an_unreadable_folder_on_the_path(public_folder: Path, sandbox: str) -> None:
    words = ("--engine", "scripted", "--input", "destination=Rome", "--input", "days=1", "--answer", "balanced")
    done = as_other(public_folder, "run", str(DEMO), *words, "--json", sandbox=sandbox)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_command_or_a_home_that_cannot_be_read_is_not_there(public_folder: Path) -> None:
    config = public_folder / "askback.toml"
    closed = public_folder / "closed"
    config.write_text(
        f'[engines.codex]\ncommand = ["sh", "{closed}/bin/codex"]\nhome = "{closed}/home"\nextra_args = ["{closed}/x"]\n'
    )
    done = as_other(public_folder, "engines", "--json", "--config", str(config))
    assert done.returncode == 0, done.stdout + done.stderr
