"""The workflows of the GitHub Actions guide run as they are printed, with the built wheel and a real server."""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from askback.engines.registry import get
from support.data_folder import World
from support.guide import Reader, blocks
from support.installation import SERVER, Installation, build_wheel
from support.program import DEADLINE_SEC, until
from support.server import Server
from support.workflow import Runner, StepFailed, program

pytestmark = [
    pytest.mark.xdist_group("github-actions-guide"),
    pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq here"),
]
PAGE = "github-actions.md"
KNOWN_ACTIONS = {"actions/checkout", "actions/upload-artifact"}
ASKS_TWICE = [
    [{"ask": {"interaction_id": "pace", "prompt": "Which pace?", "options": ["relaxed", "packed"]}}],
    [{"ask": {"interaction_id": "food", "prompt": "Which food?"}}],
    [{"write": {"path": "artifacts/itinerary.md", "text": "Eat {{reply}}.\n"}}, {"finish": {"food": "{{reply}}"}}],
]
TRIP = {"type": "object", "required": ["destination", "days"], "properties": {"days": {"type": "integer"}}}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("runner")
    return Installation(folder / "runner", build_wheel(SERVER, "askback", folder))


@pytest.fixture
def reader(installed: Installation, tmp_path: Path) -> Reader:
    """At the end of step 1, with the wheel that the tests have built."""
    reader = Reader(PAGE, World(tmp_path))
    (wheel,) = installed.world.folder.parent.glob("askback-*.whl")
    reader.type(reader.next(), {"make dist\n": "", "dist/askback-*.whl": str(wheel)})
    return reader


@pytest.mark.long
def test_the_first_workflow_runs_the_skill_and_keeps_its_files(reader: Reader, installed: Installation) -> None:
    runner = Runner(reader.write_next(), reader.home / "my-repo", {})
    assert runner.run(_machine(reader, installed)) == ["itinerary.md", "result.json"]
    result = json.loads((runner.folder / "result.json").read_text())
    assert (result["state"], result["data"]["pace"], len(result["data"]["days"])) == ("succeeded", "balanced", 3)
    assert runner.summary.read_text() == "succeeded\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "code", "summary"),
    [
        (" --answer balanced", "", 4, "waiting_user\nWhat pace would you like in Lisbon?\n"),
        ('days="$DAYS"', "days=99", 2, "skill 'trip-planner' cannot be run with this request\n"),
        (" --answer balanced", " --mode auto", 0, "succeeded\n"),
    ],
)
def test_the_exit_code_says_how_the_run_ended(
    reader: Reader, installed: Installation, old: str, new: str, code: int, summary: str
) -> None:
    file = reader.write_next()
    assert file.read_text().count(old) == 1
    file.write_text(file.read_text().replace(old, new))
    runner = Runner(file, reader.home / "my-repo", {})
    if code == 0:
        runner.run(_machine(reader, installed))
    else:
        with pytest.raises(StepFailed) as failed:
            runner.run(_machine(reader, installed))
        assert (failed.value.name, failed.value.code) == ("Run the skill", code)
    assert runner.summary.read_text() == summary


@pytest.mark.long
def test_the_second_workflow_posts_each_question_once_and_waits_for_the_answers(
    reader: Reader, installed: Installation
) -> None:
    reader.write_next()
    install, token = reader.next().splitlines()
    asks = {"execution_modes": ["interactive"]}
    skill = reader.world.skill(*ASKS_TWICE, name="trip-planner", output=None, runner=asks, schemas={"input": TRIP})
    with Server(reader.world) as server, server.client() as client, ThreadPoolExecutor(1) as pool:
        reader.type(install.replace("skills/trip-planner", skill))
        known = {
            "vars.ASKBACK_URL": server.url,
            "secrets.ASKBACK_TOKEN": reader.type(token).strip(),
            "github.token": "ghs_token",
            "github.repository": "me/my-repo",
            "inputs.issue": "7",
        }
        runner = Runner(reader.write_next(), reader.home / "my-repo", known)
        comments = runner.folder / "comments"
        env = _machine(reader, installed) | {"COMMENTS": str(comments)}
        job = pool.submit(runner.run, env)
        for number, (question, answer) in enumerate([("Which pace?", "packed"), ("Which food?", "fish")]):
            until(
                lambda number=number: _comments(comments)[number:],  # type: ignore[misc]
                lambda: str(job.exception()) if job.done() else None,
            )
            shown = _comments(comments)[number]
            assert re.fullmatch(rf"7\n{re.escape(question)}\n\n\[Answer\]\({re.escape(server.url)}/\S+\)\n", shown)
            (asked,) = client.inbox()
            client.reply(asked.run_id, asked.interaction_id, answer)
        assert job.result(DEADLINE_SEC) == ["files.zip", "result.json"]
        assert len(_comments(comments)) == 2
        assert len(list(client.list_runs())) == 1
    with zipfile.ZipFile(io.BytesIO((runner.folder / "files.zip").read_bytes())) as files:
        assert files.read("itinerary.md") == b"Eat fish.\n"


def test_the_workflows_are_well_formed() -> None:
    """What GitHub refuses or warns about, as far as a file shows it."""
    files = [block for block in blocks(PAGE) if block.path]
    assert [Path(str(block.path)).suffix for block in files] == [".yml", ".yml"]
    for block in files:
        workflow: dict[Any, Any] = yaml.safe_load(block.text)
        assert set(workflow) == {"name", True, "permissions", "defaults", "jobs"}
        (job,) = workflow["jobs"].values()
        assert set(job) <= {"runs-on", "timeout-minutes", "env", "steps"}
        assert job["timeout-minutes"] < 360
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert set(step) <= {"name", "run", "uses", "with", "if", "env"}
            if "uses" in step:
                action, _, version = step["uses"].partition("@")
                assert action in KNOWN_ACTIONS
                assert re.fullmatch(r"v\d+", version)


def test_the_steps_with_a_real_engine_fit_into_the_workflow() -> None:
    steps = yaml.safe_load(blocks(PAGE)[-1].text)
    assert [step["name"] for step in steps] == ["Install the engine", "Run the skill"]
    (name,) = re.findall(r"--engine (\w+)", steps[1]["run"])
    engine = get(name)
    assert steps[0]["run"] in engine.install
    key = next(variable for variable in steps[1]["env"] if variable in engine.env_allow)
    assert engine.signed_in([], [key])


def _machine(reader: Reader, installed: Installation) -> dict[str, str]:
    """The programs of a runner that are not here: pipx installs the one wheel, gh keeps its comments."""
    folder = reader.world.folder / "programs"
    exposed = f'ln -s "{installed.bin}/askback" "{folder}/askback"'
    program(folder, "pipx", f'[ "$1" = install ] && [ "$#" = 2 ] && [ -f "$2" ]\n{exposed}')
    comment = '{ echo "$3"; cat; printf "\\0"; } >> "$COMMENTS"'
    program(folder, "gh", f'[ "$1 $2 $4 $5" = "issue comment --body-file -" ] && [ -n "$GH_TOKEN$GH_REPO" ]\n{comment}')
    return {"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin", "HOME": str(reader.home), "ASKBACK_SANDBOX": "off"}


def _comments(file: Path) -> list[str]:
    return file.read_text().split("\0")[:-1] if file.exists() else []
