"""The home before a turn: it is restored after anything that an engine, a full disk or a kill does to it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from askback.core.errors import RefusalCode, Unavailable
from askback.fs.beneath import remove_tree
from askback.workspace import snapshots
from askback.workspace.manifests import SnapshotDamaged
from askback.workspace.snapshots import (
    HomeChangedWhileSaving,
    begin_live_turn,
    begin_turn,
    save_between_turns,
    save_early,
)
from askback.workspace.workspaces import Workspaces

NOBODY = 65534
TICK_NS = 20_000_000


class House:
    """A run's home and its snapshots."""

    def __init__(self, root: Path) -> None:
        self.home, self.snapshots = root / "home", root / "snapshots"
        self.home.mkdir(parents=True, exist_ok=True)
        self.snapshots.mkdir(exist_ok=True)

    def begin(self, attempt_number: int) -> None:
        begin_turn(self.home, self.snapshots, attempt_number)

    def save_early(self, attempt_number: int) -> None:
        save_early(self.home, self.snapshots, attempt_number)

    def write(self, path: str, content: str) -> Path:
        full = self.home / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(content)
        return full

    def manifest(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.snapshots / "manifest.json").read_bytes())
        return content

    def copy_of(self, path: str) -> Path:
        return self.snapshots / "files" / str(self.manifest()["files"][path][0])

    def copies(self) -> set[str]:
        return {path.name for path in (self.snapshots / "files").iterdir()}

    def let_age(self) -> None:
        """Wait until the file system's clock has advanced, so that a change gets a new time."""
        newest = max(path.lstat().st_ctime_ns for path in self.home.rglob("*"))
        probe = self.home.parent / "probe"
        while True:
            probe.touch()
            if probe.stat().st_ctime_ns > newest + 2 * TICK_NS:
                return
            time.sleep(0.005)


def picture(home: Path, *, times: bool = True) -> dict[str, tuple[Any, ...]]:
    """Everything that a restore must bring back, by path. Links are not followed, and locked folders not entered."""
    found: dict[str, tuple[Any, ...]] = {}
    pending = [home]
    while pending:
        path = pending.pop()
        status = path.lstat()
        content: object = None
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)  # noqa: PTH115
        elif stat.S_ISDIR(status.st_mode):
            pending += path.iterdir() if status.st_mode & 0o500 == 0o500 else []
        else:
            with readable(path) if not status.st_mode & 0o400 else nullcontext():
                content = path.read_bytes()
        found[str(path.relative_to(home))] = (status.st_mode, content, status.st_mtime_ns if times else 0)
    return found


@contextmanager
def readable(path: Path) -> Iterator[None]:
    mode = stat.S_IMODE(path.lstat().st_mode)
    path.chmod(mode | 0o400)
    yield
    path.chmod(mode)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
def plain_house() -> Iterator[House]:
    """Without the rights of root, who may read and write locked files."""
    root, user = Path(tempfile.mkdtemp(prefix="askback-house-")), os.geteuid()
    if user == 0:
        os.chown(root, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield House(root)
    finally:
        os.seteuid(user)
        remove_tree(root)


def test_a_turn_that_is_taken_up_again_starts_from_before_it(house: House) -> None:
    house.write("session", "question")
    house.begin(2)
    with (house.home / "session").open("a") as session:
        session.write(" reply")
    house.write("new/deep", "left by the first try")
    house.begin(2)
    assert (house.home / "session").read_text() == "question"
    assert not (house.home / "new").exists()


def test_the_next_turn_keeps_what_the_one_before_it_wrote(house: House) -> None:
    house.begin(1)
    house.write("session", "turn 1")
    house.begin(2)
    house.write("session", "turn 2, first try")
    house.begin(2)
    assert (house.home / "session").read_text() == "turn 1"


def test_the_snapshot_is_a_copy_and_not_a_link(house: House) -> None:
    session = house.write("session", "before")
    house.begin(1)
    assert house.copy_of("session").stat().st_ino != session.stat().st_ino
    with session.open("r+") as file:
        file.write("AFTER!")
    assert house.copy_of("session").read_text() == "before"


def test_only_what_changed_is_copied_again(house: House) -> None:
    for name in ("same", "changed", "removed"):
        house.write(name, "before")
    house.let_age()
    house.begin(1)
    same, changed, removed = (house.copy_of(name) for name in ("same", "changed", "removed"))
    house.write("changed", "after!")
    (house.home / "removed").unlink()
    house.begin(2)
    assert house.copy_of("same") == same
    assert house.copy_of("changed") != changed
    assert house.copies() == {same.name, house.copy_of("changed").name}
    assert not removed.exists()


def test_a_change_that_keeps_size_and_time_of_a_file_is_seen(house: House) -> None:
    session = house.write("session", "before")
    house.let_age()
    house.begin(1)
    status = session.stat()
    session.write_text("AFTER!")
    os.utime(session, ns=(status.st_atime_ns, status.st_mtime_ns))
    house.begin(2)
    assert house.copy_of("session").read_text() == "AFTER!"


def test_a_file_written_in_the_tick_of_the_snapshot_counts_as_changed(house: House) -> None:
    house.write("old", "before")
    house.let_age()
    for attempt_number in count(1):
        fresh = house.write("fresh", "before")
        house.begin(attempt_number)
        if (house.snapshots / "clock").stat().st_ctime_ns - fresh.stat().st_ctime_ns < TICK_NS:
            break
    old_copy, fresh_copy, inode = house.copy_of("old"), house.copy_of("fresh"), fresh.stat().st_ino
    house.begin(attempt_number)
    assert fresh.stat().st_ino != inode
    house.begin(attempt_number + 1)
    assert house.copy_of("old") == old_copy
    assert house.copy_of("fresh") != fresh_copy


def test_a_restore_leaves_alone_what_is_the_same_and_notes_what_it_rewrote(house: House) -> None:
    same, changed = house.write("same", "before"), house.write("changed", "before")
    house.let_age()
    house.begin(1)
    inode = same.stat().st_ino
    changed.write_text("after!")
    house.begin(1)
    assert same.stat().st_ino == inode
    assert changed.read_text() == "before"
    assert house.manifest()["files"]["changed"][-1] == changed.stat().st_ino


def test_a_hostile_home_comes_back_as_it_was(plain_house: House) -> None:
    house = plain_house
    home, outside = house.home, house.home.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_text("the user's own")
    house.write("two\nlines", "a")
    Path(os.fsdecode(os.fsencode(home) + b"/no text \xff\xfe")).write_text("b")
    (home / "empty" / "folder").mkdir(parents=True)
    (home / "link to a file").symlink_to(outside / "precious")
    (home / "link to a folder").symlink_to(outside)
    (home / "untidy").symlink_to(".//nowhere/../x/")
    house.write("locked/inside/file", "c")
    (house.home / "locked" / "inside").chmod(0o555)
    (house.home / "locked").chmod(0)
    house.write("unreadable", "d").chmod(0)
    house.write("tool", "#!/bin/sh").chmod(0o755)
    with (home / "sparse").open("wb") as file:
        file.seek(1 << 26)
        file.write(b"end")
        file.truncate(1 << 27)
    before = picture(home)
    house.begin(1)
    assert picture(home) == before
    assert (house.snapshots / "files").stat().st_mode & 0o077 == 0
    assert sum(path.stat().st_blocks * 512 for path in (house.snapshots / "files").iterdir()) < 1 << 22

    (home / "locked").chmod(0o700)
    (home / "locked" / "inside").chmod(0o700)
    (home / "locked" / "inside" / "file").write_text("C")
    (home / "locked" / "inside").chmod(0)
    (home / "locked").chmod(0o100)
    (home / "link to a folder").unlink()
    (home / "link to a folder").mkdir()
    (home / "link to a folder" / "precious").write_text("in the way")
    (home / "empty" / "folder").rmdir()
    (home / "empty" / "folder").symlink_to(outside)
    (home / "tool").unlink()
    (home / "tool").mkdir(mode=0)
    (home / "untidy").unlink()
    (home / "untidy").symlink_to("x")
    (home / "sparse").unlink()
    house.begin(1)
    assert picture(home) == before
    assert (outside / "precious").read_text() == "the user's own"
    (home / "locked").chmod(0o700)
    assert (home / "locked" / "inside" / "file").read_text() == "c"
    assert stat.S_IMODE((home / "locked" / "inside").stat().st_mode) == 0o555


def test_sockets_and_pipes_are_left_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.write("session", "before")
    monkeypatch.chdir(house.home)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        house.begin(1)
    house.begin(1)
    assert [path.name for path in house.home.iterdir()] == ["session"]


def test_folders_deeper_than_the_stack_are_saved_restored_measured_and_removed(tmp_path: Path) -> None:
    house, workspaces = House(tmp_path / "run"), Workspaces(tmp_path)
    deepest = house.home
    for _ in range(1_200):
        deepest /= "d"
        deepest.mkdir()
    (deepest / "session").write_text("before")
    house.begin(1)
    remove_tree(house.home)
    house.begin(1)
    assert (deepest / "session").read_text() == "before"
    with_session = workspaces.sizes()["run"]
    (deepest / "session").unlink()
    assert workspaces.sizes()["run"] < with_session
    workspaces.remove("run")
    assert not (tmp_path / "run").exists()


def test_a_link_in_the_place_of_the_home_is_not_followed(house: House, tmp_path: Path) -> None:
    house.write("session", "before")
    house.begin(1)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(house.home, elsewhere)
    (elsewhere / "precious").write_text("the user's own")
    remove_tree(house.home)
    house.home.symlink_to(elsewhere)
    with pytest.raises(NotADirectoryError):
        house.begin(2)
    house.begin(1)
    assert not house.home.is_symlink()
    assert (house.home / "session").read_text() == "before"
    assert (elsewhere / "precious").read_text() == "the user's own"


def test_what_is_linked_to_a_file_of_the_home_is_not_written_to(house: House, tmp_path: Path) -> None:
    session = house.write("session", "before")
    house.begin(1)
    session.write_text("after")
    (tmp_path / "kept by the user").hardlink_to(session)
    house.begin(1)
    assert (tmp_path / "kept by the user").read_text() == "after"


def test_a_file_that_is_gone_meanwhile_is_left_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.write("going", "a")
    house.write("staying", "b")
    real = os.open

    def racing(path: Any, *args: Any, **more: Any) -> int:
        if str(path).endswith("going"):
            with suppress(FileNotFoundError):
                os.unlink(path, dir_fd=more.get("dir_fd"))
        return real(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", racing)
        house.begin(1)
    house.write("going", "left by the first try")
    house.begin(1)
    assert [path.name for path in house.home.iterdir()] == ["staying"]


@contextmanager
def full_disk() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_snapshot_before_it_whole(house: House) -> None:
    house.write("session", "before")
    house.begin(1)
    copies = house.copies()
    house.write("session", "after")
    house.write("small", "fits")
    house.write("large", "x" * 200_000)
    with full_disk(), pytest.raises(Unavailable) as refusal:
        house.begin(2)
    assert refusal.value.code is RefusalCode.DISK_FULL
    assert house.copies() == copies
    house.begin(1)
    assert picture(house.home, times=False).keys() == {".", "session"}
    assert (house.home / "session").read_text() == "before"


def test_a_disk_that_is_full_when_restoring_can_be_made_room_on(house: House) -> None:
    house.write("large", "x" * 200_000)
    before = picture(house.home)
    house.begin(1)
    house.write("large", "y" * 50_000)
    with full_disk(), pytest.raises(Unavailable):
        house.begin(1)
    house.begin(1)
    assert picture(house.home) == before


@pytest.mark.parametrize("damage", ["manifest", "unknown format", "copy missing", "copy cut off"])
def test_a_damaged_snapshot_is_told_and_not_taken_for_none(house: House, damage: str) -> None:
    house.write("session", "before")
    house.begin(1)
    match damage:
        case "manifest":
            (house.snapshots / "manifest.json").write_text('{"format":1,')
        case "unknown format":
            (house.snapshots / "manifest.json").write_text('{"format":99}')
        case "copy missing":
            house.copy_of("session").unlink()
        case "copy cut off":
            house.copy_of("session").write_text("bef")
    house.write("session", "after")
    with pytest.raises(SnapshotDamaged, match="start a new one"):
        house.begin(1)


def test_all_that_a_manifest_names_is_durable_before_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power failure could leave a manifest whose copies are empty."""
    session, old = house.write("session", "before"), house.write("old", "before")
    house.let_age()
    durable: set[int] = set()
    seen: list[set[int]] = []
    sync, replace = os.fsync, os.replace

    def syncing(fd: int) -> None:
        sync(fd)
        durable.add(os.fstat(fd).st_ino)

    def replacing(source: Any, target: Any, **more: Any) -> None:
        if Path(target).name == "manifest.json":
            wanted = {Path(source).stat().st_ino, (house.snapshots / "files").stat().st_ino}
            wanted |= {path.stat().st_ino for path in (house.snapshots / "files").iterdir()}
            wanted |= {session.stat().st_ino, old.stat().st_ino}
            seen.append(wanted - durable)
            durable.discard(house.snapshots.stat().st_ino)
        replace(source, target, **more)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    house.begin(1)
    session.write_text("after!")
    house.begin(1)
    house.write("session", "turn 1")
    house.let_age()
    house.begin(2)
    assert seen == [set(), set(), set()]
    assert house.snapshots.stat().st_ino in durable


@pytest.mark.contract("B-4")
def test_a_home_that_was_saved_early_is_not_copied_again_and_is_restored(house: House) -> None:
    house.write("session", "question")
    house.write("untouched", "same")
    house.let_age()
    house.save_early(2)
    saved, inode = house.copies(), (house.home / "untouched").stat().st_ino
    house.begin(2)
    assert house.copies() == saved
    assert (house.home / "untouched").stat().st_ino == inode
    house.write("session", "question and half an answer")
    house.begin(2)
    assert (house.home / "session").read_text() == "question"


@pytest.mark.contract("B-4")
def test_an_early_save_that_comes_late_changes_nothing(house: House) -> None:
    house.write("session", "first question")
    house.begin(2)
    house.write("session", "second question")
    house.begin(3)
    house.write("session", "half an answer")
    for late in (2, 3):
        house.save_early(late)
    house.begin(3)
    assert (house.home / "session").read_text() == "second question"


CUT = """
import os, signal, sys
from itertools import count
from pathlib import Path
from askback.workspace.snapshots import begin_turn
from askback.workspace.workspaces import Workspaces

root, attempt = Path(sys.argv[1]), int(sys.argv[2])
STEPS = "open fsync replace unlink mkdir rmdir utime chmod fchmod symlink copy_file_range ftruncate".split()

def fill(home):
    (home / "folder").mkdir(parents=True)
    for name in ("same", "grows", "goes", "folder/changes", "turns"):
        (home / name).write_text("before " + name)
    (home / "link").symlink_to("same")

def change(home):
    with (home / "grows").open("a") as file:
        file.write(" after")
    (home / "goes").unlink()
    (home / "folder" / "changes").write_text("AFTER! folder/changes")
    (home / "turns").unlink()
    (home / "turns" / "into").mkdir(parents=True)
    (home / "turns" / "into" / "new").write_text("after")
    (home / "link").unlink()
    (home / "link").symlink_to("grows")
    (home / "folder").chmod(0o750)

def arm(step):
    left = [step]
    def armed(real):
        def cut(*args, **more):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **more)
        return cut
    for name in STEPS:
        setattr(os, name, armed(getattr(os, name)))

for step in count(1):
    home, snapshots = root / str(step) / "home", root / str(step) / "snapshots"
    fill(home)
    snapshots.mkdir()
    begin_turn(home, snapshots, 1)
    change(home)
    if (child := os.fork()) == 0:
        arm(step)
        begin_turn(home, snapshots, attempt)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


def cut_at_every_step(root: Path, attempt_number: int) -> list[House]:
    """A first turn, a home changed by it, and then `begin_turn` killed before its first, second, third ... call."""
    root.mkdir()
    subprocess.run([sys.executable, "-c", CUT, str(root), str(attempt_number)], check=True, timeout=120)
    houses = [House(each) for each in sorted(root.iterdir(), key=lambda each: int(each.name))]
    assert len(houses) > 20
    return houses


@pytest.mark.contract("B-4")
def test_a_save_killed_at_any_step_leaves_the_old_snapshot_or_the_new_one_whole(tmp_path: Path) -> None:
    houses = cut_at_every_step(tmp_path / "cut", 2)
    after = picture(houses[-1].home, times=False)
    before = restored(houses[0], 1)
    kept = set()
    for house in houses[1:]:
        assert picture(house.home, times=False) == after
        attempt_number = house.manifest()["attempt_number"]
        kept.add(attempt_number)
        again = House(shutil.copytree(house.home.parent, tmp_path / "again", symlinks=True))
        again.begin(2)
        assert restored(again, 2) == after
        remove_tree(tmp_path / "again")
        assert restored(house, attempt_number) == (before if attempt_number == 1 else after)
    assert kept == {1, 2}
    assert before != after


@pytest.mark.contract("B-4")
def test_a_restore_killed_at_any_step_can_be_done_again(tmp_path: Path) -> None:
    houses = cut_at_every_step(tmp_path / "cut", 1)
    before = picture(houses[-1].home, times=False)
    assert before["grows"][1] == b"before grows"
    assert any(picture(house.home, times=False) != before for house in houses)
    for house in houses:
        house.begin(1)
        assert picture(house.home, times=False) == before


def restored(house: House, attempt_number: int) -> dict[str, tuple[Any, ...]]:
    """The restored home after another try has damaged everything."""
    for path in [path for path in house.home.rglob("*") if path.is_file() and not path.is_symlink()]:
        path.write_text("spoilt")
    house.begin(attempt_number)
    return picture(house.home, times=False)


# A home whose process is alive.


def test_a_turn_in_a_living_process_is_restored_to_the_moment_before_it(house: House) -> None:
    house.write("session", "one")
    save_between_turns(house.home, house.snapshots)
    house.write("session", "one, and the rest that was written late")
    begin_live_turn(house.home, house.snapshots, 2)
    house.write("session", "one, two")
    house.begin(2)
    assert (house.home / "session").read_text() == "one, and the rest that was written late"


def test_what_was_saved_between_turns_is_never_restored(house: House) -> None:
    house.write("session", "one")
    save_between_turns(house.home, house.snapshots)
    house.write("session", "one, and the rest that was written late")
    house.begin(2)
    house.write("session", "two")
    house.begin(2)
    assert (house.home / "session").read_text() == "one, and the rest that was written late"


def test_what_was_saved_between_turns_is_not_copied_again(house: House) -> None:
    house.write("session", "one")
    house.let_age()
    save_between_turns(house.home, house.snapshots)
    saved = house.copies()
    begin_live_turn(house.home, house.snapshots, 2)
    assert house.copies() == saved


def test_a_home_that_changes_meanwhile_is_not_saved(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.write("session", "one")
    house.begin(1)
    before = house.manifest()
    listed = snapshots.list_tree

    def list_and_write(*words: Any) -> Any:
        found = listed(*words)
        house.write("session", f"one, and {time.monotonic_ns()}")
        return found

    monkeypatch.setattr(snapshots, "list_tree", list_and_write)
    with pytest.raises(HomeChangedWhileSaving, match="session"):
        begin_live_turn(house.home, house.snapshots, 2)
    assert house.manifest() == before


def test_temporary_files_that_come_and_go_meanwhile_do_not_matter(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.write("session", "one")
    house.write("cache/old", "")
    listed, created = snapshots.list_tree, count()

    def list_and_create(*words: Any) -> Any:
        found = listed(*words)
        house.write(f"cache/{next(created)}", "")
        (house.home / "cache/old").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(snapshots, "list_tree", list_and_create)
    begin_live_turn(house.home, house.snapshots, 2)
    assert "session" in house.manifest()["files"]


def test_files_that_are_left_out_are_in_no_copy(house: House) -> None:
    house.write("session", "one")
    house.write("auth.json", "secret")
    begin_live_turn(house.home, house.snapshots, 2, leave_out=["auth.json"])
    assert set(house.manifest()["files"]) == {"session"}
    assert not any("secret" in path.read_text() for path in (house.snapshots / "files").iterdir())
