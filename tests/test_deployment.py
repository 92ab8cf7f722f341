"""The files for containers and systemd say what the docs promise, and name what exists."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from askback.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import image_check  # noqa: E402

UNITS = [ROOT / "deploy/askback.service", ROOT / "deploy/askback-worker.service"]
STEPS = image_check.steps((ROOT / "Dockerfile").read_text())


def words(kind: str, stage: str | None = None) -> list[str]:
    return [step.text for step in STEPS if step.word == kind and stage in (None, step.stage)]


def test_the_last_stage_is_the_image_without_engines() -> None:
    stages = [step.stage for step in STEPS if step.word == "FROM"]
    assert stages == ["build", "base", "node", "engines", "slim"]


def test_the_steps_are_checked_with_the_python_of_the_image() -> None:
    assert image_check.python_version((ROOT / "Dockerfile").read_text()) == "3.13"
    with pytest.raises(SystemExit, match=r"known: 3\.11, 3\.13"):
        image_check.python_version("ARG PYTHON=2.7\n")


def test_the_image_runs_as_a_user_with_a_volume_and_a_health_check() -> None:
    (user,) = words("USER")
    assert user.isdecimal()
    assert int(user) > 0
    assert f"--uid {user} " in " ".join(words("RUN", "base"))
    (health,) = words("HEALTHCHECK")
    assert "/healthz" in json.loads(health.partition("CMD ")[2])[-1]
    assert (words("VOLUME"), words("EXPOSE")) == (["/data"], [str(Settings().server.port)])
    assert [json.loads(text) for text in (*words("ENTRYPOINT"), *words("CMD"))] == [["askback"], ["serve"]]


def test_the_image_is_built_from_files_that_exist_and_reach_the_build() -> None:
    admitted = (ROOT / ".dockerignore").read_text().splitlines()
    assert admitted[0] == "*"
    copied = [name for text in words("COPY") if not text.startswith("--from") for name in text.split()[:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in admitted


def test_every_variable_of_the_image_is_a_setting() -> None:
    variables = [name for text in words("ENV") for name in re.findall(r"(ASKBACK_\w+)=", text)]
    variables += yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["askback"]["environment"]
    assert len(variables) >= 4
    for name in variables:
        first, *rest = name.removeprefix("ASKBACK_").lower().split("__")
        field = Settings.model_fields[first]
        assert not rest or rest[0] in field.annotation.model_fields  # type: ignore[union-attr]


def test_compose_builds_a_stage_publishes_on_loopback_and_keeps_the_data() -> None:
    document = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service = document["services"]["askback"]
    assert service["build"]["target"] in {step.stage for step in STEPS}
    assert service["ports"] == ["127.0.0.1:8765:8765"]
    assert service["volumes"] == ["data:/data"]
    assert set(document["volumes"]) == {"data"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("file", UNITS, ids=lambda path: path.stem)
def test_systemd_accepts_the_unit(tmp_path: Path, file: Path) -> None:
    program = tmp_path / "askback"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / file.name
    unit.write_text(file.read_text().replace("/opt/askback/bin/askback", str(program)))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, file.name in ran.stderr) == (0, False), ran.stderr


@pytest.mark.parametrize("file", UNITS, ids=lambda path: path.stem)
def test_the_unit_delegates_its_control_group_and_leaves_the_sandbox_possible(file: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(file.read_text())
    service = dict(unit["Service"])
    assert (service["Delegate"], service["NoNewPrivileges"], service["User"]) == ("yes", "yes", "askback")
    # Each of these would make bubblewrap fail.
    assert not {"RestrictNamespaces", "ProtectKernelTunables", "ProcSubset", "PrivateDevices"} & set(service)
