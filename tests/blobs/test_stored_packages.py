"""Skill packages that one machine has stored and others fetch."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard

from askback.blobs.base import Files
from askback.core.errors import NotFound, RefusalCode, Unavailable
from askback.skills.library import Library
from askback.skills.package_archives import PackageArchives, package_key

OpenStore = Callable[[], Files]


def skill(folder: Path, name: str = "tested") -> Path:
    made = folder / name
    (made / "scripts").mkdir(parents=True)
    (made / "SKILL.md").write_text(f"---\nname: {name}\ndescription: For tests.\n---\nDo it.\n")
    (made / "scripts" / "北京.sh").write_text("#!/bin/sh\n")
    (made / "scripts" / "北京.sh").chmod(0o755)
    return made


def library(root: Path, store: Files) -> Library:
    return Library(root, archives=PackageArchives(store))


def test_a_package_is_fetched_where_it_is_missing(tmp_path: Path, open_store: OpenStore) -> None:
    kept = library(tmp_path / "one", open_store()).install(skill(tmp_path))
    elsewhere = library(tmp_path / "two", open_store())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: elsewhere.package(kept.digest), range(4)))
    assert {each.digest for each in found} == {kept.digest}
    script = found[0].folder / "scripts" / "北京.sh"
    assert script.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in (tmp_path / "two" / "packages").iterdir()] == [kept.digest]
    with pytest.raises(NotFound):
        elsewhere.package("0" * 64)


def test_a_package_that_was_kept_before_is_stored_when_it_is_used(tmp_path: Path, open_store: OpenStore) -> None:
    folder = skill(tmp_path)
    Library(tmp_path / "one").install(folder)
    shared = library(tmp_path / "one", open_store())
    # It was not stored yet, so the quick way is not open.
    assert shared.package(Library(tmp_path / "one").find("tested").digest)
    assert shared.find_cached("tested") is None
    kept = shared.store(shared.find("tested"))
    assert shared.find_cached("tested") == kept
    assert library(tmp_path / "two", open_store()).package(kept.digest).digest == kept.digest


def test_the_package_of_one_run_is_fetched_by_its_key(tmp_path: Path, open_store: OpenStore) -> None:
    with zipfile.ZipFile(tmp_path / "skill.zip", "w") as made:
        made.write(skill(tmp_path) / "SKILL.md", "SKILL.md")
    one, two = library(tmp_path / "one", open_store()), library(tmp_path / "two", open_store())
    package = one.unpack(tmp_path / "skill.zip", tmp_path / "one" / "run")
    one.store_unpacked(package, "runs/r1/package.tar.zst")
    two.fetch_unpacked(tmp_path / "two" / "run", "runs/r1/package.tar.zst")
    two.fetch_unpacked(tmp_path / "two" / "run", "runs/r1/package.tar.zst")
    assert two.unpacked(tmp_path / "two" / "run", package.digest).digest == package.digest


def _packed(*members: tarfile.TarInfo, content: bytes = b"x") -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return zstandard.ZstdCompressor().compress(plain.getvalue())


def _link(name: str, target: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.SYMTYPE, target
    return made


@pytest.mark.parametrize(
    "packed",
    [
        b"not an archive",
        _packed(tarfile.TarInfo("../outside")),
        _packed(tarfile.TarInfo("/outside")),
        _packed(tarfile.TarInfo("a/./b")),
        _packed(_link("link", "/etc")),
        _packed(_link("link", ".."), tarfile.TarInfo("link/outside")),
        _packed(tarfile.TarInfo("SKILL.md"), tarfile.TarInfo("SKILL.md")),
        _packed(tarfile.TarInfo("a"), tarfile.TarInfo("a/b")),
        _packed(tarfile.TarInfo("SKILL.md"), content=b"---\nname: other\ndescription: Other.\n---\n"),
        _packed(tarfile.TarInfo("SKILL.md"), content=b"y" * 5000)[:-20],
    ],
    ids=["noise", "parent", "absolute", "dot", "link", "through-link", "twice", "file-folder", "other", "cut"],
)
def test_an_archive_that_is_not_the_package_is_refused(tmp_path: Path, open_store: OpenStore, packed: bytes) -> None:
    digest = "a" * 64
    open_store().put(package_key(digest), packed)
    with pytest.raises(Unavailable) as refused:
        library(tmp_path / "data", open_store()).package(digest)
    assert refused.value.code is RefusalCode.SKILL_DAMAGED
    assert list((tmp_path / "data" / "packages").iterdir()) == []
    assert not (tmp_path / "outside").exists()
