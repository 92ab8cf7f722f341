"""The official conformance suite against a real server: nothing fails that is not in the table, and nothing is left out."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from mcp_server.conformance_fixtures import CALLS, install
from mcp_server.conformance_table import ERAS, NOT_APPLICABLE, PASSING, VERSION, is_applicable, rendered
from support.data_folder import World
from support.mcp_proxy import Proxy
from support.peers import peer, peer_env
from support.server import Server

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = ROOT / "tests" / "support" / "patience.cjs"
LIMIT_SEC = 480
_LISTED = re.compile(r"^  - (?P<name>\S+) \[(?P<versions>[^]]+)\]$", re.MULTILINE)
_FOLDER = re.compile(r"^server-(?P<name>.+)-\d{4}-\d\d-\d\dT[\d-]+Z$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of one scenario in one run of the suite."""

    run: str
    scenario: str
    id: str
    status: str
    message: str


@pytest.fixture(scope="module")
def scenarios() -> dict[str, list[str]]:
    """Every scenario for servers, with its revisions. An extension has none."""
    command = [peer("conformance"), "list", "--server"]
    told = subprocess.run(command, env=peer_env(), capture_output=True, text=True, timeout=LIMIT_SEC, check=True)
    return {found["name"]: found["versions"].split(",") for found in _LISTED.finditer(told.stdout)}


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory, scenarios: dict[str, list[str]]) -> list[Check]:
    """One server, and a process of the suite for each revision and each extension that no revision runs."""
    world = World(tmp_path_factory.mktemp("conformance"))
    install(world)
    extensions = [name for name, versions in scenarios.items() if versions == ["extension"]]
    alone = [name for name in extensions if not name.startswith("tasks-")]
    runs = {era: ["--requirements", era] for era in ERAS} | {name: ["--scenario", name] for name in alone}
    env = {"ASKBACK_SLOTS": "16", "ASKBACK_MCP__SKILL_TOOLS": "true"}
    with Server(world, env=env) as server:
        return list(_run(server, world.folder / "results", runs))


def _run(server: Server, folder: Path, runs: dict[str, list[str]]) -> Iterator[Check]:
    with ExitStack() as open_until_the_end:
        started = []
        for name, words in runs.items():
            proxy = open_until_the_end.enter_context(Proxy(server.url, server.token, CALLS))
            command = [peer("conformance"), "server", "--url", f"http://{proxy.host}/mcp", *words]
            options = ["--output-dir", str(folder / name), "--timeout", str(LIMIT_SEC * 1000)]
            env = {**peer_env(), "NODE_OPTIONS": f"--require={PATIENCE}"}
            program = subprocess.Popen(
                [*command, *options], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            open_until_the_end.callback(program.kill)
            started.append(program)
        for program in started:
            program.wait(LIMIT_SEC)
    for name in runs:
        yield from _read(folder / name, name)


def _read(folder: Path, run: str) -> Iterator[Check]:
    for path in sorted(folder.iterdir()):
        found = _FOLDER.match(path.name)
        assert found is not None, path.name
        for each in json.loads((path / "checks.json").read_text()):
            message = each.get("errorMessage") or ""
            yield Check(run=run, scenario=found["name"], id=each["id"], status=each["status"], message=message)


def _passes(check: Check) -> bool:
    return check.status in ("SUCCESS", "INFO")


def test_the_suite_has_the_version_of_the_table() -> None:
    package = Path(peer("conformance")).resolve().parent.parent / "package.json"
    assert json.loads(package.read_text())["version"] == VERSION


@pytest.mark.long
def test_every_scenario_of_the_suite_is_run(checks: list[Check], scenarios: dict[str, list[str]]) -> None:
    seen = {(check.run, check.scenario) for check in checks}
    for name, versions in scenarios.items():
        if versions == ["extension"]:
            assert any(scenario == name for _, scenario in seen), name
        for era in ERAS:
            assert era not in versions or (era, name) in seen, f"{name} was not run in {era}"


@pytest.mark.long
def test_every_check_passes_that_applies(checks: list[Check]) -> None:
    wrong = [each for each in checks if not _passes(each) and is_applicable(each.scenario, each.id)]
    assert wrong == []


@pytest.mark.long
def test_every_message_is_valid_by_the_schema_of_its_revision(checks: list[Check]) -> None:
    """The table excuses no message that is not valid."""
    found = [each for each in checks if each.id.startswith("wire-schema-")]
    assert len(found) > len(PASSING)
    assert [each for each in found if not _passes(each)] == []


@pytest.mark.long
def test_the_table_says_nothing_that_is_not_so(checks: list[Check]) -> None:
    failing = [each for each in checks if not _passes(each)]
    for group in NOT_APPLICABLE:
        for listed in group.checks:
            scenario, _, check = listed.partition(":")
            named = [each for each in failing if each.scenario == scenario and check in ("*", each.id)]
            assert named, f"{listed} passes, or is not in the suite; remove it from the table"
    whole = {listed.removesuffix(":*") for group in NOT_APPLICABLE for listed in group.checks if listed.endswith(":*")}
    assert sorted({each.scenario for each in checks} - whole) == sorted(PASSING)


def test_the_guide_shows_the_table() -> None:
    guide = (ROOT / "docs" / "reference" / "mcp.md").read_text()
    assert VERSION in guide
    assert rendered() in guide, f"put this into docs/reference/mcp.md:\n{rendered()}"
