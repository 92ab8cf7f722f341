"""Sign-ins lent to runs and taken back, so that runs side by side do not sign each other out."""

import os
import resource
import threading
from pathlib import Path

import pytest

from askback.process.credentials import Credentials

NAME = ".engine/auth.json"


def credentials(folder: Path) -> Credentials:
    source = folder / "user"
    (source / ".engine").mkdir(parents=True)
    (source / NAME).write_text("first")
    (source / ".engine" / "history.jsonl").write_text("private")
    return Credentials(source=source, names=(NAME, ".engine/absent.json"), lock=folder / "lock")


def home(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_only_the_named_files_are_lent_and_only_the_user_may_read_them(tmp_path: Path) -> None:
    run = home(tmp_path, "run")
    credentials(tmp_path).lend(run)
    assert [path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()] == [NAME]
    assert (run / NAME).stat().st_mode & 0o077 == 0


def test_a_renewed_sign_in_goes_back_once(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    loan = owned.lend(run)
    (run / NAME).write_text("second")
    assert loan.end() == [NAME]
    assert (owned.source / NAME).read_text() == "second"
    assert loan.end() == []


def test_an_unchanged_or_emptied_sign_in_changes_nothing(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    loan = owned.lend(run)
    assert loan.end() == []
    (run / NAME).write_text("")
    assert loan.end() == []
    (run / NAME).unlink()
    assert loan.end() == []
    assert (owned.source / NAME).read_text() == "first"


def test_a_later_sign_in_of_the_user_is_not_overwritten(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    loan = owned.lend(run)
    (run / NAME).write_text("renewed by the run")
    (owned.source / NAME).write_text("the user signed in anew")
    assert loan.end() == []
    assert (owned.source / NAME).read_text() == "the user signed in anew"


def test_the_next_turn_starts_from_the_newest(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    one, two = home(tmp_path, "one"), home(tmp_path, "two")
    first, _ = owned.lend(one), owned.lend(two)
    (one / NAME).write_text("second")
    first.end()
    owned.lend(two)
    assert (two / NAME).read_text() == "second"


def test_of_many_runs_that_renew_at_once_exactly_one_wins(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    homes = [home(tmp_path, f"run-{number}") for number in range(16)]
    loans = [owned.lend(each) for each in homes]
    for number, each in enumerate(homes):
        (each / NAME).write_text(f"renewed by {number}")
    taken: list[str] = []
    threads = [threading.Thread(target=lambda loan=loan: taken.extend(loan.end())) for loan in loans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == [NAME]
    assert (owned.source / NAME).read_text().startswith("renewed by ")


def test_a_sign_in_behind_a_link_is_renewed_where_the_link_leads(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    real = tmp_path / "real.json"
    (owned.source / NAME).rename(real)
    (owned.source / NAME).symlink_to(real)
    run = home(tmp_path, "run")
    loan = owned.lend(run)
    (run / NAME).write_text("second")
    loan.end()
    assert real.read_text() == "second"
    assert (owned.source / NAME).is_symlink()


@pytest.mark.parametrize("planted", ["a link", "a link in the place of the folder", "a pipe"])
def test_what_an_engine_plants_in_the_place_of_its_sign_in_is_not_taken_for_one(tmp_path: Path, planted: str) -> None:
    owned = credentials(tmp_path)
    private = tmp_path / "private"
    private.mkdir()
    (private / "auth.json").write_text("the key of the user")
    run = home(tmp_path, "run")
    loan = owned.lend(run)
    (run / NAME).unlink()
    if planted == "a link":
        (run / NAME).symlink_to(private / "auth.json")
    elif planted == "a pipe":
        os.mkfifo(run / NAME)
    else:
        (run / NAME).parent.rmdir()
        (run / NAME).parent.symlink_to(private)
    assert loan.end() == []
    assert (owned.source / NAME).read_text() == "first"
    owned.lend(run)
    assert (private / "auth.json").read_text() == "the key of the user"
    assert (run / NAME).read_text() == "first"
    assert not (run / NAME).is_symlink()


def test_what_is_too_large_for_a_sign_in_is_not_taken_back(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    loan = owned.lend(run)
    with (run / NAME).open("wb") as file:
        file.truncate(1 << 40)
    assert loan.end() == []


def test_a_sign_in_that_there_is_no_room_for_leaves_the_old_one_whole(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    loan = owned.lend(run)
    (run / NAME).write_text("second" * 1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            loan.end()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (owned.source / NAME).read_text() == "first"
    assert {path.name for path in (owned.source / NAME).parent.iterdir()} == {"auth.json", "history.jsonl"}
