"""Digests are cached for folders whose files have not changed, and for no others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from skill_folders import make_skill

from askback.core.errors import NotFound
from askback.skills.files import Digests, contents_of, list_files
from askback.skills.library import DEMO, Library

MOST = 100


def later_ns() -> int:
    return time.time_ns() + 3_000_000_000


def write_again(folder: Path) -> None:
    """Other content of the same length, with the old modification time."""
    path = folder / "a.txt"
    before = path.stat()
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def put_another(folder: Path) -> None:
    (folder / "b.txt").write_text("two")
    (folder / "b.txt").rename(folder / "a.txt")


CHANGES: dict[str, Callable[[Path], object]] = {
    "written in place": write_again,
    "replaced": put_another,
    "added": lambda folder: (folder / "sub").mkdir() or (folder / "sub" / "c.txt").write_text(""),
    "removed": lambda folder: (folder / "a.txt").unlink(),
    "renamed": lambda folder: (folder / "a.txt").rename(folder / "z.txt"),
    "made a program": lambda folder: (folder / "a.txt").chmod(0o755),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_digest_is_recalled_until_a_file_has_changed(tmp_path: Path, change: str) -> None:
    folder = make_skill(tmp_path, files={"a.txt": "one"})
    digests = Digests(later_ns)
    assert digests.cached(folder, MOST) is None
    before = digests.of(folder, list_files(folder)[0])
    assert digests.cached(folder, MOST) == before == contents_of(list_files(folder)[0])[1]
    CHANGES[change](folder)
    assert digests.cached(folder, MOST) is None
    after = digests.of(folder, list_files(folder)[0])
    assert before != after == contents_of(list_files(folder)[0])[1]


def test_what_was_just_written_is_read_again(tmp_path: Path) -> None:
    folder = make_skill(tmp_path)
    digests = Digests()
    digests.of(folder, list_files(folder)[0])
    assert digests.cached(folder, MOST) is None


def test_a_folder_with_many_files_is_not_looked_through_while_others_wait(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, files={f"{number}.txt": "" for number in range(MOST)})
    digests = Digests(later_ns)
    digests.of(folder, list_files(folder)[0])
    assert digests.cached(folder, MOST) is None


def test_a_skill_that_was_used_before_is_at_hand(tmp_path: Path) -> None:
    library = Library(tmp_path / "data")
    assert library.find_cached(DEMO.name) is None
    kept = library.store(library.find(DEMO.name))
    assert library.find_cached(DEMO.name) is kept
    assert library.find_cached(str(DEMO)) is kept
    assert library.find_cached(str(DEMO), paths=False) is None
    installed = library.install(make_skill(tmp_path))
    assert library.find_cached(installed.id) is installed


def test_what_is_not_there_is_not_at_hand(tmp_path: Path) -> None:
    library = Library(tmp_path / "data")
    assert library.find_cached("nowhere") is None
    with pytest.raises(NotFound):
        library.find("nowhere")
    installed = library.install(make_skill(tmp_path))
    (tmp_path / "data" / "packages" / installed.digest).rename(tmp_path / "lost")
    assert library.find_cached(installed.id) is None
