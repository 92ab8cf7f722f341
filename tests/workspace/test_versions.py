"""The versions of a run's artifacts: what is recorded at the end of a turn, what is kept, and what an engine may plant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from askback.workspace import versions as module
from askback.workspace.artifacts import Artifact
from askback.workspace.layout import Workspace
from askback.workspace.versions import LocalArtifacts, Version, with_turns
from askback.workspace.workspaces import Workspaces


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspaces(tmp_path / "runs").of("r1")
    made.artifacts_path.mkdir(parents=True)
    return made


class Artifacts:
    """Writes artifacts at moments that differ, however coarse the clock of the file system is."""

    def __init__(self, workspace: Workspace) -> None:
        self._folder = workspace.artifacts_path
        self._at = 1_000

    def write(self, name: str, content: str | bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self._at += 1
        os.utime(path, (self._at, self._at))


@pytest.fixture
def artifacts(workspace: Workspace) -> Artifacts:
    return Artifacts(workspace)


def turns(workspace: Workspace, path: str) -> list[int]:
    return [each.turn for each in LocalArtifacts(workspace).index().get(path, ())]


def texts(workspace: Workspace, path: str) -> list[str | None]:
    versions = LocalArtifacts(workspace)
    return [versions.text(each) for each in versions.index()[path]]


def kept_files(workspace: Workspace) -> set[str]:
    return {path.name for path in (workspace.root / "versions").iterdir()} - {"index.json"}


def test_each_turn_records_only_what_it_changed(workspace: Workspace, artifacts: Artifacts) -> None:
    artifacts.write("plan.md", "one\n")
    artifacts.write("deep/notes.txt", "same\n")
    LocalArtifacts(workspace).record(1)
    artifacts.write("plan.md", "two\n")
    artifacts.write("deep/notes.txt", "same\n")
    LocalArtifacts(workspace).record(2)
    LocalArtifacts(workspace).record(3)
    assert (turns(workspace, "plan.md"), turns(workspace, "deep/notes.txt")) == ([1, 2], [1])
    assert texts(workspace, "plan.md") == ["one\n", "two\n"]


def test_a_run_without_artifacts_gets_no_folder(workspace: Workspace) -> None:
    LocalArtifacts(workspace).record(1)
    assert not (workspace.root / "versions").exists()


def test_a_turn_that_is_recorded_again_has_one_version(workspace: Workspace, artifacts: Artifacts) -> None:
    artifacts.write("a", "first")
    LocalArtifacts(workspace).record(1)
    artifacts.write("a", "interrupted")
    artifacts.write("b", "interrupted as well")
    LocalArtifacts(workspace).record(2)
    artifacts.write("a", "second")
    (workspace.artifacts_path / "b").unlink()
    LocalArtifacts(workspace).record(2)
    assert (turns(workspace, "a"), turns(workspace, "b")) == ([1, 2], [])
    assert texts(workspace, "a") == ["first", "second"]
    assert len(kept_files(workspace)) == 2
    artifacts.write("a", "first")
    LocalArtifacts(workspace).record(2)
    assert turns(workspace, "a") == [1]


def test_a_file_that_is_removed_and_written_again_has_both_versions(workspace: Workspace, artifacts: Artifacts) -> None:
    artifacts.write("a", "first")
    LocalArtifacts(workspace).record(1)
    (workspace.artifacts_path / "a").unlink()
    LocalArtifacts(workspace).record(2)
    LocalArtifacts(workspace).record(3)
    artifacts.write("a", "first")
    LocalArtifacts(workspace).record(4)
    found = LocalArtifacts(workspace).index()["a"]
    assert [(each.turn, each.removed) for each in found] == [(1, False), (2, True), (4, False)]
    assert texts(workspace, "a") == ["first", "", "first"]


def test_links_are_neither_recorded_nor_followed(workspace: Workspace, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the user's own key")
    folder = workspace.artifacts_path
    (folder / "link").symlink_to(secret)
    (folder / "outside").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    os.link(secret, folder / "plain")
    LocalArtifacts(workspace).record(1)
    assert set(LocalArtifacts(workspace).index()) == {"plain"}
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path)
    LocalArtifacts(workspace).record(2)
    assert set(LocalArtifacts(workspace).index()) == {"plain"}


def test_a_folder_in_the_place_of_the_versions_that_leads_out_is_replaced(
    workspace: Workspace, artifacts: Artifacts, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace.root / "versions").symlink_to(outside)
    artifacts.write("a", "text")
    LocalArtifacts(workspace).record(1)
    assert list(outside.iterdir()) == []
    assert texts(workspace, "a") == ["text"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a": [{"turn": "x"}]}', b"\xff", b"[" * 100_000])
def test_an_index_that_is_damaged_counts_as_none(workspace: Workspace, artifacts: Artifacts, content: bytes) -> None:
    artifacts.write("a", "text")
    LocalArtifacts(workspace).record(1)
    (workspace.root / "versions" / "index.json").write_bytes(content)
    assert LocalArtifacts(workspace).index() == {}
    LocalArtifacts(workspace).record(2)
    assert turns(workspace, "a") == [2]


def test_content_that_is_not_what_was_recorded_is_not_shown(
    workspace: Workspace, artifacts: Artifacts, tmp_path: Path
) -> None:
    artifacts.write("a", "text")
    LocalArtifacts(workspace).record(1)
    (version,) = LocalArtifacts(workspace).index()["a"]
    assert version.digest is not None
    (workspace.root / "versions" / version.digest).write_text("other")
    assert LocalArtifacts(workspace).text(version) is None
    (tmp_path / "key").write_text("key")
    planted = Version(turn=1, size=3, modified_ns=0, digest="../../../key", kept=True)
    assert LocalArtifacts(workspace).text(planted) is None


def test_what_is_large_or_not_text_has_versions_without_content(workspace: Workspace, artifacts: Artifacts) -> None:
    artifacts.write("large.txt", "x" * (module.MAX_FILE + 1))
    artifacts.write("picture.png", b"\x89PNG\0")
    artifacts.write("latin.txt", "Grüße".encode("latin-1"))
    LocalArtifacts(workspace).record(1)
    index = LocalArtifacts(workspace).index()
    assert {path: (each[0].kept, each[0].digest is None) for path, each in index.items()} == {
        "large.txt": (False, True),
        "picture.png": (False, False),
        "latin.txt": (False, False),
    }
    assert texts(workspace, "large.txt") == [None]


def test_limits_hold_for_a_whole_run(
    workspace: Workspace, artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CONTENTS", 10)
    monkeypatch.setattr(module, "MAX_VERSIONS", 3)
    for turn, (a, b) in enumerate([("12345", "1234567"), ("123", "x")], start=1):
        artifacts.write("a", a)
        artifacts.write("b", b)
        LocalArtifacts(workspace).record(turn)
    index = LocalArtifacts(workspace).index()
    assert [(each.turn, each.size, each.kept) for each in index["a"]] == [(1, 5, True), (2, 3, True)]
    # The fourth version takes the place of the one before.
    assert [(each.turn, each.size, each.kept) for each in index["b"]] == [(2, 1, True)]
    artifacts.write("c", "new")
    artifacts.write("a", "still more")
    LocalArtifacts(workspace).record(3)
    assert turns(workspace, "c") == []
    assert turns(workspace, "a") == [1, 3]


def test_no_more_is_read_than_the_limit_of_a_turn(
    workspace: Workspace, artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_READ", 6)
    artifacts.write("a", "1234")
    artifacts.write("b", "5678")
    LocalArtifacts(workspace).record(1)
    index = LocalArtifacts(workspace).index()
    assert (index["a"][0].digest is None, index["b"][0].digest is None) == (False, True)


def test_no_more_files_are_read_than_the_limit_of_a_turn(
    workspace: Workspace, artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILES_READ", 1)
    artifacts.write("a", "1234")
    artifacts.write("b", "5678")
    LocalArtifacts(workspace).record(1)
    index = LocalArtifacts(workspace).index()
    assert (index["a"][0].kept, index["b"][0].kept) == (True, False)


def test_a_recording_that_is_ended_leaves_nothing_of_it(workspace: Workspace, artifacts: Artifacts) -> None:
    artifacts.write("a", "kept")
    LocalArtifacts(workspace).record(1)
    before = kept_files(workspace)
    artifacts.write("a", "changed")
    artifacts.write("b", "new")

    def checkpoint() -> None:
        if kept_files(workspace) != before:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        LocalArtifacts(workspace).record(2, checkpoint)
    assert kept_files(workspace) == before
    assert texts(workspace, "a") == ["kept"]
    LocalArtifacts(workspace).record(2)
    assert texts(workspace, "a") == ["kept", "changed"]


def test_artifacts_know_the_turn_that_changed_them_last(workspace: Workspace, artifacts: Artifacts) -> None:
    def now(current: int | None) -> list[tuple[str, int | None, bool]]:
        found: list[Artifact] = with_turns(LocalArtifacts(workspace).index(), workspace.artifacts(), current)
        return [(each.path, each.turn, each.comparable) for each in found]

    artifacts.write("a", "one")
    artifacts.write("b", "one")
    assert now(None) == [("a", None, False), ("b", None, False)]
    assert now(1) == [("a", 1, False), ("b", 1, False)]
    LocalArtifacts(workspace).record(1)
    artifacts.write("b", "two")
    assert now(2) == [("a", 1, False), ("b", 2, True)]
    LocalArtifacts(workspace).record(2)
    assert now(None) == [("a", 1, False), ("b", 2, True)]


def test_versions_count_for_the_disk_and_go_with_the_run(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "runs")
    workspace = workspaces.of("r1")
    workspace.artifacts_path.mkdir(parents=True)
    Artifacts(workspace).write("a", "x" * 100_000)
    before = workspaces.sizes()["r1"]
    LocalArtifacts(workspace).record(1)
    assert workspaces.sizes()["r1"] >= before + 100_000
    workspaces.remove("r1")
    assert not workspace.root.exists()
