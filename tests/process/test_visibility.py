"""What a sandbox may show: never a home, never our own files, wherever a program is installed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.process.sandbox.visibility import (
    DenyList,
    closed_to_others,
    deny_list,
    installation,
    siblings,
    whole_homes,
)

NAMES = st.sampled_from(["bin", "lib", "node_modules", "tool", "home", "data", "user", ".ssh", ".local", "sbin"])
PLACES = st.lists(NAMES, min_size=0, max_size=4).map(tuple)


@contextmanager
def layout(
    home: tuple[str, ...], data: tuple[str, ...], link: tuple[tuple[str, ...], tuple[str, ...]]
) -> Iterator[Path]:
    """A machine in a folder: a home and a data folder with secrets, and a link from somewhere to somewhere."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve() / "top" / "machine"
        for folder, file in ((home, ".netrc"), ((*home, ".ssh"), "id_rsa"), (data, "token")):
            root.joinpath(*folder).mkdir(parents=True, exist_ok=True)
            root.joinpath(*folder, file).write_text("secret")
        start, end = (root.joinpath(*place) for place in link)
        end.mkdir(parents=True, exist_ok=True)
        start.parent.mkdir(parents=True, exist_ok=True)
        if not start.exists():
            start.symlink_to(end)
        yield root


@pytest.mark.contract("Q-3")
@given(home=PLACES, data=PLACES, program=PLACES, search=st.lists(PLACES, max_size=3), link=st.tuples(PLACES, PLACES))
def test_whatever_is_shown_holds_no_secret(
    home: tuple[str, ...],
    data: tuple[str, ...],
    program: tuple[str, ...],
    search: list[tuple[str, ...]],
    link: tuple[tuple[str, ...], tuple[str, ...]],
) -> None:
    with layout((*home, "user"), (*data, "askback"), link) as root:
        user, own = root.joinpath(*home, "user"), root.joinpath(*data, "askback")
        path = root.joinpath(*program, "agent")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        hide = deny_list(homes=[user], private=[own])
        folders = ":".join(str(root.joinpath(*each)) for each in search)
        secrets = [user / ".netrc", user / ".ssh" / "id_rsa", own / "token"]
        shown = {each.resolve() for each in installation(hide, str(path), folders)}
        assert not [(each, secret) for each in shown for secret in secrets if secret.resolve().is_relative_to(each)]
        # A program is always shown, unless it is among our own files.
        assert any(path.resolve().is_relative_to(each) for each in shown) or path.resolve().is_relative_to(
            own.resolve()
        )


@pytest.mark.parametrize(
    "folder", ["/", "/tmp", "/var/tmp", "/home", str(Path("/home", "anybody")), "/root", "/srv", "/mnt", "/run/user"]
)
def test_a_folder_that_many_share_is_never_shown(folder: str) -> None:
    hide = deny_list(homes=[Path("/root")], private=[Path("/var/lib/askback")])
    assert not hide.may_show(Path(folder))
    assert Path(folder) not in siblings(hide, Path(folder, "agent"))


def test_a_home_that_is_part_of_the_system_hides_nothing_of_it() -> None:
    hide = deny_list(homes=[Path("/usr/sbin"), Path("/"), Path("/usr"), Path("/homes/user")], private=[])
    assert hide.homes == (Path("/homes/user"),)


def test_doctor_can_name_the_homes_that_a_search_path_names(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    hide = DenyList(homes=(home.resolve(),), private=())
    assert whole_homes(hide, str(home / "bin" / "agent"), str(home / "bin")) == []
    assert whole_homes(hide, str(home / "bin" / "agent"), str(home)) == [home.resolve()]
    assert whole_homes(hide, str(home / "agent"), "") == [home.resolve()]
    assert whole_homes(hide, str(tmp_path / "agent"), "") == [home.resolve()]


def test_what_other_users_may_not_read_is_found(tmp_path: Path) -> None:
    for name, mode in (("open", 0o644), ("closed", 0o600), ("group", 0o640), ("deep/er/closed", 0o600)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(mode)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private" / "open").touch()
    (tmp_path / "link").symlink_to("closed")
    found = {str(path.relative_to(tmp_path)) for path in closed_to_others(tmp_path, 6)}
    assert found == {"closed", "group", "private", "deep/er/closed"}


def test_a_folder_that_cannot_be_entered_is_as_if_it_were_not_there() -> None:
    hide = deny_list(homes=[], private=[])
    assert siblings(hide, Path("/proc/1/root-of-nobody/bin/agent")) == set()
    assert not hide.may_show(Path("/proc/self/fd/nothing/at/all"))


def test_a_file_that_is_removed_during_the_search_hides_no_other(tmp_path: Path) -> None:
    files = {tmp_path / str(number) for number in range(20)}
    for file in files:
        file.touch(mode=0o600)
    search = closed_to_others(tmp_path, 1)
    first = next(search)
    removed = min(files - {first})
    removed.unlink()
    assert {first, *search} == files - {removed}
