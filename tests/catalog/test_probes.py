"""Probes: the real program is asked, once as long as it stays the same, and a bad moment is not remembered."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from askback.catalog import probes
from askback.catalog.probes import EngineSetup, Installed, Probes
from askback.core.runs import ProfileKind
from askback.engines.scripted import Scripted
from askback.process.spawn_direct import Direct
from support.data_folder import run_async

ANSWERS = """#!/bin/sh
echo "$1" >> "{log}"
case "$1" in --version) echo "tool {version}";; *) echo "usage: tool [--resume ID]";; esac
"""
HANGS = """#!/bin/sh
echo "$1" >> "{log}"
exec sleep 600
"""


class Tool:
    """A program that can be probed, and writes down every call."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bin" / "tool"
        self.log = folder / "calls"
        self.path.parent.mkdir()
        self.install(ANSWERS)

    def install(self, text: str, version: str = "1.2.3") -> None:
        self.path.write_text(text.replace("{log}", str(self.log)).replace("{version}", version))
        self.path.chmod(0o755)

    def setup(self, *words: str) -> EngineSetup:
        return EngineSetup(command=words or ("tool",), env={"PATH": f"{self.path.parent}{os.pathsep}{os.defpath}"})

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


def find(cache: Path, setup: EngineSetup) -> Installed | None:
    """As a program of its own would, that finds nothing in memory."""
    found: list[Installed | None] = []

    async def main() -> None:
        found.append(await Probes(cache, Direct()).find(Scripted(), setup))

    run_async(main)
    return found[0]


def seen(cache: Path, setup: EngineSetup) -> Installed:
    found = find(cache, setup)
    assert found is not None
    return found


@pytest.mark.contract("P-4")
def test_the_real_program_is_asked_once_for_many_programs(tmp_path: Path, tool: Tool) -> None:
    cache = tmp_path / "data" / "probes.json"
    found = seen(cache, tool.setup())
    assert (found.path, found.probe.version, found.probe.kind) == (str(tool.path), "1.2.3", ProfileKind.RESUMABLE)
    assert tool.calls == ["--help", "--version"]
    for _ in range(3):
        assert seen(cache, tool.setup()) == found
    assert tool.calls == ["--help", "--version"]


@pytest.mark.contract("P-4")
def test_a_thousand_at_once_ask_once(tmp_path: Path, tool: Tool) -> None:
    async def main() -> None:
        asking = Probes(tmp_path / "probes.json", Direct())
        found = await asyncio.gather(*(asking.find(Scripted(), tool.setup()) for _ in range(1000)))
        assert len({each.probe.version for each in found if each is not None}) == 1

    run_async(main)
    assert tool.calls == ["--help", "--version"]


@pytest.mark.contract("P-4")
def test_a_program_that_has_changed_is_asked_again(tmp_path: Path, tool: Tool) -> None:
    cache = tmp_path / "probes.json"
    assert seen(cache, tool.setup()).probe.version == "1.2.3"
    tool.install(ANSWERS, version="1.2.4")
    assert seen(cache, tool.setup()).probe.version == "1.2.4"
    # Also one that has kept its size, by its time alone.
    os.utime(tool.path, ns=(1, 1))
    seen(cache, tool.setup())
    assert len(tool.calls) == 6


def test_a_script_behind_an_interpreter_counts_too(tmp_path: Path, tool: Tool) -> None:
    cache = tmp_path / "probes.json"
    setup = tool.setup("sh", str(tool.path))
    assert seen(cache, setup).probe.version == "1.2.3"
    tool.install(ANSWERS, version="2.0.0")
    assert seen(cache, setup).probe.version == "2.0.0"


def test_a_link_that_leads_to_another_program_is_seen(tmp_path: Path, tool: Tool) -> None:
    cache = tmp_path / "probes.json"
    link = tool.path.with_name("linked")
    link.symlink_to(tool.path)
    assert seen(cache, tool.setup("linked")).probe.version == "1.2.3"
    other = tool.path.with_name("other")
    other.write_text(tool.path.read_text().replace("1.2.3", "3.2.1 of another size"))
    other.chmod(0o755)
    link.unlink()
    link.symlink_to(other)
    assert seen(cache, tool.setup("linked")).probe.version == "3.2.1"


def test_a_program_that_is_not_there_is_none_and_seen_once_it_is(tmp_path: Path, tool: Tool) -> None:
    cache = tmp_path / "probes.json"
    assert find(cache, tool.setup("no-such-tool")) is None
    assert find(cache, tool.setup(str(tmp_path / "nowhere"))) is None
    (tmp_path / "bin" / "no-such-tool").symlink_to(tool.path)
    assert find(cache, tool.setup("no-such-tool")) is not None


def test_a_file_that_cannot_be_started_is_a_failed_probe(tmp_path: Path, tool: Tool) -> None:
    tool.path.write_bytes(b"\x7fELF nothing")
    found = seen(tmp_path / "probes.json", tool.setup())
    assert found.probe.kind is ProfileKind.STICKY_PROCESS
    assert found.probe.reason == "its --help ended with 127"


@pytest.mark.contract("P-4")
def test_a_program_that_hangs_has_failed_and_is_asked_again_next_time(
    tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert probes.PROBE_SEC == 15
    monkeypatch.setattr(probes, "PROBE_SEC", 1.0)
    cache = tmp_path / "probes.json"
    tool.install(HANGS)
    found = seen(cache, tool.setup())
    assert found.probe.kind is ProfileKind.STICKY_PROCESS
    assert "did not end in time" in found.probe.reason
    assert tool.calls.count("--version") == 1
    assert not cache.exists()
    again = seen(cache, tool.setup())
    assert tool.calls.count("--version") == 2
    assert again == found
    assert _lives(tool) == set()


def _lives(tool: Tool) -> set[int]:
    """Processes that still have the probe's mark."""
    marked = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"PATH={tool.path.parent}".encode() in path.read_bytes():
                marked.add(int(path.parent.name))
        except OSError:
            continue
    return marked


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[]", b'{"key": 3}', b'{"key": {"kind": "nonsense"}}', b"null"]
)
def test_a_broken_cache_is_passed_over_and_replaced(tmp_path: Path, tool: Tool, content: bytes) -> None:
    cache = tmp_path / "probes.json"
    cache.write_bytes(content)
    for _ in range(2):
        assert seen(cache, tool.setup()).probe.version == "1.2.3"
    assert tool.calls == ["--help", "--version"]


def test_a_cache_of_a_stranger_is_not_used(tmp_path: Path, tool: Tool) -> None:
    cache = tmp_path / "probes.json"
    find(cache, tool.setup())
    assert cache.stat().st_mode & 0o777 == 0o600
    trusted = cache.read_bytes()
    lying = tmp_path / "lying.json"
    lying.write_bytes(trusted.replace(b"1.2.3", b"6.6.6"))

    def plant_link() -> None:
        cache.symlink_to(lying)

    def plant_open_file() -> None:
        cache.write_bytes(lying.read_bytes())
        cache.chmod(0o666)

    def plant_pipe() -> None:
        os.mkfifo(cache, 0o600)

    def plant_large_file() -> None:
        cache.write_bytes(lying.read_bytes() + b" " * 1_000_000)
        cache.chmod(0o600)

    for plant in (plant_link, plant_open_file, plant_pipe, plant_large_file):
        cache.unlink()
        plant()
        found = find(cache, tool.setup())
        assert found is not None
        assert found.probe.version == "1.2.3", plant.__name__
        assert cache.read_bytes() == trusted


def test_another_version_of_askback_asks_again(tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may look for more, and read the same answers in another way."""
    cache = tmp_path / "data" / "probes.json"
    seen(cache, tool.setup())
    monkeypatch.setattr(probes, "__version__", "99.0.0", raising=False)
    seen(cache, tool.setup())
    seen(cache, tool.setup())
    assert tool.calls == ["--help", "--version"] * 2
    assert len(json.loads(cache.read_bytes())) == 1


def test_what_an_older_version_answered_is_forgotten(tmp_path: Path, tool: Tool) -> None:
    cache = tmp_path / "probes.json"
    for version in ("1.2.3", "1.2.34", "1.2.345"):
        tool.install(ANSWERS, version)
        find(cache, tool.setup())
    assert len(json.loads(cache.read_bytes())) == 1


def test_whoever_waits_for_a_probe_is_told_and_can_ask_for_a_new_one(tmp_path: Path, tool: Tool) -> None:
    told: list[str] = []

    async def main() -> None:
        known = Probes(tmp_path / "probes.json", Direct())
        known.on_probe = told.append
        for _ in range(2):
            await known.find(Scripted(), tool.setup())
        assert told == ["scripted"]
        known.forget()
        await known.find(Scripted(), tool.setup())

    run_async(main)
    assert told == ["scripted", "scripted"]


def test_a_cache_that_cannot_be_written_costs_a_probe_and_no_more(tmp_path: Path, tool: Tool) -> None:
    (tmp_path / "file").write_text("")
    for _ in range(2):
        assert seen(tmp_path / "file" / "probes.json", tool.setup()).probe.version == "1.2.3"
    assert len(tool.calls) == 4


def test_a_probe_has_a_home_of_its_own_that_does_not_stay(tmp_path: Path, tool: Tool) -> None:
    tool.install('#!/bin/sh\necho "$HOME" >> "{log}"\ntouch "$HOME/litter"\necho tool 1.0 --resume\n')
    seen(tmp_path / "probes.json", tool.setup())
    assert tool.calls
    assert not any(Path(home).exists() for home in tool.calls)


@pytest.mark.contract("P-4")
def test_a_program_that_could_not_be_started_is_asked_again(tmp_path: Path, tool: Tool) -> None:
    """The machine may have had no room for another process, or the program lacked what it runs on."""
    cache, shell = tmp_path / "probes.json", tmp_path / "shell"
    tool.install(ANSWERS.replace("/bin/sh", str(shell)))
    assert seen(cache, tool.setup()).probe.kind is ProfileKind.STICKY_PROCESS
    shell.symlink_to("/bin/sh")
    assert seen(cache, tool.setup()).probe.kind is ProfileKind.RESUMABLE


def test_a_cache_that_cannot_be_written_leaves_nothing_beside_it(tmp_path: Path, tool: Tool) -> None:
    cache = tmp_path / "cache" / "probes.json"
    cache.mkdir(parents=True)
    assert seen(cache, tool.setup()).probe.kind is ProfileKind.RESUMABLE
    assert list(cache.parent.iterdir()) == [cache]
