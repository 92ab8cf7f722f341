"""Zip archives: a valid one is extracted; a hostile one is refused, with nothing left on disk."""

from __future__ import annotations

import io
import os
import random
import stat
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skill_folders import GOOD

from askback.core.errors import AskbackError, Invalid, RefusalCode
from askback.skills.archive import ZipLimits, extract_zip

Entries = list[tuple[str | zipfile.ZipInfo, bytes]]


def pack(path: Path, entries: Entries, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that occurs twice
        for name, content in entries:
            archive.writestr(name, content)
    return path


def of_kind(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


SKILL: Entries = [("SKILL.md", GOOD.encode())]


# Valid archives.


def test_a_zip_is_unpacked_whole(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [*SKILL, ("assets/", b""), ("assets/a.txt", b"x"), ("deep/er/ü.txt", b"y")])
    into = extract_zip(path, tmp_path / "out/skill")
    assert everything_in(into) == ["SKILL.md", "assets", "assets/a.txt", "deep", "deep/er", "deep/er/ü.txt"]
    assert (into / "SKILL.md").read_text() == GOOD
    assert everything_in(tmp_path / "out")[0] == "skill"
    assert stat.S_IMODE(into.stat().st_mode) == 0o700


def test_a_single_top_folder_is_taken_off(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [("my-skill/", b""), ("my-skill/SKILL.md", b"x"), ("my-skill/a/b", b"y")])
    assert everything_in(extract_zip(path, tmp_path / "out")) == ["SKILL.md", "a", "a/b"]


def test_what_a_mac_adds_is_passed_over(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [("my-skill/SKILL.md", b"x"), ("__MACOSX/my-skill/._SKILL.md", b"y")])
    assert everything_in(extract_zip(path, tmp_path / "out")) == ["SKILL.md"]


def test_two_top_folders_stay(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [("a/x", b""), ("b/x", b"")])
    assert everything_in(extract_zip(path, tmp_path / "out")) == ["a", "a/x", "b", "b/x"]


def test_executable_bits_are_kept_and_nothing_more(tmp_path: Path) -> None:
    entries: Entries = [
        (of_kind("run.sh", stat.S_IFREG | 0o4755), b"x"),
        (of_kind("plain", stat.S_IFREG | 0o666), b"x"),
    ]
    into = extract_zip(pack(tmp_path / "s.zip", entries), tmp_path / "out")
    assert stat.S_IMODE((into / "run.sh").stat().st_mode) == 0o700
    assert stat.S_IMODE((into / "plain").stat().st_mode) == 0o600


# Hostile archives.


def raw_name(name: bytes) -> Callable[[Path], Path]:
    """An entry whose name `zipfile` would not write: it replaces a harmless name of the same length."""

    def make(path: Path) -> Path:
        harmless = "q" * len(name)
        pack(path, [*SKILL, (harmless, b"x")])
        path.write_bytes(path.read_bytes().replace(harmless.encode(), name))
        return path

    return make


def entries(*found: tuple[str | zipfile.ZipInfo, bytes]) -> Callable[[Path], Path]:
    return lambda path: pack(path, [*SKILL, *found])


def encrypted(path: Path) -> Path:
    pack(path, SKILL)
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    path.write_bytes(bytes(content))
    return path


def lying_sizes(path: Path) -> Path:
    """Its header says that it extracts to a few bytes."""
    pack(path, [("SKILL.md", b"\0" * 5_000_000)])
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = content.index(signature) + offset
        content[at : at + 4] = struct.pack("<I", 10)
    path.write_bytes(bytes(content))
    return path


def other_local_name(path: Path) -> Path:
    pack(path, [("SKILL.md", b"x"), ("aaaa", b"x")])
    content = path.read_bytes()
    at = content.index(b"aaaa")
    path.write_bytes(content[:at] + b"../b" + content[at + 4 :])
    return path


def unicode_path_field(path: Path) -> Path:
    """An extra field with another name for the entry, for programs that support it."""
    info = zipfile.ZipInfo("aaaa")
    field = struct.pack("<BI", 1, zlib.crc32(b"aaaa")) + b"../../evil"
    info.extra = struct.pack("<HH", 0x7075, len(field)) + field
    return pack(path, [*SKILL, (info, b"x")])


def zip64_end(path: Path) -> Path:
    pack(path, SKILL)
    content = path.read_bytes()
    at = content.rindex(b"PK\x05\x06")
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, at, 0)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, at, 1)
    path.write_bytes(content[:at] + record + locator + content[at:])
    return path


def damaged(path: Path) -> Path:
    pack(path, [("SKILL.md", os.urandom(5000))])
    content = bytearray(path.read_bytes())
    content[1000] ^= 0xFF
    path.write_bytes(bytes(content))
    return path


def written(content: bytes) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        path.write_bytes(content)
        return path

    return make


def packed_with(compression: int) -> Callable[[Path], Path]:
    return lambda path: pack(path, SKILL, compression)


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "parent": (entries(("../evil", b"x")), '"../evil" is outside the package'),
    "parent inside": (entries(("a/../../evil", b"x")), "is outside the package"),
    "parent harmless": (entries(("a/../b", b"x")), "is outside the package"),
    "parent at the end": (entries(("a/..", b"x")), "is outside the package"),
    "absolute": (entries(("/etc/evil", b"x")), "is an absolute path"),
    "double slash": (entries(("//host/evil", b"x")), "is an absolute path"),
    "drive": (entries(("C:/evil", b"x")), "is an absolute path"),
    "drive relative": (entries(("c:evil", b"x")), "is an absolute path"),
    "backslash": (raw_name(b"..\\evil"), "has a backslash"),
    "nul": (raw_name(b"evil\0.txt"), "not printable"),
    "newline": (entries(("a\nb", b"x")), "not printable"),
    "escape": (entries(("a\x1b[2Jb", b"x")), "not printable"),
    "bidi": (entries(("a\u202eb", b"x")), "not printable"),
    "empty part": (entries(("a//b", b"x")), "is not a plain path"),
    "dot": (entries(("./a", b"x")), "is not a plain path"),
    "dot only": (entries((".", b"x")), "is not a plain path"),
    "long name": (entries(("x" * 256, b"x")), "is too long"),
    "long path": (entries(("/".join(["x" * 200] * 6), b"x")), "is too long"),
    "deep": (entries(("/".join("x" * 40), b"x")), "nested too deep"),
    "twice": (entries(("a", b"1"), ("a", b"2")), '"a" occurs twice'),
    "twice by case": (entries(("a.txt", b"1"), ("A.TXT", b"2")), "differs only in case"),
    "twice by case of a folder": (entries(("a/x", b"1"), ("A/y", b"2")), "differs only in case"),
    "twice by sharp s": (entries(("straße", b"1"), ("STRASSE", b"2")), "differs only in case"),
    "twice by composition": (entries(("\u00e9", b"1"), ("e\u0301", b"2")), "differs only in case"),
    "skill.md": (entries(("skill.md", b"x")), "differs only in case"),
    "file and folder": (entries(("a", b"1"), ("a/b", b"2")), '"a" is both a file and a folder'),
    "symlink": (entries((of_kind("link", stat.S_IFLNK | 0o777), b"/etc/passwd")), '"link" is a symbolic link'),
    "fifo": (entries((of_kind("pipe", stat.S_IFIFO | 0o644), b"")), '"pipe" is neither'),
    "device": (entries((of_kind("dev", stat.S_IFBLK | 0o644), b"")), '"dev" is neither'),
    "socket": (entries((of_kind("sock", stat.S_IFSOCK | 0o644), b"")), '"sock" is neither'),
    "folder without slash": (entries((of_kind("dir", stat.S_IFDIR | 0o755), b"")), '"dir" is neither'),
    "file with slash": (entries((of_kind("dir/", stat.S_IFREG | 0o644), b"")), '"dir/" is neither'),
    "git": (entries((".git/hooks/pre-commit", b"x")), "is part of a Git repository"),
    "git by case": (entries(("sub/.GIT/config", b"x")), "is part of a Git repository"),
    "mcp": (entries(("sub/.MCP.json", b"x")), "configures a coding-agent CLI"),
    "env": (entries((".ENV", b"x")), "configures a coding-agent CLI"),
    "encrypted": (encrypted, '"SKILL.md" is encrypted'),
    "lzma": (packed_with(zipfile.ZIP_LZMA), "compression method that is not supported"),
    "bzip2": (packed_with(zipfile.ZIP_BZIP2), "compression method that is not supported"),
    "lying sizes": (lying_sizes, ""),
    "other local name": (other_local_name, "is damaged or not a zip"),
    "zip64": (zip64_end, "zip64"),
    "damaged": (damaged, "is damaged or not a zip"),
    "empty file": (written(b""), "is not a zip"),
    "text": (written(b"hello" * 100), "is not a zip"),
    "tar": (written(b"a.txt" + b"\0" * 2000), "is not a zip"),
    "end only": (written(b"PK\x05\x06" + b"\xff" * 18), ""),
    "end cut off": (written(b"PK\x05\x06"), "is not a zip"),
}


@pytest.mark.parametrize(("make", "says"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_zip_is_refused_with_nothing_on_disk(tmp_path: Path, make: Callable[[Path], Path], says: str) -> None:
    inner = tmp_path / "a/b/c"
    inner.mkdir(parents=True)
    path = make(tmp_path / "s.zip")
    before = everything_in(tmp_path)
    with pytest.raises(Invalid) as caught:
        extract_zip(path, inner / "out")
    assert caught.value.code is RefusalCode.SKILL_INVALID
    assert says in caught.value.message
    assert caught.value.message.isprintable()
    assert everything_in(tmp_path) == before


def test_a_second_name_in_an_extra_field_leads_nowhere(tmp_path: Path) -> None:
    """Some versions of `zipfile` use it as the name, others ignore it."""
    path = unicode_path_field(tmp_path / "s.zip")
    (tmp_path / "a/b").mkdir(parents=True)
    with suppress(Invalid):
        assert everything_in(extract_zip(path, tmp_path / "a/b/out")) == ["SKILL.md", "aaaa"]
    assert not list(tmp_path.rglob("evil*"))


def test_all_bad_names_are_told_at_once(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [("../a", b""), ("/b", b""), (".env", b""), ("fine", b"")])
    with pytest.raises(Invalid) as caught:
        extract_zip(path, tmp_path / "out")
    assert len(caught.value.problems) == 3


# Bombs.


def refused(path: Path, into: Path, **limits: int) -> str:
    before = everything_in(into.parent)
    with pytest.raises(Invalid) as caught:
        extract_zip(path, into, ZipLimits(**limits))
    assert everything_in(into.parent) == before
    return caught.value.message


def test_more_entries_than_allowed_are_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [(f"f{number}", b"") for number in range(11)])
    assert "more than 10 entries" in refused(path, tmp_path / "out", entries=10)
    extract_zip(path, tmp_path / "out", ZipLimits(entries=11))


def test_an_archive_that_lies_about_its_entries_is_counted(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [(f"f{number}", b"") for number in range(11)])
    content = bytearray(path.read_bytes())
    end = content.rindex(b"PK\x05\x06")
    content[end + 8 : end + 12] = struct.pack("<HH", 1, 1)
    path.write_bytes(bytes(content))
    assert "more than 10 entries" in refused(path, tmp_path / "out", entries=10)


def test_a_directory_of_entries_is_not_built_before_it_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "s.zip"
    entry = b"PK\x01\x02" + b"\0" * 24 + struct.pack("<H", 1) + b"\0" * 16 + b"x"
    directory = entry * 200_000
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(directory), 0, 0)
    path.write_bytes(directory + end)
    assert "more than 10000 entries" in refused(path, tmp_path / "out")


def test_more_bytes_than_allowed_are_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [("a", os.urandom(1000)), ("b", os.urandom(1000))])
    assert refused(path, tmp_path / "out", total_bytes=1999).startswith("s.zip is refused: extracts to more than")
    extract_zip(path, tmp_path / "out", ZipLimits(total_bytes=2000))


def test_a_bomb_is_refused_by_its_ratio(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [("bomb", b"\0" * 50_000_000)])
    assert "far more than its own size" in refused(path, tmp_path / "out")


def test_a_small_file_may_pack_well(tmp_path: Path) -> None:
    path = pack(tmp_path / "s.zip", [("zeros", b"\0" * 1_000_000)])
    assert (extract_zip(path, tmp_path / "out") / "zeros").stat().st_size == 1_000_000


# Random data.


def noisy_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("my-skill/SKILL.md", GOOD)
        archive.writestr("my-skill/a/b.txt", "x" * 100)
    return buffer.getvalue()


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_flipped_bytes_are_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random, flips: int
) -> None:
    folder = tmp_path_factory.mktemp("noise")
    content = bytearray(noisy_zip())
    for _ in range(flips):
        content[chance.randrange(len(content))] = chance.randrange(256)
    (folder / "s.zip").write_bytes(bytes(content))
    try:
        extract_zip(folder / "s.zip", folder / "in/out")
    except AskbackError:
        assert everything_in(folder) in (["s.zip"], ["in", "s.zip"])
    else:
        assert {path.parts[0] for path in map(Path, everything_in(folder))} == {"in", "s.zip"}
        assert [path.name for path in (folder / "in").iterdir()] == ["out"]


def test_a_zip_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        extract_zip(tmp_path / "nowhere.zip", tmp_path / "out")
