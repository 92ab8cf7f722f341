"""Sign-ins lent to runs and taken back, so that runs side by side do not sign each other out."""

import threading
from pathlib import Path

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
