"""What of a run's folder is kept, and what never is."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from askback.engines import registry
from askback.engines.base import DEFAULT_CACHES
from askback.fs.archive_reader import ArchiveDamaged
from askback.workspace.archives import ArchivedFolder
from askback.workspace.layout import Workspace
from askback.workspace.workspaces import Workspaces

SECRET = "the-sign-in-of-ada"


def all_sign_ins() -> list[str]:
    return [name for engine in registry.engines().values() for name in engine.credentials]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    package = tmp_path / "package"
    package.mkdir()
    (package / "SKILL.md").write_text("x")
    made = Workspaces(tmp_path / "runs", sign_ins=all_sign_ins()).of("r1")
    made.prepare(package)
    made.begin_first_turn(None)
    return made


def content(folder: ArchivedFolder) -> bytes:
    with folder.archive.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
        return reader.read()


def test_the_sign_in_of_no_engine_is_packed(workspace: Workspace) -> None:
    """Whatever engine the run has: an engine may read the sign-in of another."""
    sign_ins = all_sign_ins()
    assert len(sign_ins) >= 6
    for name in sign_ins:
        (workspace.home / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.home / name).write_text(SECRET)
    (workspace.home / "session.jsonl").write_text("the session")
    folder = ArchivedFolder(workspace)
    for engine in registry.engines().values():
        folder.pack(engine.all_caches, over=False)
        packed = content(folder)
        assert b"the session" in packed
        assert SECRET.encode() not in packed
        assert all(name.encode() not in packed for name in sign_ins)


def test_only_what_a_further_turn_needs_is_packed(workspace: Workspace) -> None:
    left_out = {
        workspace.tmp / "scratch": "temporary",
        workspace.prompt_path("001-001"): "raw output",
        workspace.home / ".npm" / "x": "a cache",
        workspace.home / ".cache" / "x": "another cache",
        workspace.root / "env.pad": "the pad",
        workspace.snapshots / "manifest.json": "a snapshot",
        workspace.snapshots / "files" / "1": "a copy",
    }
    kept = {
        workspace.home / ".tool" / "x": "the session",
        workspace.artifacts_path / "x": "an artifact",
        workspace.root / "versions" / "x": "a version",
        workspace.root / "workdir" / "found.json": "a record",
    }
    comparison = {workspace.comparison / "HEAD": "the comparison"}
    for path, text in {**left_out, **kept, **comparison}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folder = ArchivedFolder(workspace)
    folder.pack(DEFAULT_CACHES, over=False)
    packed = content(folder)
    assert [text for text in left_out.values() if text.encode() in packed] == []
    assert [text for text in (*kept.values(), *comparison.values()) if text.encode() not in packed] == []
    folder.pack(DEFAULT_CACHES, over=True)
    assert b"the comparison" not in content(folder)


def test_a_restored_folder_is_what_was_packed_and_nothing_else(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.home / "session").write_text("one")
    folder = ArchivedFolder(workspace)
    folder.pack((), over=False)
    (workspace.home / "session").write_text("two")
    (workspace.home / "later").write_text("x")
    (workspace.cwd / "later").symlink_to(tmp_path)
    workspace.write_prompt("001-001", b"what was said")
    (workspace.root / "unpacked").mkdir()
    (workspace.root / "unpacked" / "rest").write_text("of a killed program")
    folder.unpack("runs/r1/kept/1-1.tar.zst")
    assert (workspace.home / "session").read_text() == "one"
    assert not (workspace.home / "later").exists()
    assert not (workspace.cwd / "later").is_symlink()
    assert workspace.prompt_path("001-001").read_bytes() == b"what was said"
    assert folder.key() == "runs/r1/kept/1-1.tar.zst"
    assert not (workspace.root / "unpacked").exists()
    assert not folder.archive.exists()


def test_a_damaged_archive_changes_nothing_and_leaves_no_note(workspace: Workspace) -> None:
    (workspace.home / "session").write_text("one")
    folder = ArchivedFolder(workspace)
    folder.pack((), over=False)
    folder.record("runs/r1/kept/1-1.tar.zst")
    folder.archive.write_bytes(folder.archive.read_bytes()[:-10])
    with pytest.raises(ArchiveDamaged):
        folder.unpack("runs/r1/kept/2-2.tar.zst")
    assert (workspace.home / "session").read_text() == "one"
    assert folder.key() is None
