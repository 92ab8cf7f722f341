"""The library: packages by content, installed skills by id, and finding by name or path."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from skill_folders import GOOD, make_skill

from askback.core.errors import Invalid, NotFound, RefusalCode, Unavailable
from askback.skills.archive import ZipLimits
from askback.skills.library import Library
from askback.skills.package import read_package


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def library(root: Path, tmp_path: Path) -> Library:
    return Library(root, (tmp_path / "mine",))


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The paths that this program opens."""
    paths: list[str] = []
    watching = True

    def note(event: str, given: tuple[object, ...]) -> None:
        if watching and event in ("open", "os.scandir", "os.listdir"):
            paths.append(str(given[0]))

    # A hook cannot be removed.
    sys.addaudithook(note)
    yield paths
    watching = False


def zip_of(folder: Path, path: Path, top: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, f"{top}{file.relative_to(folder)}")
    return path


def kept(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "packages").iterdir())


# Storing.


def test_a_kept_package_does_not_change_with_its_folder(library: Library, root: Path, tmp_path: Path) -> None:
    folder = make_skill(tmp_path, files={"a.txt": "one"})
    package = library.store(folder)
    (folder / "a.txt").write_text("two")
    changed = library.store(folder)
    assert kept(root) == sorted([package.digest, changed.digest])
    again = Library(root).package(package.digest)
    assert (again.folder / "a.txt").read_text() == "one"
    assert again == package


def test_keeping_twice_keeps_one(library: Library, root: Path, tmp_path: Path) -> None:
    folder = make_skill(tmp_path)
    assert library.store(folder) == library.store(read_package(folder)) == Library(root).store(folder)
    assert len(kept(root)) == 1


def test_a_copy_holds_what_counts_and_no_more(library: Library, tmp_path: Path) -> None:
    folder = make_skill(tmp_path, files={"run.sh": "x", ".git/config": "x", "__pycache__/x": "x", ".DS_Store": "x"})
    (folder / "run.sh").chmod(0o755)
    (folder / "empty").mkdir()
    package = library.store(folder)
    assert sorted(path.name for path in package.folder.iterdir()) == ["SKILL.md", "run.sh"]
    assert os.access(package.folder / "run.sh", os.X_OK)
    assert stat.S_IMODE(package.folder.stat().st_mode) == 0o700


def test_a_broken_folder_is_not_kept(library: Library, root: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        library.store(make_skill(tmp_path, files={".env": "x"}))
    assert not (root / "packages").exists()


def test_an_unknown_digest_is_not_found(library: Library) -> None:
    for digest in ("0" * 64, "../../etc", "", "x"):
        with pytest.raises(NotFound) as caught:
            library.package(digest)
        assert caught.value.code is RefusalCode.SKILL_NOT_FOUND


def test_a_package_that_was_changed_is_noticed_and_replaced(root: Path, tmp_path: Path) -> None:
    folder = make_skill(tmp_path)
    package = Library(root).store(folder)
    (package.folder / "SKILL.md").write_text(GOOD + "Something else.")
    with pytest.raises(Unavailable, match="damaged"):
        Library(root).package(package.digest)
    assert Library(root).store(folder) == package
    assert (package.folder / "SKILL.md").read_text() == GOOD


def test_many_who_keep_the_same_at_once_all_get_it(root: Path, tmp_path: Path) -> None:
    folder = make_skill(tmp_path, files={f"f{number}": "x" * 1000 for number in range(20)})
    found: list[str] = []
    barrier = threading.Barrier(8)

    def keep() -> None:
        barrier.wait()
        found.append(Library(root).store(folder).digest)

    threads = [threading.Thread(target=keep) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [read_package(folder).digest] * 8
    assert kept(root) == [found[0]]


def test_what_a_killed_program_left_is_swept_away(library: Library, root: Path, tmp_path: Path) -> None:
    old, young = root / "packages/.new-old", root / "packages/.new-young"
    for left in (old, young):
        left.mkdir(parents=True)
    os.utime(old, (0, 0))
    library.store(make_skill(tmp_path))
    assert not old.exists()
    assert young.exists()


def test_a_full_or_forbidden_disk_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable) as caught:
        Library(tmp_path / "file").store(make_skill(tmp_path))
    assert caught.value.code is RefusalCode.STORE_UNUSABLE


# Installing.


def test_a_folder_and_a_zip_install_the_same(library: Library, root: Path, tmp_path: Path) -> None:
    folder = make_skill(tmp_path, runner={"version": "1"})
    by_folder = library.install(folder)
    by_zip = library.install(zip_of(folder, tmp_path / "s.zip"))
    by_topped_zip = library.install(zip_of(folder, tmp_path / "t.zip", "good-skill/"))
    assert by_folder == by_zip == by_topped_zip
    assert len(library.installed()[0].versions) == 1
    assert kept(root) == [by_folder.digest]
    assert library.find("good-skill") == by_folder


def test_the_newest_version_is_the_current_one(library: Library, tmp_path: Path) -> None:
    one, two = (library.install(make_skill(tmp_path / v, runner={"version": v})) for v in ("1", "2"))
    assert library.find("good-skill") == two
    (listing,) = library.installed()
    assert [version.version for version in listing.versions] == ["1", "2"]
    library.install(one.folder)
    assert library.find("good-skill") == one


def test_a_bad_zip_installs_nothing(library: Library, root: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("../evil", "x")
    with zipfile.ZipFile(tmp_path / "broken.zip", "w") as archive:
        archive.writestr("SKILL.md", "no front matter")
    for name in ("bad.zip", "broken.zip"):
        with pytest.raises(Invalid) as caught:
            library.install(tmp_path / name)
        assert name in caught.value.message
    assert kept(root) == []
    assert library.installed() == []


def test_the_limits_of_the_settings_hold(root: Path, tmp_path: Path) -> None:
    path = zip_of(make_skill(tmp_path, files={"a": "x"}), tmp_path / "s.zip")
    with pytest.raises(Invalid, match="more than 1 entries"):
        Library(root, (), ZipLimits(entries=1)).install(path)


@pytest.mark.parametrize("name", ["nowhere.zip", "x" * 5000, "a\0b"])
def test_installing_nothing_is_not_found(library: Library, tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound):
        library.install(tmp_path / name)


def test_a_removed_skill_is_gone_but_its_package_stays_for_its_runs(library: Library, tmp_path: Path) -> None:
    package = library.install(make_skill(tmp_path))
    library.remove("good-skill")
    assert library.installed() == []
    assert library.package(package.digest) == package
    for name in ("good-skill", "../skills/x", ""):
        with pytest.raises(NotFound):
            library.remove(name)


def test_a_skill_of_a_skill_folder_is_not_removed_and_the_message_says_why(library: Library, tmp_path: Path) -> None:
    folder = make_skill(tmp_path / "mine")
    with pytest.raises(NotFound) as refused:
        library.remove("good-skill")
    assert refused.value.code is RefusalCode.SKILL_NOT_FOUND
    assert refused.value.message == "skill 'good-skill' is not installed; remove it from its folder in `skills_dir`"
    assert folder.is_dir()


def test_programs_that_install_at_once_lose_no_version(root: Path, tmp_path: Path) -> None:
    folders = [make_skill(tmp_path / str(n), runner={"version": str(n)}) for n in range(4)]
    code = "import sys; from pathlib import Path; from askback.skills.library import Library; Library(Path(sys.argv[1])).install(Path(sys.argv[2]))"
    programs = [subprocess.Popen([sys.executable, "-c", code, str(root), str(folder)]) for folder in folders]
    assert [program.wait() for program in programs] == [0] * 4
    (listing,) = Library(root).installed()
    assert sorted(str(version.version) for version in listing.versions) == ["0", "1", "2", "3"]


# Listing.


def test_the_entry_of_one_skill_is_made_without_reading_the_others(
    library: Library, opened: list[str], tmp_path: Path
) -> None:
    for name in ("one", "two", "three"):
        make_skill(tmp_path / "mine", name)
    library.install(make_skill(tmp_path, "four"))
    listed = {each.id: each for each in (*library.installed(), *library.in_folders())}
    for name in ("one", "four"):
        opened.clear()
        assert library.listing(library.find(name, paths=False)) == listed[name]
        assert not [path for path in opened if "/mine/t" in path]
    opened.clear()
    library.in_folders()
    assert any("/mine/two" in path for path in opened)


def test_broken_skills_are_listed_with_their_problem(library: Library, root: Path, tmp_path: Path) -> None:
    make_skill(tmp_path / "mine", "fine")
    make_skill(tmp_path / "mine", "broken", text="nothing")
    (tmp_path / "mine/no-skill").mkdir()
    (tmp_path / "mine/file").write_text("x")
    package = library.install(make_skill(tmp_path, "installed"))
    (root / "skills/odd.json").write_text("{")
    broken, fine = library.in_folders()
    assert (broken.id, broken.package) == ("broken", None)
    assert "front matter" in (broken.problem or "")
    assert (fine.id, fine.problem) == ("fine", None)
    (package.folder / "SKILL.md").unlink()
    installed, odd = Library(root).installed()
    assert installed.id == "installed"
    assert installed.problem
    assert (odd.id, odd.problem) == ("odd", "its entry cannot be read; install it again")


def test_a_skills_folder_that_is_not_there_is_empty(root: Path, tmp_path: Path) -> None:
    library = Library(root, (tmp_path / "nowhere",))
    assert (library.installed(), library.in_folders()) == ([], [])


# Finding.


def test_a_folder_is_found_by_its_path(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_skill(tmp_path)
    monkeypatch.chdir(folder)
    for name in (str(folder), ".", "../good-skill", f"{folder}/", f"{folder}/SKILL.md"):
        assert library.find(name).folder == folder


def test_names_are_looked_up_among_installed_then_folders_then_here(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = make_skill(tmp_path / "here", "a-skill", files={"x": "here"})
    monkeypatch.chdir(tmp_path / "here")
    assert library.find("a-skill").folder == here
    mine = make_skill(tmp_path / "mine", "a-skill", files={"x": "mine"})
    assert library.find("a-skill").folder == mine
    installed = library.install(make_skill(tmp_path, "a-skill"))
    assert library.find("a-skill") == installed


def test_a_skill_of_a_skill_folder_is_found_by_the_id_that_it_is_listed_under(library: Library, tmp_path: Path) -> None:
    folder = make_skill(tmp_path / "mine", "checkout-7", files={"assets/runner.json": '{"id": "trip.planner"}'})
    (listed,) = library.in_folders()
    assert listed.id == "trip.planner"
    assert library.find("trip.planner", paths=False).folder == folder
    assert library.find("checkout-7", paths=False).folder == folder


def test_without_paths_only_names_count(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_skill(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in (str(folder), ".", "./good-skill", "good-skill", "../x", "mine/../good-skill"):
        with pytest.raises(NotFound):
            library.find(name, paths=False)
    mine = make_skill(tmp_path / "mine")
    assert library.find("good-skill", paths=False).folder == mine


def test_an_unknown_name_says_what_is_near_and_what_to_do(library: Library, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="none is installed"):
        library.find("x")
    library.install(make_skill(tmp_path, "garden-planner"))
    with pytest.raises(NotFound) as caught:
        library.find("garden-planer")
    assert caught.value.code is RefusalCode.SKILL_NOT_FOUND
    assert "did you mean 'garden-planner'?" in caught.value.message
    with pytest.raises(NotFound, match=r"known: garden-planner; a folder is named by its path"):
        library.find("zzz")
    for name in ("garden-planer", "zzz"):
        with pytest.raises(NotFound) as caught:
            library.find(name, paths=False)
        assert "garden-planner" in caught.value.message
        assert "folder" not in caught.value.message


@pytest.mark.parametrize(
    "name", ["", "/", "a/b", "x/" * 3000, "a\0b/", "\ud800", "~nobody/x", "..", "-x", "/dev/null", "SKILL.md/"]
)
def test_odd_names_are_refused_and_never_raise_otherwise(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "empty/inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty/inner")
    with pytest.raises((NotFound, Invalid)):
        library.find(name)


def test_a_zip_is_to_be_installed_first(library: Library, tmp_path: Path) -> None:
    path = zip_of(make_skill(tmp_path), tmp_path / "s.zip")
    with pytest.raises(Invalid, match="askback skills install"):
        library.find(str(path))


def test_the_names_are_those_of_installed_skills_and_of_folders(root: Path, tmp_path: Path) -> None:
    library = Library(root, (tmp_path / "mine", tmp_path / "nowhere"))
    assert library.names() == []
    library.install(make_skill(tmp_path, "installed-one"))
    make_skill(tmp_path / "mine", "in-folder")
    (tmp_path / "mine" / "no-skill").mkdir()
    assert library.names() == ["in-folder", "installed-one"]


def test_the_demo_is_named_to_whoever_mistypes_it(tmp_path: Path) -> None:
    library = Library(tmp_path / "data")
    with pytest.raises(NotFound, match="did you mean 'trip-planner'"):
        library.find("trip-planer")
    with pytest.raises(NotFound, match="none is installed"):
        library.find("something-else")
