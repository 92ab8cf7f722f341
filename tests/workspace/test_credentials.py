"""Sign-ins are copied to runs and merged back, so that concurrent runs do not sign each other out."""

import json
import os
import resource
import threading
from pathlib import Path

import pytest

from askback.core.renewals import Renewal, TokenField
from askback.workspace.sign_ins import Credentials, MergeResult

NAME = ".engine/auth.json"
RULE = Renewal(name=NAME, fields=(TokenField(path=("token",)),), account=(("user",),))
RENEWED = MergeResult(renewed=(NAME,))


def sign_in(token: str, user: str = "ada") -> str:
    return json.dumps({"user": user, "token": token})


def token_in(path: Path) -> str:
    return str(json.loads(path.read_text())["token"])


def credentials(folder: Path) -> Credentials:
    source = folder / "user"
    (source / ".engine").mkdir(parents=True)
    (source / NAME).write_text(sign_in("first"))
    (source / ".engine" / "history.jsonl").write_text("private")
    return Credentials(source=source, names=(NAME, ".engine/absent.json"), lock=folder / "lock", renewals=(RULE,))


def home(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_only_the_named_files_are_lent_and_only_the_user_may_read_them(tmp_path: Path) -> None:
    run = home(tmp_path, "run")
    credentials(tmp_path).copy_into(run)
    assert [path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()] == [NAME]
    assert (run / NAME).stat().st_mode & 0o077 == 0


def test_a_renewed_sign_in_goes_back_once(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    copies = owned.copy_into(run)
    (run / NAME).write_text(sign_in("second"))
    assert copies.end() == RENEWED
    assert token_in(owned.source / NAME) == "second"
    assert (owned.source / NAME).stat().st_mode & 0o777 == 0o600
    assert copies.end() == MergeResult()


def test_an_unchanged_or_emptied_sign_in_changes_nothing(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    before = (owned.source / NAME).read_bytes()
    for change in (lambda: None, lambda: (run / NAME).write_text(""), (run / NAME).unlink):
        copies = owned.copy_into(run)
        change()
        assert copies.end() == MergeResult()
        assert (owned.source / NAME).read_bytes() == before


def test_a_later_sign_in_of_the_user_is_not_overwritten(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    copies = owned.copy_into(run)
    (run / NAME).write_text(sign_in("renewed by the run"))
    (owned.source / NAME).write_text(sign_in("the user signed in anew"))
    assert copies.end() == MergeResult()
    assert token_in(owned.source / NAME) == "the user signed in anew"


def test_the_next_turn_starts_from_the_newest(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    one, two = home(tmp_path, "one"), home(tmp_path, "two")
    first, _ = owned.copy_into(one), owned.copy_into(two)
    (one / NAME).write_text(sign_in("second"))
    first.end()
    owned.copy_into(two)
    assert token_in(two / NAME) == "second"


def test_of_many_runs_that_renew_at_once_exactly_one_wins(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    homes = [home(tmp_path, f"run-{number}") for number in range(16)]
    all_copies = [owned.copy_into(each) for each in homes]
    for number, each in enumerate(homes):
        (each / NAME).write_text(sign_in(f"renewed by {number}"))
    taken: list[str] = []
    threads = [
        threading.Thread(target=lambda copies=copies: taken.extend(copies.end().renewed)) for copies in all_copies
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == [NAME]
    assert token_in(owned.source / NAME).startswith("renewed by ")


def test_a_sign_in_behind_a_link_is_renewed_where_the_link_leads(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    real = tmp_path / "real.json"
    (owned.source / NAME).rename(real)
    (owned.source / NAME).symlink_to(real)
    run = home(tmp_path, "run")
    copies = owned.copy_into(run)
    (run / NAME).write_text(sign_in("second"))
    copies.end()
    assert token_in(real) == "second"
    assert (owned.source / NAME).is_symlink()


@pytest.mark.parametrize("planted", ["a link", "a link in the place of the folder", "a pipe"])
def test_what_an_engine_plants_in_the_place_of_its_sign_in_is_not_taken_for_one(tmp_path: Path, planted: str) -> None:
    owned = credentials(tmp_path)
    private = tmp_path / "private"
    private.mkdir()
    (private / "auth.json").write_text("the key of the user")
    run = home(tmp_path, "run")
    copies = owned.copy_into(run)
    (run / NAME).unlink()
    if planted == "a link":
        (run / NAME).symlink_to(private / "auth.json")
    elif planted == "a pipe":
        os.mkfifo(run / NAME)
    else:
        (run / NAME).parent.rmdir()
        (run / NAME).parent.symlink_to(private)
    assert copies.end() == MergeResult()
    assert token_in(owned.source / NAME) == "first"
    owned.copy_into(run)
    assert (private / "auth.json").read_text() == "the key of the user"
    assert token_in(run / NAME) == "first"
    assert not (run / NAME).is_symlink()


def test_what_is_too_large_for_a_sign_in_is_not_taken_back(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    copies = owned.copy_into(run)
    with (run / NAME).open("wb") as file:
        file.truncate(1 << 40)
    assert copies.end() == MergeResult(refused=f"{NAME}: it is too large")


def test_a_sign_in_that_there_is_no_room_for_leaves_the_old_one_whole(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    copies = owned.copy_into(run)
    (run / NAME).write_text(sign_in("second" * 1000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            copies.end()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert token_in(owned.source / NAME) == "first"
    assert {path.name for path in (owned.source / NAME).parent.iterdir()} == {"auth.json", "history.jsonl"}


@pytest.mark.parametrize("left", ["renewed", "unchanged", "refused", "no room", "a folder", "a link"])
def test_no_copy_is_left_when_a_loan_ends(tmp_path: Path, left: str) -> None:
    owned = credentials(tmp_path)
    run, keys = home(tmp_path, "run"), tmp_path / "keys"
    keys.write_text("the user's own")
    copies = owned.copy_into(run)
    if left in ("renewed", "no room"):
        (run / NAME).write_text(sign_in("second"))
    elif left == "refused":
        (run / NAME).write_text(sign_in("second", user="mallory"))
    elif left == "a folder":
        (run / NAME).unlink()
        (run / NAME / "deep").mkdir(parents=True)
    elif left == "a link":
        (run / NAME).unlink()
        (run / NAME).symlink_to(keys)
    if left == "no room":
        owned.lock.unlink()
        owned.lock.mkdir()
        with pytest.raises(IsADirectoryError):
            copies.end()
    else:
        copies.end()
    assert not os.path.lexists(run / NAME)
    assert keys.read_text() == "the user's own"


def test_of_several_files_all_are_taken_back_or_none(tmp_path: Path) -> None:
    """One file may name the account, and another one contain its key."""
    owned = credentials(tmp_path)
    other = Renewal(name=".engine/other.json", fields=(TokenField(path=("key",)),))
    (owned.source / other.name).write_text('{"key": "first"}')
    both = Credentials(source=owned.source, names=(NAME, other.name), lock=owned.lock, renewals=(other, RULE))
    run = home(tmp_path, "run")
    for user, key in (("mallory", "first"), ("ada", "second")):
        copies = both.copy_into(run)
        (run / other.name).write_text('{"key": "second"}')
        (run / NAME).write_text(sign_in("second", user=user))
        returned = copies.end()
        assert json.loads((owned.source / other.name).read_text()) == {"key": key}
        assert (returned.refused is not None) == (user == "mallory")


def test_a_file_without_a_declared_token_is_never_taken_back(tmp_path: Path) -> None:
    owned = credentials(tmp_path)
    run = home(tmp_path, "run")
    copies = Credentials(source=owned.source, names=owned.names, lock=owned.lock).copy_into(run)
    (run / NAME).write_text(sign_in("second"))
    assert copies.end() == MergeResult()
    assert token_in(owned.source / NAME) == "first"
