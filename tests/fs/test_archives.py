"""Trees as one archive: what an engine may have left, and what an archive may say."""

from __future__ import annotations

import io
import os
import random
import socket
import stat
import tarfile
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from askback.fs.archive_reader import ArchiveDamaged, unpack
from askback.fs.archive_writer import ArchiveLimits, ArchiveRefused, TreeChangedWhilePacking, pack

pytestmark = pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="needs Linux")


def packed(root: Path, *names: str, leave_out: tuple[str, ...] = (), limits: ArchiveLimits | None = None) -> bytes:
    target = io.BytesIO()
    pack(root, names or ("work",), target, leave_out=leave_out, limits=limits)
    return target.getvalue()


def unpacked(archive: bytes, tmp_path: Path, limits: ArchiveLimits | None = None) -> Path:
    base = tmp_path / "unpacked"
    base.mkdir()
    unpack(io.BytesIO(archive), base, names=("work", "home"), limits=limits)
    return base


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "run" / "work").mkdir(parents=True)
    return tmp_path / "run"


def test_an_archive_keeps_content_modes_times_and_links(root: Path, tmp_path: Path) -> None:
    work = root / "work"
    (work / "deep" / "er").mkdir(parents=True)
    (work / "deep" / "er" / "notes.txt").write_text("hello")
    (work / "run.sh").write_bytes(b"#!/bin/sh\n")
    (work / "run.sh").chmod(0o750)
    (work / "empty").touch()
    (work / "outside").symlink_to("/etc/passwd")
    (work / "dangling").symlink_to("../../nowhere")
    for path, mtime_ns in ((work / "run.sh", 1_600_000_000_123_456_789), (work / "deep", 1_500_000_000_000_000_001)):
        os.utime(path, ns=(mtime_ns, mtime_ns))
    os.utime(work / "outside", ns=(7, 1_400_000_000_999_999_999), follow_symlinks=False)
    (work / "deep").chmod(0o711)
    found = unpacked(packed(root), tmp_path) / "work"
    assert (found / "deep" / "er" / "notes.txt").read_text() == "hello"
    assert stat.S_IMODE((found / "run.sh").stat().st_mode) == 0o750
    assert (found / "run.sh").stat().st_mtime_ns == 1_600_000_000_123_456_789
    assert stat.S_IMODE((found / "deep").stat().st_mode) == 0o711
    assert (found / "deep").stat().st_mtime_ns == 1_500_000_000_000_000_001
    assert (found / "empty").read_bytes() == b""
    assert str((found / "outside").readlink()) == "/etc/passwd"
    assert (found / "outside").lstat().st_mtime_ns == 1_400_000_000_999_999_999
    assert str((found / "dangling").readlink()) == "../../nowhere"


def test_an_archive_has_anything_that_an_engine_may_have_left(root: Path, tmp_path: Path) -> None:
    work = root / "work"
    strange = os.fsencode(work) + b"/\xff\xfe \n.txt"
    with open(strange, "wb") as file:
        file.write(b"not UTF-8")
    long = work / ("x" * 250)
    long.mkdir()
    (long / ("y" * 250)).write_text("a long path")
    os.link(strange, work / "second name")
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        folder = os.open(work, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        found = unpacked(packed(root), tmp_path) / "work"
    with open(os.fsencode(found) + b"/\xff\xfe \n.txt", "rb") as file:
        assert file.read() == b"not UTF-8"
    assert (found / "second name").read_bytes() == b"not UTF-8"
    assert (found / "second name").stat().st_nlink == 1
    assert (found / ("x" * 250) / ("y" * 250)).read_text() == "a long path"
    assert not os.path.lexists(found / "pipe")
    assert not os.path.lexists(found / "socket")


def test_what_an_engine_has_locked_is_packed_and_stays_locked(root: Path, tmp_path: Path) -> None:
    locked = root / "work" / "locked"
    locked.mkdir()
    (locked / "secret").write_text("x")
    (locked / "secret").chmod(0)
    locked.chmod(0)
    try:
        found = unpacked(packed(root), tmp_path) / "work" / "locked"
        assert stat.S_IMODE(locked.stat().st_mode) == 0
        assert stat.S_IMODE(found.stat().st_mode) == 0
    finally:
        locked.chmod(0o700)
    found.chmod(0o700)
    assert stat.S_IMODE((locked / "secret").stat().st_mode) == 0
    (found / "secret").chmod(0o600)
    assert (found / "secret").read_text() == "x"


def test_holes_stay_holes(root: Path, tmp_path: Path) -> None:
    sparse = root / "work" / "sparse"
    with sparse.open("wb") as file:
        file.seek(1 << 40)
        file.write(b"end")
        file.seek(1 << 30)
        file.write(b"middle")
        file.truncate((1 << 40) + 5_000_000)
    archive = packed(root)
    assert len(archive) < 100_000
    found = unpacked(archive, tmp_path) / "work" / "sparse"
    assert found.stat().st_size == sparse.stat().st_size
    assert found.stat().st_blocks < 10_000
    with found.open("rb") as file:
        file.seek(1 << 30)
        assert file.read(7) == b"middle\0"
        file.seek(1 << 40)
        assert file.read(4) == b"end\0"


def test_a_large_tree_needs_little_memory(root: Path, tmp_path: Path) -> None:
    piece = random.Random(1).randbytes(1 << 20)
    with (root / "work" / "large").open("wb") as file:
        for _ in range(64):
            file.write(piece)
    tracemalloc.start()
    try:
        with (tmp_path / "archive").open("wb") as target:
            pack(root, ["work"], target)
        base = tmp_path / "unpacked"
        base.mkdir()
        with (tmp_path / "archive").open("rb") as source:
            unpack(source, base, names=("work",))
        assert tracemalloc.get_traced_memory()[1] < 24_000_000
    finally:
        tracemalloc.stop()
    assert (base / "work" / "large").stat().st_size == 64 << 20


def test_names_that_are_left_out_are_not_in_the_archive(root: Path, tmp_path: Path) -> None:
    home = root / "home"
    (home / ".tool").mkdir(parents=True)
    (home / ".tool" / "auth.json").write_text("the sign-in")
    (home / ".tool" / "auth.json.bak").write_text("another file")
    (home / ".npm" / "cache").mkdir(parents=True)
    (home / ".npm" / "cache" / "x").write_text("x")
    archive = packed(root, "work", "home", leave_out=("home/.tool/auth.json", "home/.npm"))
    found = unpacked(archive, tmp_path) / "home"
    assert sorted(path.relative_to(found).as_posix() for path in found.rglob("*")) == [".tool", ".tool/auth.json.bak"]


@pytest.mark.parametrize(
    "limits", [ArchiveLimits(max_bytes=10), ArchiveLimits(max_entries=3), ArchiveLimits(max_depth=3)]
)
def test_trees_beyond_a_limit_are_refused(root: Path, limits: ArchiveLimits) -> None:
    (root / "work" / "a" / "b" / "c").mkdir(parents=True)
    (root / "work" / "a" / "x").write_text("more than ten bytes")
    packed(root)
    with pytest.raises(ArchiveRefused):
        packed(root, limits=limits)


def test_a_file_that_changes_while_it_is_packed_is_noticed(root: Path) -> None:
    log = root / "work" / "log"
    log.write_text("one")
    (root / "work" / "other").write_text("x" * 100)

    def grow() -> None:
        with log.open("a") as file:
            file.write("more")

    with pytest.raises(TreeChangedWhilePacking):
        pack(root, ["work"], io.BytesIO(), checkpoint=grow)


def test_a_folder_that_becomes_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    """While it is packed: a process may be alive."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("of somebody else")
    inner = root / "work" / "inner"
    inner.mkdir()
    calls = 0

    def swap() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            inner.rmdir()
            inner.symlink_to(outside)

    target = io.BytesIO()
    pack(root, ["work"], target, checkpoint=swap)
    assert calls >= 2
    assert b"of somebody else" not in zstandard.ZstdDecompressor().stream_reader(io.BytesIO(target.getvalue())).read()


def test_a_top_that_is_a_link_is_kept_as_a_link(root: Path, tmp_path: Path) -> None:
    (root / "home").symlink_to("/etc")
    found = unpacked(packed(root, "home"), tmp_path)
    assert str((found / "home").readlink()) == "/etc"
    assert [path.name for path in found.iterdir()] == ["home"]


# What an archive may say.


def entry(name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, linkname, 0o777
    return made


def archive_of(*entries: tuple[tarfile.TarInfo, bytes], whole: bool = True) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for each, data in entries:
            each.size = len(data)
            tar.addfile(each, io.BytesIO(data))
        if whole:
            tar.addfile(tarfile.TarInfo("askback.end"))
    return zstandard.ZstdCompressor().compress(content.getvalue())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "work/../../x", "other/x", "turn.lock", "work//x", "."])
def test_no_entry_is_written_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveDamaged):
        unpacked(archive_of((entry(name), b"hostile")), tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    before = outside.stat()
    found = unpacked(
        archive_of(
            (entry("work/way", tarfile.SYMTYPE, str(outside)), b""),
            (entry("work/way/file"), b"hostile"),
            (entry("work/later", tarfile.DIRTYPE), b""),
            (entry("work/later", tarfile.SYMTYPE, str(outside)), b""),
        ),
        tmp_path,
    )
    assert list(outside.iterdir()) == []
    assert (outside.stat().st_mode, outside.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert (found / "work" / "way" / "file").read_bytes() == b"hostile"


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_other_kinds_of_entries_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(ArchiveDamaged):
        unpacked(archive_of((entry("work/x", kind, "/etc/passwd"), b"")), tmp_path)


def test_special_bits_are_not_restored(tmp_path: Path) -> None:
    tool = entry("work/tool")
    tool.mode = 0o6755
    found = unpacked(archive_of((tool, b"x")), tmp_path)
    assert stat.S_IMODE((found / "work" / "tool").stat().st_mode) == 0o755


def test_an_archive_that_is_not_whole_is_refused(root: Path, tmp_path: Path) -> None:
    (root / "work" / "file").write_bytes(random.Random(2).randbytes(300_000))
    archive = packed(root)
    for number, damaged in enumerate(
        (
            b"",
            b"no archive",
            archive[: len(archive) // 2],
            archive[:-4],
            archive[:100_000] + bytes([archive[100_000] ^ 1]) + archive[100_001:],
            archive_of((entry("work/x"), b"x"), whole=False),
        )
    ):
        place = tmp_path / str(number)
        place.mkdir()
        with pytest.raises(ArchiveDamaged):
            unpacked(damaged, place)


def test_an_archive_with_more_than_allowed_is_refused(root: Path, tmp_path: Path) -> None:
    (root / "work" / "file").write_bytes(bytes(1_000_000))
    with pytest.raises(ArchiveDamaged):
        unpacked(packed(root), tmp_path, ArchiveLimits(max_bytes=999_999))


def test_zeros_take_no_more_room_than_where_they_were_packed(root: Path, tmp_path: Path) -> None:
    """A file with very many holes is packed with its zeros."""
    with (root / "work" / "scattered").open("wb") as file:
        for number in range(10_100):
            file.seek(number << 14)
            file.write(b"x")
    found = unpacked(packed(root), tmp_path) / "work" / "scattered"
    before, after = (root / "work" / "scattered").stat(), found.stat()
    assert (after.st_size, after.st_blocks) == (before.st_size, pytest.approx(before.st_blocks, rel=0.1))
    with (root / "work" / "scattered").open("rb") as one, found.open("rb") as other:
        assert one.read() == other.read()


def test_an_archive_without_an_end_is_not_read_to_it(tmp_path: Path) -> None:
    """Behind the last entry, and between entries, a few bytes can stand for any number of zeros."""
    content = zstandard.ZstdDecompressor().decompress(archive_of((entry("work/x"), b"x")), 100_000)
    compressor = zstandard.ZstdCompressor().compressobj()
    bomb = compressor.compress(content) + b"".join(compressor.compress(bytes(1 << 20)) for _ in range(300))
    source = io.BytesIO(bomb + compressor.flush())
    base = tmp_path / "bomb"
    base.mkdir()
    with pytest.raises(ArchiveDamaged, match="more bytes"):
        unpack(source, base, names=("work",), limits=ArchiveLimits(max_bytes=1000, max_entries=100))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_chain_of_headers_is_refused(tmp_path: Path, kind: bytes) -> None:
    chain = entry("x", kind).tobuf(tarfile.USTAR_FORMAT) * 5000
    with pytest.raises(ArchiveDamaged):
        unpacked(zstandard.ZstdCompressor().compress(chain + bytes(2048)), tmp_path)


@pytest.mark.parametrize(
    "impossible",
    [
        entry(f"work/{'x' * 300}"),
        entry("work/x", tarfile.SYMTYPE, ""),
        entry("work/x", tarfile.SYMTYPE, "x" * 9000),
    ],
)
def test_what_no_file_system_can_have_is_damage(tmp_path: Path, impossible: tarfile.TarInfo) -> None:
    with pytest.raises(ArchiveDamaged):
        unpacked(archive_of((impossible, b"")), tmp_path)


def test_a_header_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    header = entry("x", tarfile.XHDTYPE)
    header.size = 1 << 40
    with pytest.raises(ArchiveDamaged):
        unpacked(zstandard.ZstdCompressor().compress(header.tobuf() + bytes(2048)), tmp_path)


def sparse_archive(parts: int, *, old: bool) -> bytes:
    """An archive whose one entry has a map of so many parts, in the old format of GNU tar or in the one of `pack`."""
    entry = tarfile.TarInfo("work/sparse")
    if old:
        entry.type = tarfile.GNUTYPE_SPARSE
        head = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
        head[482] = 1
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
        part = b"%011o\0%011o\0" % (512, 1)
        content = (part * 21 + b"\1" + bytes(7)) * (parts // 21)
        return zstandard.ZstdCompressor().compress(bytes(head) + content)
    entry.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
    index = b"%d\n" % parts + b"0\n0\n" * parts
    entry.size = len(index)
    return zstandard.ZstdCompressor().compress(entry.tobuf(tarfile.PAX_FORMAT) + index + bytes(-len(index) % 512))


@pytest.mark.parametrize("old", [True, False])
def test_a_map_of_holes_without_end_needs_little_memory(tmp_path: Path, old: bool) -> None:
    archive = sparse_archive(2_000_000, old=old)
    assert len(archive) < 20_000
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveDamaged, match="more bytes than allowed"):
            unpacked(archive, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert list((tmp_path / "unpacked").iterdir()) == []


def many_maps(entries: int, parts: int) -> bytes:
    """A whole archive of so many empty files, each with a map of so many parts."""
    index = b"%d\n" % parts + b"0\n0\n" * parts
    index += bytes(-len(index) % 512)
    made = bytearray()
    for number in range(entries):
        entry = tarfile.TarInfo(f"work/{number}")
        entry.size = len(index)
        entry.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "0"}
        made += entry.tobuf(tarfile.PAX_FORMAT) + index
    end = tarfile.TarInfo("askback.end").tobuf(tarfile.PAX_FORMAT) + bytes(1024)
    return zstandard.ZstdCompressor(level=19).compress(bytes(made) + end)


@pytest.mark.parametrize(("entries", "parts", "most_read"), [(40, 120_000, 1), (140, 9_000, 112)])
def test_many_maps_of_holes_in_a_small_archive_are_refused(
    tmp_path: Path, entries: int, parts: int, most_read: int
) -> None:
    """Reading a map takes long for its size. The parts of all maps are counted, not only those of one."""
    archive = many_maps(entries, parts)
    assert len(archive) < 20_000
    with pytest.raises(ArchiveDamaged, match="maps of holes with more parts than allowed"):
        unpacked(archive, tmp_path)
    assert len(list((tmp_path / "unpacked").rglob("*"))) <= most_read


def test_a_file_of_ten_thousand_parts_fits(root: Path, tmp_path: Path) -> None:
    with (root / "work" / "sparse").open("wb") as file:
        for part in range(9_999):
            file.seek((1 << 40) + part * (1 << 20))
            file.write(b"x")
    found = unpacked(packed(root), tmp_path) / "work" / "sparse"
    assert found.stat().st_size == (root / "work" / "sparse").stat().st_size
