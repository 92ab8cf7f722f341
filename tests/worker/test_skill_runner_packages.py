"""Packages in the shapes that Skill-Runner's have: a digest of a file, a prompt template, and time-outs of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from askback.core.errors import ErrorCode, Invalid
from askback.core.interactions import InteractionOutcome
from askback.core.runs import Mode, Run, RunState
from askback.skills.package import read_package
from askback.worker.turn.verdict import MAX_FILES, MAX_MANIFEST_BYTES, OutputFiles
from askback.workspace.layout import Workspace
from support.data_folder import ASK, FINISH, World, over, run_async, submit, waiting

DIGEST_RUNNER = {
    "id": "digest",
    "version": "1.0.0",
    "execution_modes": ["auto", "interactive"],
    "runtime": {"language": "python", "dependencies": ["jinja2"], "default_options": {"hard_timeout_seconds": 1800}},
    "entrypoint": {
        "prompts": {
            "codex": "${{ skill.id }}: {{ input.source_path }}",
            "common": "Read the file `{{ input.source_path }}`.\n- language: {{ parameter.language }}",
        }
    },
}
DIGEST_INPUT = {
    "type": "object",
    "properties": {"source_path": {"type": "string", "extensions": [".md", ".pdf"]}},
    "required": ["source_path"],
}
DIGEST_PARAMETER = {"type": "object", "properties": {"language": {"type": "string"}}}
DIGEST_OUTPUT = {
    "type": "object",
    "properties": {
        "digest_path": {"type": "string", "x-type": "artifact", "x-role": "digest", "x-filename": "digest.md"},
        "note_path": {"type": "string", "x-type": "artifact", "x-role": "note"},
        "warnings": {"type": "array"},
    },
    "required": ["digest_path", "warnings"],
}
WRITE = {"write": {"path": "artifacts/digest.md", "text": "Short."}}
DONE = {"finish": {"digest_path": "artifacts/digest.md", "warnings": []}}


class Digest:
    """One run of the digest package: the run, its output, its files and its prompts."""

    def __init__(self, folder: Path, *turns: Any, **rest: Any) -> None:
        self.world = World(folder)
        schemas = {"input": DIGEST_INPUT, "parameter": DIGEST_PARAMETER}
        skill = self.world.skill(*turns, name="digest", runner=DIGEST_RUNNER, output=DIGEST_OUTPUT, schemas=schemas)
        paper = folder / "my paper.md"
        paper.write_text("Long.")
        self.run: Run
        self.data: Any = None
        self.files: list[str] = []

        async def main() -> None:
            async with self.world.working() as app:
                given = {"mode": "auto", "files": {"source_path": paper}, "parameter": {"language": "en"}, **rest}
                self.run = await over(app, (await submit(app, skill, **given)).id)
                self.data = (await app.service.result(self.run.id)).data
                self.files = [each.path for each in await app.service.artifacts(self.run.id)]

        run_async(main)

    @property
    def prompts(self) -> list[str]:
        return self.world.prompts(self.run.id)


@pytest.mark.contract("J-7")
def test_a_digest_gets_its_file_its_prompt_and_its_time_and_leaves_its_artifact(tmp_path: Path) -> None:
    digest = Digest(tmp_path, [WRITE, DONE])
    assert (digest.run.state, digest.run.options.turn_timeout_sec) == (RunState.SUCCEEDED, 1800)
    assert (digest.data["digest_path"], digest.files) == ("artifacts/digest.md", ["digest.md"])
    (prompt,) = digest.prompts
    assert "<request>\nRead the file `inputs/source_path/my paper.md`.\n- language: en\n</request>" in prompt


@pytest.mark.contract("J-7")
def test_a_file_input_that_is_given_as_a_value_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([DONE], runner=DIGEST_RUNNER, output=DIGEST_OUTPUT, schemas={"input": DIGEST_INPUT})

    async def main() -> None:
        async with world.client() as app:
            with pytest.raises(Invalid) as refused:
                await submit(app, skill, input={"source_path": "/etc/passwd"})
            (problem,) = refused.value.problems
            assert problem == "input.source_path: must be a file; give it as KEY=@FILE, or as an upload"

    run_async(main)


@pytest.mark.contract("J-7", "C-3")
def test_an_artifact_that_was_not_written_is_asked_for_again(tmp_path: Path) -> None:
    digest = Digest(tmp_path, [DONE], [WRITE, DONE])
    assert (digest.run.state, digest.run.attempt_number) == (RunState.SUCCEEDED, 2)
    assert 'output.digest_path: there is no file "artifacts/digest.md"; write it' in digest.prompts[1]


@pytest.mark.contract("J-7", "C-3")
def test_an_artifact_that_is_never_written_fails_the_run(tmp_path: Path) -> None:
    digest = Digest(tmp_path, [DONE], [DONE])
    assert digest.run.error is not None
    assert digest.run.error.code is ErrorCode.OUTPUT_SCHEMA_INVALID
    assert "digest.md" in digest.run.error.message
    assert digest.data is None


@pytest.mark.contract("J-7")
def test_a_missing_file_is_no_soft_completion(tmp_path: Path) -> None:
    world = World(tmp_path)
    schema = {"type": "object", "properties": {"page": {"type": "string", "x-type": "artifact"}}, "required": ["page"]}
    output = {"output": {"page": "artifacts/page.md"}}
    skill = world.skill([output], [{"write": {"path": "artifacts/page.md", "text": "x"}}, output], output=schema)

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "go on")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("J-7")
def test_a_file_elsewhere_in_the_working_directory_becomes_an_artifact(tmp_path: Path) -> None:
    written = {"write": {"path": "result/pages/digest.md", "text": "Short."}}
    digest = Digest(tmp_path, [written, {"finish": {"digest_path": "./result/pages/digest.md", "warnings": []}}])
    assert digest.data["digest_path"] == "artifacts/result/pages/digest.md"
    assert digest.files == ["result/pages/digest.md"]


@pytest.mark.contract("J-7")
def test_in_a_folder_of_the_user_a_named_file_stays_where_it_is(tmp_path: Path) -> None:
    world, folder = World(tmp_path / "askback"), (tmp_path / "mine").resolve()
    for each in (world.folder, folder):
        each.mkdir()
    names = {"type": "object", "properties": {"page": {"type": "string", "x-type": "artifact"}}, "required": ["page"]}
    page, note = {"path": "page.md", "text": "x"}, {"path": "artifacts/note.md", "text": "y"}
    missing, done = {"finish": {"page": "none.md"}}, {"finish": {"page": f"{folder}/page.md"}}
    skill = world.skill([missing], [{"write": page}, {"write": note}, done], output=names)

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill, workdir=str(folder))).id)
            assert (run.state, run.attempt_number) == (RunState.SUCCEEDED, 2)
            assert (await app.service.result(run.id)).data == {"page": "page.md"}
            assert [each.path for each in await app.service.artifacts(run.id)] == ["note.md"]
            assert {each.name for each in folder.iterdir()} == {"page.md", "artifacts"}

    run_async(main)


# Time.


def timed(folder: Path, **options: Any) -> str:
    runner = {"id": "tested", "execution_modes": ["auto", "interactive"], "runtime": {"default_options": options}}
    return World(folder).skill([ASK], [FINISH], runner=runner)


@pytest.mark.contract("J-7")
def test_a_turn_that_takes_longer_than_the_package_allows_is_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    runner = {"id": "tested", "runtime": {"default_options": {"hard_timeout_seconds": 1}}}
    skill = world.skill([{"wait_for": "never"}], runner=runner)

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill)).id)
            assert run.error is not None
            assert run.error.code is ErrorCode.TURN_TIMEOUT

    run_async(main)


@pytest.mark.contract("J-7")
def test_a_package_that_replies_by_itself_goes_on_after_its_own_time(tmp_path: Path) -> None:
    skill = timed(tmp_path, interactive_auto_reply=True, interactive_reply_timeout_sec=1, execution_mode="interactive")

    async def main() -> None:
        async with World(tmp_path).working() as app:
            run = await over(app, (await submit(app, skill, mode=None)).id)
            assert (run.mode, run.attempt_number) == (Mode.INTERACTIVE, 2)
            (closed,) = await app.service.store.interactions(run.id)
            assert closed.outcome is InteractionOutcome.AUTO_DECIDED

    run_async(main)


@pytest.mark.parametrize(
    ("config", "asked", "given"),
    [
        ("", {}, 3600),
        ("", {"turn_timeout_sec": 7200}, 7200),
        ("[limits]\nturn_sec = 900\n", {}, 900),
        ("[limits]\nturn_sec = 900\n", {"turn_timeout_sec": 7200}, 900),
        ("[limits]\nturn_sec = 900\n", {"turn_timeout_sec": 60}, 60),
    ],
)
@pytest.mark.contract("J-7")
def test_the_request_wins_over_the_package_and_the_limit_over_both(
    tmp_path: Path, config: str, asked: dict[str, Any], given: float
) -> None:
    skill = timed(tmp_path, hard_timeout_seconds=3600)

    async def main() -> None:
        async with World(tmp_path).working(config) as app:
            run = await submit(app, skill, options=asked)
            assert run.options.turn_timeout_sec == given

    run_async(main)


# The files that an output names.

MANIFEST = {"type": "string", "x-type": "artifact", "x-role": "artifact-manifest"}
NAMES = {"type": "object", "properties": {"page": {"x-type": "artifact"}, "all": MANIFEST}, "required": ["page"]}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "run")
    workspace.prepare(Path(World(tmp_path).skill([FINISH], output=NAMES)))
    (workspace.artifacts_path / "page.md").write_text("x")
    (workspace.cwd / "notes").mkdir()
    (workspace.cwd / "notes/a.txt").write_text("a")
    return workspace


@pytest.fixture
def files(workspace: Workspace) -> OutputFiles:
    return OutputFiles(read_package(workspace.cwd / "skill"), workspace)


@pytest.mark.parametrize(
    "name",
    [
        "artifacts/none.md",
        "artifacts",
        "notes",
        ".",
        "/",
        "",
        " ",
        "../work/artifacts/page.md",
        "artifacts/../../work/artifacts/page.md",
        "/etc/passwd",
        "../turns/x",
        "artifacts/link.md",
        "artifacts/folder/passwd",
        "artifacts/pipe",
        "artifacts/page.md/x",
        "artifacts/pa\0ge.md",
        "artifacts/\ud800",
        "x" * 5000,
    ],
)
@pytest.mark.contract("J-7")
def test_only_an_existing_file_of_the_working_directory_counts(
    files: OutputFiles, workspace: Workspace, name: str
) -> None:
    artifacts = workspace.artifacts_path
    (artifacts / "link.md").symlink_to("/etc/passwd")
    (artifacts / "folder").symlink_to("/etc")
    os.mkfifo(artifacts / "pipe")
    (problem,) = files.problems({"page": name})
    assert problem.startswith("output.page: ")


@pytest.mark.contract("J-7")
def test_an_absolute_path_in_the_working_directory_becomes_relative(files: OutputFiles, workspace: Workspace) -> None:
    output = {"page": str(workspace.artifacts_path / "page.md")}
    assert files.problems(output) == ()
    assert files.collect(output) == ({"page": "artifacts/page.md"}, ())


@pytest.mark.contract("J-7")
def test_every_file_of_a_manifest_must_exist_and_is_kept(files: OutputFiles, workspace: Workspace) -> None:
    manifest = workspace.cwd / "notes/all.json"
    output = {"page": "artifacts/page.md", "all": "notes/all.json"}
    manifest.write_text(json.dumps({"a": "notes/a.txt", "b": "notes/b.txt"}))
    (problem,) = files.problems(output)
    assert problem.startswith('output.all: "b" in "notes/all.json": there is no file "notes/b.txt"')
    manifest.write_text(json.dumps({"a": str(workspace.cwd / "notes/a.txt")}))
    assert files.problems(output) == ()
    data, problems = files.collect(output)
    assert (data, problems) == ({"page": "artifacts/page.md", "all": "artifacts/notes/all.json"}, ())
    kept = {each.path for each in workspace.artifacts()}
    assert kept == {"page.md", "notes/all.json", "notes/a.txt"}
    assert (workspace.cwd / "notes/a.txt").read_text() == "a"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"a": 3}',
        '{"a": ["notes/a.txt"]}',
        '{"a": NaN}',
        '{"a": ""}',
        "[" * 100_000,
        json.dumps({str(number): "notes/a.txt" for number in range(MAX_FILES + 1)}),
        json.dumps({"a": "x" * MAX_MANIFEST_BYTES}),
    ],
    ids=["empty", "list", "cut off", "number", "nested", "nan", "no path", "deep", "many", "large"],
)
@pytest.mark.contract("J-7")
def test_a_manifest_is_a_flat_object_of_paths(files: OutputFiles, workspace: Workspace, content: str) -> None:
    (workspace.cwd / "notes/all.json").write_text(content)
    (problem,) = files.problems({"page": "artifacts/page.md", "all": "notes/all.json"})
    assert problem.startswith("output.all: ")


def test_the_files_of_all_outputs_of_a_turn_are_bounded(files: OutputFiles, workspace: Workspace) -> None:
    listed = {str(number): "notes/a.txt" for number in range(MAX_FILES)}
    (workspace.cwd / "notes/all.json").write_text(json.dumps(listed))
    output = {"page": "artifacts/page.md", "all": "notes/all.json"}
    found = [files.problems(output) for _ in range(10)]
    assert (found[0], found[-1]) == ((), ("output.all: too many files are named in this turn",))
    assert files.collect(output)[1] == ()


def test_a_file_that_is_gone_when_it_is_collected_is_a_problem(files: OutputFiles, workspace: Workspace) -> None:
    output = {"page": "notes/a.txt"}
    assert files.problems(output) == ()
    (workspace.cwd / "notes/a.txt").unlink()
    data, (problem,) = files.collect(output)
    assert data == output
    assert problem.startswith("output.page: ")


def test_a_link_in_the_place_of_the_folder_is_not_followed(
    files: OutputFiles, workspace: Workspace, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (workspace.artifacts_path / "notes").symlink_to(elsewhere)
    assert files.collect({"page": "notes/a.txt"}) == ({"page": "artifacts/notes/a.txt"}, ())
    assert list(elsewhere.iterdir()) == []
