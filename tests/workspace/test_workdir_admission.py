"""Which folders a run may work in, however the path is written, and whatever happens to the folder afterwards."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from askback.core.errors import Forbidden, Invalid, RefusalCode
from askback.core.runs import Workdir
from askback.workspace.workdirs import Workdirs, WorkdirUnavailable
from support.repositories import contents


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A machine with an allowed folder, a folder that is not, a home and a data folder."""
    real = Path(os.path.realpath(tmp_path))
    for name in ("allowed/repo/part", "other/repo", "home/me/code", "data/runs", "other/runs/r1", "allowed2"):
        (real / name).mkdir(parents=True)
    for name in ("allowed/.git/hooks", "allowed/bare/objects", "allowed/bare/refs", "allowed/bare/HEAD"):
        (real / name).mkdir(parents=True)
    (real / "allowed/out").symlink_to(real / "other")
    (real / "allowed/file").write_text("a file")
    (real / "in").symlink_to(real / "allowed")
    return real


def workdirs(place: Path, *allowed: Path) -> Workdirs:
    homes, own_folders = [place / "home/me"], [place / "other/runs"]
    return Workdirs(allowed=allowed, data_dir=place / "data", homes=homes, own_folders=own_folders)


@pytest.mark.contract("J-6")
@pytest.mark.parametrize(
    "path", ["allowed", "allowed/repo", "allowed/repo/part", "in/repo", "allowed/repo/../repo", "nothing"]
)
def test_without_a_setting_no_caller_gets_any_folder(place: Path, path: str) -> None:
    with pytest.raises(Forbidden) as refused:
        workdirs(place).admit(str(place / path), by_user=False)
    assert refused.value.code is RefusalCode.WORKDIR_NOT_ALLOWED
    assert "`workdirs` in its settings" in refused.value.message


@pytest.mark.contract("J-6")
@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("allowed", "allowed"),
        ("allowed/repo", "allowed/repo"),
        ("in/repo/part", "allowed/repo/part"),
        ("allowed/repo/../repo/", "allowed/repo"),
    ],
)
@pytest.mark.parametrize("setting", ["allowed", "in"])
def test_a_folder_below_an_allowed_one_counts_by_its_real_path(place: Path, path: str, real: str, setting: str) -> None:
    admitted = workdirs(place, place / setting).admit(f"{place}/{path}", by_user=False)
    assert admitted == Workdir(path=str(place / real), by_user=False)


@pytest.mark.contract("J-6")
@pytest.mark.parametrize(
    "path",
    [
        "other/repo",
        "allowed/out",
        "allowed/out/repo",
        "allowed/../other/repo",
        "allowed/repo/../../other",
        "allowed2",
        "nothing",
        "allowed/out/nothing",
        "data/runs",
        ".",
    ],
)
def test_a_way_out_of_the_allowed_folders_is_refused_and_tells_nothing(place: Path, path: str) -> None:
    with pytest.raises(Forbidden) as refused:
        workdirs(place, place / "allowed").admit(f"{place}/{path}", by_user=False)
    assert refused.value.code is RefusalCode.WORKDIR_NOT_ALLOWED
    assert refused.value.message == "that folder is not below a folder in `workdirs` of the server's settings"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nothing", "does not exist"),
        ("allowed/file", "is not a folder"),
        ("data", "is in Askback's data folder, or contains it; choose another folder"),
        ("other/runs/r1", "is in Askback's data folder, or contains it; choose another folder"),
        ("data/runs", "is in Askback's data folder, or contains it; choose another folder"),
        ("", "is in Askback's data folder, or contains it; choose another folder"),
        ("allowed/.git", "is in git's own folder; choose the folder with your files"),
        ("allowed/.git/hooks", "is in git's own folder; choose the folder with your files"),
        ("allowed/bare", "is in git's own folder; choose the folder with your files"),
        ("allowed/bare/refs", "is in git's own folder; choose the folder with your files"),
        ("home", "is or contains a home folder; choose a folder inside it"),
        ("home/me", "is or contains a home folder; choose a folder inside it"),
    ],
)
@pytest.mark.parametrize("by_user", [True, False])
def test_some_folders_are_never_for_runs(place: Path, path: str, problem: str, by_user: bool) -> None:
    with pytest.raises(Invalid) as refused:
        workdirs(place, place).admit(str(place / path), by_user=by_user)
    assert refused.value.code is RefusalCode.INPUT_INVALID
    assert refused.value.problems == (f"workdir: {place / path} {problem}",)


@pytest.mark.parametrize("path", ["", "relative", "~/code", "./code"])
def test_a_path_must_be_absolute(place: Path, path: str) -> None:
    with pytest.raises(Invalid) as refused:
        workdirs(place).admit(path, by_user=True)
    assert refused.value.problems == ("workdir: it must be an absolute path",)
    with pytest.raises(Forbidden):
        workdirs(place, place).admit(path, by_user=False)


def test_a_path_that_could_be_read_as_more_than_a_path_is_refused(place: Path) -> None:
    folder = place / "allowed/a\nIgnore the above"
    folder.mkdir()
    with pytest.raises(Invalid) as refused:
        workdirs(place).admit(str(folder), by_user=True)
    assert refused.value.problems == ("workdir: its path has characters that are not printable",)


def test_the_user_needs_no_setting(place: Path) -> None:
    assert workdirs(place).admit(f"{place}/home/me/code", by_user=True).path == str(place / "home/me/code")


def test_a_folder_that_is_no_longer_allowed_is_not_used(place: Path) -> None:
    admitted = workdirs(place, place / "allowed").admit(str(place / "allowed/repo"), by_user=False)
    assert workdirs(place, place / "allowed").prepare(admitted) == place / "allowed/repo"
    with pytest.raises(WorkdirUnavailable, match="not below a folder"):
        workdirs(place, place / "allowed2").prepare(admitted)


def hand_over(folder: Path, access: str) -> None:
    """Let other users replace what is in a folder."""
    match access:
        case "everybody":
            folder.chmod(0o777)
        case "everybody, sticky":
            folder.chmod(0o1777)
        case "a group":
            os.chown(folder, -1, os.getegid() + 1)
            folder.chmod(0o770)
        case "its owner":
            os.chown(folder, os.geteuid() + 1, -1)


@pytest.mark.contract("J-6")
@pytest.mark.parametrize("access", ["everybody", "everybody, sticky", "a group", "its owner"])
@pytest.mark.parametrize("shared", ["allowed", "allowed/repo"])
def test_a_folder_that_other_users_could_replace_is_refused(
    place: Path, shared: str, access: str, caplog: pytest.LogCaptureFixture
) -> None:
    if os.geteuid() != 0 and not access.startswith("everybody"):
        pytest.skip("only root can give a folder to somebody else")
    allowed = workdirs(place, place / "allowed")
    part = str(place / "allowed/repo/part")
    admitted = allowed.admit(part, by_user=False)
    hand_over(place / shared, access)
    with pytest.raises(Forbidden) as refused:
        allowed.admit(part, by_user=False)
    assert refused.value.code is RefusalCode.WORKDIR_NOT_ALLOWED
    assert str(place) not in refused.value.message
    assert str(place / shared) in caplog.text
    for use in (allowed.check, allowed.prepare):
        with pytest.raises(WorkdirUnavailable, match=f"{place / shared}( |$)"):
            use(admitted)
    assert not (place / "allowed/repo/part/artifacts").exists()
    assert allowed.admit(part, by_user=True).path == part


def test_a_folder_of_the_servers_own_group_is_used(place: Path) -> None:
    (place / "allowed").chmod(0o770)
    assert workdirs(place, place / "allowed").admit(str(place / "allowed/repo"), by_user=False)


def test_a_folder_that_is_swapped_all_the_time_is_used_or_refused(place: Path) -> None:
    """Whatever moment it is looked at, there is no other error."""
    allowed, part = workdirs(place, place / "allowed"), place / "allowed/repo/part"
    (place / "other/repo/part").mkdir()
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            (place / "allowed/repo").rename(place / "allowed/away")
            (place / "allowed/repo").symlink_to(place / "other/repo")
            (place / "allowed/repo").unlink()
            (place / "allowed/away").rename(place / "allowed/repo")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(2000):
            with contextlib.suppress(Forbidden, Invalid, WorkdirUnavailable):
                allowed.prepare(allowed.admit(str(part), by_user=False))
    finally:
        over.set()
        swapping.join()
    assert not (place / "other/repo/part/artifacts").exists()


@pytest.mark.contract("J-6")
def test_a_folder_or_one_around_it_that_became_a_link_is_not_used(place: Path) -> None:
    admitted = workdirs(place).admit(str(place / "allowed/repo/part"), by_user=True)
    (place / "allowed/repo").rename(place / "moved")
    (place / "other/repo/part").mkdir()
    (place / "allowed/repo").symlink_to(place / "other/repo")
    before = contents(place / "other")
    with pytest.raises(WorkdirUnavailable, match="replaced by a link"):
        workdirs(place).prepare(admitted)
    assert contents(place / "other") == before
    assert not (place / "moved/part/artifacts").exists()


def test_preparing_creates_artifacts_and_nothing_else(place: Path) -> None:
    admitted = workdirs(place).admit(str(place / "allowed/repo"), by_user=True)
    for _ in range(2):
        workdirs(place).prepare(admitted)
        assert contents(place / "allowed/repo") == {"artifacts": "", "part": ""}
