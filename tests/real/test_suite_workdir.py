"""Askback with every real engine: runs that work in a repository of the user."""

from __future__ import annotations

from pathlib import Path

import pytest
from double import ModelDouble, run_shell, say
from suite import Stage, finish, question, reply_in

from askback.core.changes import ChangedFile, ChangeStatus
from askback.core.runs import RunState
from support.data_folder import over
from support.repositories import contents, git, repository

EDIT = "printf 'blue\\n' > site.css"
REPORT = "printf 'done\\n' > artifacts/report.md"


def left_in(repo: Path, stage: Stage) -> dict[str, bytes | str]:
    """What is in the repository, except what the engine writes into every one."""
    own = stage.engine.own_files_in_repositories
    return {name: content for name, content in contents(repo).items() if name not in own}


@pytest.mark.contract("J-6", "H-11")
def test_an_engine_changes_the_repository_asks_and_goes_on_there(
    stage: Stage, double: ModelDouble, tmp_path: Path
) -> None:
    repo = repository(tmp_path / "a repository.of/the user")
    before = contents(repo)
    skill = stage.skill()
    double.play(run_shell(EDIT), say(question()), run_shell(REPORT), say(finish("green")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill, workdir=str(repo))
            edited = before | {"site.css": b"blue\n", "artifacts": ""}
            assert left_in(repo, stage) == dict(sorted(edited.items()))
            await app.service.reply(asked.id, "green, please")
            run = await over(app, asked.id)
            assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
            assert run.handle == asked.handle
            changes = await app.service.changes(run)
            assert changes is not None
            assert changes.files == (
                ChangedFile(path="site.css", status=ChangeStatus.MODIFIED, insertions=1, deletions=1),
            )
            assert [each.path for each in await app.service.artifacts(run.id)] == ["report.md"]

    stage.run(main)
    last = double.requests[-1]
    said = "\n".join(last.user_texts)
    assert [said.count(text) for text in ('the skill "tested"', "green, please")] == [1, 1]
    assert last.assistant_texts.count(question()) == 1
    assert reply_in("green, please") in said
    assert "the user's own folder" in said
    changed = {"site.css": b"blue\n", "artifacts": "", "artifacts/report.md": b"done\n"}
    assert left_in(repo, stage) == dict(sorted((before | changed).items()))
    status = git(repo, "status", "--porcelain", "--untracked-files=all").splitlines()
    assert status == [" M old.txt", " M site.css", "?? artifacts/report.md", "?? notes.txt"]
