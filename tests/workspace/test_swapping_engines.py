"""An engine that swaps folders while Askback works with the files of its run: nothing of anybody else is touched.

Each operation is repeated while another process exchanges folders of the run with links to a foreign folder, or with
folders that have such links. The foreign folder has the same names inside, so that each step by path would lead there.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import zstandard

from askback.background.pools import unchecked
from askback.blobs.folder import FolderFiles
from askback.core.errors import AskbackError
from askback.fs.archive_writer import ArchiveRefused, TreeChangedWhilePacking, pack
from askback.fs.beneath import remove_tree
from askback.fs.copies import CopyLimits, CopyRefused, TreeCopy
from askback.fs.paths import open_below
from askback.fs.repositories import identities
from askback.process.guardian.usage import Walk
from askback.workspace.layout import Workspace
from askback.workspace.run_objects import RunObjects
from askback.workspace.sign_ins import remove_copies
from askback.workspace.snapshots import HomeChangedWhileSaving, begin_live_turn, begin_turn, save_between_turns
from askback.workspace.turn_artifacts import store_artifacts
from askback.workspace.versions import LocalArtifacts
from askback.workspace.workdir_record import WorkdirRecord
from askback.workspace.workspaces import Workspaces
from support.swapping import EXCHANGER

MARK = b"foreign-mark"
"""In names and contents of the foreign folder."""
SIZE = 1_234_567
"""Of each foreign file. The files of the run are small."""
PAIRS = 4
ROUNDS = 400
SECONDS = 1.0
FAULTS = (OSError, HomeChangedWhileSaving, TreeChangedWhilePacking, ArchiveRefused, CopyRefused, AskbackError)
"""An engine may spoil what Askback does with its own files."""


class Arena:
    """A run with folders that are swapped, and a foreign folder."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.foreign = folder / "foreign"
        self.run = folder / "runs" / "r1"
        self.out = folder / "out"
        self.workdir = folder / "workdir"
        self.files = FolderFiles(self.out / "store")
        self._kind = kind
        self._spare = folder / "spare"
        for path in (self.out, self.workdir, self.run / "work", self.run / "snapshots"):
            path.mkdir(parents=True)
        self._make_foreign()
        self.before = picture(self.foreign)

    def _make_foreign(self) -> None:
        inner, name = self.foreign / "inner", MARK.decode()
        (inner / "deep" / name / ".git").mkdir(parents=True)
        for path in (inner / "file", inner / "deep" / "file", inner / name, inner / "deep" / name / "file"):
            path.write_bytes(MARK.ljust(SIZE, b"x"))
        (self.foreign / "locked").mkdir(mode=0)

    def fill(self, place: Path) -> None:
        """Put a new tree in this place, as a whole: by path, parts of it could land in the foreign folder."""
        self._spare.mkdir()
        for number in range(PAIRS):
            folder, other = self._spare / f"d{number}", self._spare / f"x{number}"
            (folder / "inner" / "deep").mkdir(parents=True)
            (folder / "inner" / "file").write_text("own")
            (folder / "inner" / "deep" / "file").write_text("own")
            (folder / "locked").mkdir(mode=0)
            if self._kind == "link":
                other.symlink_to(self.foreign)
            else:
                other.mkdir()
                (other / "inner").symlink_to(self.foreign / "inner")
                (other / "locked").symlink_to(self.foreign / "locked")
        place.parent.mkdir(parents=True, exist_ok=True)
        self._spare.rename(place)

    def write(self, *words: object) -> None:
        """What an operation has returned."""
        with (self.out / "seen").open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    def traces(self, swapped: Path) -> Iterator[bytes]:
        """Names and contents of everything that was made, outside of the folders that are swapped."""
        for top in (self.out, self.run):
            for folder, folders, names in os.walk(top):
                folders[:] = [each for each in folders if Path(folder, each) != swapped]
                for name in (*folders, *names):
                    yield os.fsencode(name)
                for name in names:
                    path = Path(folder, name)
                    if not path.is_symlink():
                        yield path.read_bytes()


def picture(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything that can be changed: the time of a change tells of a mode that was changed and restored."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes()[:100] if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, content)
    return found


@contextmanager
def swapping(place: Path) -> Iterator[None]:
    argv = [sys.executable, "-I", "-S", "-c", EXCHANGER, str(place), str(PAIRS)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"swapping\n"
            yield
        finally:
            process.kill()


# The operations. Each works with the tree that is swapped, and leaves traces in the arena.

Operation = Callable[[Arena, Path, int], None]


def save_a_live_home(arena: Arena, home: Path, number: int) -> None:
    begin_live_turn(home, arena.run / "snapshots", number)


def save_between(arena: Arena, home: Path, number: int) -> None:
    save_between_turns(home, arena.run / "snapshots")


def save(arena: Arena, home: Path, number: int) -> None:
    begin_turn(home, arena.run / "snapshots", number)


def restore(arena: Arena, home: Path, number: int) -> None:
    snapshots = arena.run / "snapshots"
    if number == 0:
        begin_turn(home, snapshots, 1)
    begin_turn(home, snapshots, 1)


def pack_a_home(arena: Arena, home: Path, number: int) -> None:
    target = io.BytesIO()
    try:
        pack(home.parent, [home.name], target)
    finally:
        packed = zstandard.ZstdDecompressor().decompressobj().decompress(target.getvalue())
        (arena.out / "unpacked").write_bytes(packed)


def copy_a_home(arena: Arena, home: Path, number: int) -> None:
    TreeCopy(arena.out, CopyLimits(), unchecked).copy(home.parent, home.name, "copied")


def list_artifacts(arena: Arena, artifacts: Path, number: int) -> None:
    for each in Workspace(arena.run).artifacts():
        arena.write(each.path, each.size)


def bundle_artifacts(arena: Arena, artifacts: Path, number: int) -> None:
    bundle, content = LocalArtifacts(Workspace(arena.run)).bundle(1 << 30), io.BytesIO()
    while (piece := bundle.next_piece()) is not None:
        content.write(piece)
    with zipfile.ZipFile(content) as archive:
        for name in archive.namelist():
            arena.write(name, archive.read(name))


def record_versions(arena: Arena, artifacts: Path, number: int) -> None:
    LocalArtifacts(Workspace(arena.run)).record(number)


def store_all_artifacts(arena: Arena, artifacts: Path, number: int) -> None:
    (arena.out / "store").mkdir()
    workspace = Workspace(arena.run, objects=RunObjects(arena.files, "r1"))
    store_artifacts(workspace, f"{number:03d}-001")


def collect_from_a_users_folder(arena: Arena, artifacts: Path, number: int) -> None:
    WorkdirRecord(Workspace(arena.run)).collect(arena.workdir, CopyLimits())


def open_a_file(arena: Arena, home: Path, number: int) -> None:
    file = open_below(arena.run, f"home/d{number % PAIRS}/inner/file")
    if file is not None:
        with file:
            arena.write(file.read())


def measure_a_run(arena: Arena, home: Path, number: int) -> None:
    used = Workspaces(arena.run.parent).size(arena.run.name)
    if used is not None and used >= SIZE:
        arena.write("too much:", SIZE)


def measure_disk_usage(arena: Arena, home: Path, number: int) -> None:
    walk = Walk([os.fsencode(home)])
    walk.step(60, float("inf"))
    if walk.used >= SIZE:
        arena.write("too much:", SIZE)


def find_repositories(arena: Arena, home: Path, number: int) -> None:
    arena.write(identities(home))


def find_sign_ins(arena: Arena, home: Path, number: int) -> None:
    arena.write(Workspace(arena.run).present_in_home([f"d{number % PAIRS}/inner/{MARK.decode()}"]))


def rewrite_files(arena: Arena, home: Path, number: int) -> None:
    Workspace(arena.run).rewrite_in_home("d*/inner/*", "own", "new")
    Workspace(arena.run).rewrite_in_home("d*/inner/*", MARK.decode(), "spoilt")


def remove_sign_ins(arena: Arena, home: Path, number: int) -> None:
    remove_copies(home, [f"d{number % PAIRS}/inner/file", f"d{number % PAIRS}/inner/{MARK.decode()}"])


def remove_a_folder(arena: Arena, home: Path, number: int) -> None:
    try:
        remove_tree(home)
    finally:
        if not home.exists():
            arena.fill(home)


HOME, ARTIFACTS, WORKDIR = "runs/r1/home", "runs/r1/work/artifacts", "workdir/artifacts"
OPERATIONS: dict[Operation, str] = {
    save_a_live_home: HOME,
    save_between: HOME,
    save: HOME,
    restore: HOME,
    pack_a_home: HOME,
    copy_a_home: HOME,
    list_artifacts: ARTIFACTS,
    bundle_artifacts: ARTIFACTS,
    record_versions: ARTIFACTS,
    store_all_artifacts: ARTIFACTS,
    collect_from_a_users_folder: WORKDIR,
    open_a_file: HOME,
    measure_a_run: HOME,
    measure_disk_usage: HOME,
    find_repositories: HOME,
    find_sign_ins: HOME,
    rewrite_files: HOME,
    remove_sign_ins: HOME,
    remove_a_folder: HOME,
}


@pytest.mark.contract("B-2")
@pytest.mark.parametrize("kind", ["link", "folder of links"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.__name__)
def test_nothing_foreign_is_read_listed_measured_or_changed(tmp_path: Path, operation: Operation, kind: str) -> None:
    arena, place = Arena(tmp_path, kind), tmp_path / OPERATIONS[operation]
    arena.fill(place)
    if operation is restore:
        restore(arena, place, 0)
    with swapping(place):
        until = time.monotonic() + SECONDS
        for number in range(1, ROUNDS):
            with suppress(*FAULTS):
                operation(arena, place, number)
            for trace in arena.traces(place):
                assert MARK not in trace
                assert str(SIZE).encode() not in trace
            shutil.rmtree(arena.out)
            arena.out.mkdir()
            if time.monotonic() > until:
                break
    assert picture(arena.foreign) == arena.before
