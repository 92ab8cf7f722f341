"""The files for containers and systemd say what the docs promise, and name what exists."""

from __future__ import annotations

import asyncio
import configparser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import click
import httpx
import pytest
import yaml

from askback.blobs.base import StoreAddress, read_address
from askback.cli.main import cli
from askback.http.addresses import PageLabels, addresses
from askback.http.app import openapi_document, worker_application
from askback.settings.files import load
from askback.settings.model import Settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import image_check  # noqa: E402

FLEET = yaml.safe_load((ROOT / "compose.fleet.yaml").read_text())
OURS = {name: each for name, each in FLEET["services"].items() if "build" in each}
UNITS = [ROOT / "deploy/askback.service", ROOT / "deploy/askback-worker.service"]
SECRET = "0123456789abcdef0123456789abcdef"
STEPS = image_check.steps((ROOT / "Dockerfile").read_text())


def words(kind: str, stage: str | None = None) -> list[str]:
    return [step.text for step in STEPS if step.word == kind and stage in (None, step.stage)]


def service_of(file: Path) -> dict[str, str]:
    """The section of a unit; of options that are repeated, the last."""
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(file.read_text())
    return dict(unit["Service"])


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
    variables += [name for service in OURS.values() for name in service["environment"] if name.startswith("ASKBACK_")]
    variables += [name for file in UNITS for name in re.findall(r"^Environment=(ASKBACK_\w+)=", file.read_text(), re.M)]
    assert len(variables) >= 10
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


def settings_of(service: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of a service, as its program reads them in the image."""
    image = dict(re.findall(r"(ASKBACK_\w+)=(\S+)", " ".join(words("ENV"))))
    for name, value in {**image, **service["environment"]}.items():
        monkeypatch.setenv(
            name, re.sub(r"\$\{\w+:([?-])([^}]*)\}", lambda it: it[2] if it[1] == "-" else SECRET, value)
        )
    return load()


def parsed(command: Sequence[str]) -> click.Context:
    """The command, read as the program does it. Raises for one that is unknown, or has unknown options."""
    found: click.Command = cli
    context = click.Context(found)
    rest = list(command)
    while isinstance(found, click.Group) and rest:
        name, found_or_none, rest = found.resolve_command(context, rest)
        assert found_or_none is not None
        found = found_or_none
        context = click.Context(found, info_name=name, parent=context)
    return found.make_context(context.info_name, rest, parent=context.parent)


def checked_address(test: Sequence[str]) -> SplitResult:
    """What a health check calls."""
    (address,) = re.findall(r"'(http://[^']+)'", test[-1])
    return urlsplit(address)


def worker_serves(path: str) -> bool:
    """Whether a worker has this path. No endpoint is reached: none takes a POST."""
    unused: Any = None
    app = worker_application(health=unused, readiness=unused, metrics=unused, find=unused, failures=unused)

    async def call() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://worker") as client:
            return (await client.post(path)).status_code

    return asyncio.run(call()) == HTTPStatus.METHOD_NOT_ALLOWED


def test_the_services_of_the_fleet_have_settings_that_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert set(OURS) == {"upgrade", "api", "worker"}
    for service in OURS.values():
        assert service["build"]["target"] in {step.stage for step in STEPS}
        settings = settings_of(service, monkeypatch)
        # The user of the image may write there, and each container has its own.
        assert settings.runs.is_relative_to(words("VOLUME")[0])
        assert "volumes" not in service
        assert settings.database == f"postgresql://askback:{SECRET}@postgres/askback"
        store = read_address(str(settings.files))
        assert isinstance(store, StoreAddress)
        assert (store.bucket, store.endpoint) == ("askback", "http://store:9000")
        assert {"postgres", "store"} <= set(FLEET["services"])


def test_the_services_of_the_fleet_start_commands_that_exist() -> None:
    assert [parsed(OURS[name]["command"]).command_path for name in ("upgrade", "api", "worker")] == [
        "database upgrade",
        "serve",
        "worker",
    ]
    assert parsed(OURS["api"]["command"]).params["no_worker"] is True
    with pytest.raises(click.UsageError):
        parsed(["worker", "--no-such-option"])
    for service in OURS.values():
        assert set(service["depends_on"]) <= set(FLEET["services"])


def test_the_health_checks_of_the_fleet_call_what_is_served() -> None:
    checked = checked_address(OURS["worker"]["healthcheck"]["test"])
    assert checked.port == Settings().worker.port
    assert worker_serves(checked.path)
    assert not worker_serves("/nothing")
    # An API server has the check of the image.
    assert "healthcheck" not in OURS["api"]
    checked = checked_address(json.loads(words("HEALTHCHECK")[0].partition("CMD ")[2]))
    assert checked.port == Settings().server.port
    assert checked.path in openapi_document()["paths"]


def test_every_api_server_of_the_fleet_serves_the_address_under_which_it_is_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    server = settings_of(OURS["api"], monkeypatch).server
    known = addresses(
        listening_on=server.host,
        port=server.port,
        allowed_hosts=server.allowed_hosts,
        public_url=server.public_url,
        labels=PageLabels(b"a key", digests=frozenset, is_valid=lambda digest: False),
    )
    (published,) = OURS["api"]["ports"]
    host, ports, target = published.split(":")
    assert (host, int(target)) == ("127.0.0.1", server.port)
    first, last = map(int, ports.split("-"))
    assert last - first + 1 == OURS["api"]["deploy"]["replicas"]
    assert [known.accepts(f"{host}:{port}") for port in range(first, last + 2)] == [True, True, False]


def test_a_worker_has_time_to_drain_before_it_is_killed() -> None:
    drain_sec = Settings().worker.drain_sec
    assert int(OURS["worker"]["stop_grace_period"].removesuffix("s")) > drain_sec
    assert int(service_of(UNITS[1])["TimeoutStopSec"]) > drain_sec


@pytest.mark.parametrize("file", UNITS, ids=lambda path: path.stem)
def test_the_unit_starts_a_command_that_exists(file: Path) -> None:
    service = service_of(file)
    program, *command = service["ExecStart"].split()
    assert program == "/opt/askback/bin/askback"
    assert parsed(command).command_path == {"askback": "serve", "askback-worker": "worker"}[file.stem]
    # The data, and the files of runs of the guide, are in the one folder that the unit may write to.
    state = Path("/var/lib", service["StateDirectory"])
    assert Path(service["WorkingDirectory"]) == state
    (runs_dir,) = re.findall(r'^runs_dir = "(.+)"', (ROOT / "docs/guides/several-machines.md").read_text(), re.M)
    assert Path(runs_dir).is_relative_to(state)


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
    service = service_of(file)
    assert (service["Delegate"], service["NoNewPrivileges"], service["User"]) == ("yes", "yes", "askback")
    # Each of these would make bubblewrap fail.
    assert not {"RestrictNamespaces", "ProtectKernelTunables", "ProcSubset", "PrivateDevices"} & set(service)
