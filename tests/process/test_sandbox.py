"""The sandbox: what a program inside sees and can change, and that none of its processes survives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hostile import HOSTILE, Hostile, children, within

from askback.process.child import Child, NotStarted, OutputLimits, SpawnRequest
from askback.process.guardian.client import Guardian, available
from askback.process.isolation import Isolation, IsolationLevel
from askback.process.sandbox.bubblewrap import Bubblewrap, Sandboxed
from askback.process.sandbox.visibility import DenyList, deny_list
from askback.process.streams import Line
from support.data_folder import ASK, FINISH, World, over, run_async, submit, waiting

LIMITS = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 24)
PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from askback.process.child import OutputLimits, SpawnRequest
from askback.process.guardian.client import Guardian
from askback.process.sandbox.bubblewrap import Sandboxed
from askback.process.sandbox.visibility import deny_list
async def main():
    folder = Path(sys.argv[1])
    spawner = Sandboxed(Guardian(), hide=deny_list(homes=[folder / "home"], private=[folder / "data"]))
    limits = OutputLimits(line_bytes=1000, turn_bytes=1000)
    argv = json.loads(sys.argv[2])
    await spawner.start(SpawnRequest(argv=argv, env={}, cwd=folder / "data/own", limits=limits, writable=(folder / "data/own",)))
    print("started", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


class Place:
    """A user's home and our data folder with two runs, one of them the program's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.share: tuple[Path, ...] = ()
        self.show: tuple[Path, ...] = ()
        self.home = folder / "home"
        self.own = folder / "data" / "own"
        for path in (self.home / ".ssh" / "id_rsa", folder / "data" / "token", folder / "data" / "other" / "answer"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("secret")
        self.own.mkdir()

    @property
    def hide(self) -> DenyList:
        return deny_list(homes=[self.home], private=[self.folder / "data"])

    @asynccontextmanager
    async def spawning(self) -> AsyncIterator[Sandboxed]:
        spawner = Sandboxed(Guardian(), hide=self.hide, show=self.show, share=self.share)
        try:
            async with asyncio.timeout(120):
                yield spawner
        finally:
            await spawner.close()

    def request(self, *argv: str, path: str = "/usr/bin:/bin") -> SpawnRequest:
        return SpawnRequest(argv=argv, env={"PATH": path}, cwd=self.own, limits=LIMITS, writable=(self.own,))

    def printed(self, request: SpawnRequest) -> list[str]:
        """The output of a program inside."""
        said: list[str] = []

        async def take(_: str, line: Line) -> None:
            said.append(line.data.decode())

        async def main() -> None:
            async with self.spawning() as spawner:
                child = await spawner.start(request)
                await child.lines(take)
                assert await child.end("", grace_sec=0)
                child.close()

        asyncio.run(main())
        return said


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    isolation = asyncio.run(_isolation(place)) if available() else None
    if isolation is None or isolation.level is not IsolationLevel.BUBBLEWRAP:
        pytest.skip(f"no sandbox here: {isolation and isolation.why_not_more}")
    return place


async def _isolation(place: Place) -> Isolation:
    async with place.spawning() as spawner:
        return await spawner.isolation()


def test_nothing_but_its_own_folders_can_be_written_to(place: Place) -> None:
    script = f"""
for path in /x /etc/x /usr/x /var/x {Path(__file__).parent}/x; do touch $path 2>/dev/null && echo wrote $path; done
touch mine /tmp/passing && echo done
touch {place.home}/passing {place.folder}/data/passing 2>/dev/null
"""
    assert place.printed(place.request("sh", "-c", script)) == ["done"]
    assert [path.name for path in place.own.iterdir()] == ["mine"]
    passing = [folder / "passing" for folder in (place.home, place.folder / "data", Path("/tmp"))]
    assert not any(path.exists() for path in passing)


def test_homes_the_data_of_others_and_passing_files_are_hidden(place: Place) -> None:
    found = f"find {place.folder} /home /root /run/user /var/tmp -type f 2>/dev/null; echo looked"
    assert place.printed(place.request("sh", "-c", found)) == ["looked"]


def test_only_what_the_settings_share_is_seen_and_never_our_own_files(place: Place) -> None:
    shared, read = place.folder / "shared", place.folder / "read"
    read.write_text("for all")
    script = f"cat {read} 2>/dev/null; touch {shared} 2>/dev/null; cat {place.folder}/data/token 2>/dev/null; echo"
    assert place.printed(place.request("sh", "-c", script)) == [""]
    place.show = (read,)
    assert place.printed(place.request("sh", "-c", script)) == ["for all"]
    assert not shared.exists()
    place.show, place.share = (), (place.folder,)
    assert place.printed(place.request("sh", "-c", script)) == ["for all"]
    assert shared.exists()


def test_no_process_outside_is_seen(place: Place) -> None:
    said = place.printed(place.request("sh", "-c", "for each in /proc/[0-9]*; do echo ${each#/proc/}; done"))
    assert {int(pid) for pid in said} == {1, 2}


def test_a_program_that_lies_in_a_home_is_shown_with_what_it_needs_and_no_more(place: Place) -> None:
    package = place.home / ".nvm" / "lib" / "node_modules" / "tool"
    package.mkdir(parents=True)
    (package / "part").write_text("whole\n")
    (package / "tool.sh").write_text(
        f"#!/usr/bin/env helper\ncat {package}/part\nls -A {place.home} {place.home}/.nvm\n"
    )
    binaries = place.home / ".nvm" / "bin"
    binaries.mkdir()
    (binaries / "tool").symlink_to("../lib/node_modules/tool/tool.sh")
    (binaries / "helper").symlink_to("/bin/sh")
    (place.home / ".nvm" / "credentials").write_text("secret")
    (package / "tool.sh").chmod(0o755)
    said = place.printed(place.request("tool", path=f"{binaries}:/usr/bin:/bin"))
    assert said == ["whole", f"{place.home}:", ".nvm", "", f"{place.home}/.nvm:", "bin", "lib"]


def test_the_exit_code_of_the_program_inside_is_told(place: Place) -> None:
    async def main() -> None:
        async with place.spawning() as spawner:
            child = await spawner.start(place.request("sh", "-c", "exit 7"))
            assert await child.exited() == 7
            child.close()
            with pytest.raises(NotStarted, match="no-such-program"):
                await spawner.start(place.request("no-such-program"))

    asyncio.run(main())


def test_the_program_inside_is_asked_to_end_before_it_is_killed(place: Place) -> None:
    script = "trap 'echo asked > asked; exit 0' TERM; echo > ready; while :; do sleep 0.01; done"

    async def main() -> None:
        async with place.spawning() as spawner:
            child = await spawner.start(place.request("sh", "-c", script))
            assert await asyncio.to_thread(within, 60, (place.own / "ready").exists)
            assert await child.end("", grace_sec=20)
            assert await child.exited() == 0
            child.close()

    asyncio.run(main())
    assert (place.own / "asked").exists()


@pytest.mark.contract("B-2")
@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_of_a_hostile_engine_survives_its_end_inside(place: Place, kind: str) -> None:
    async def main() -> None:
        async with place.spawning() as spawner:
            hostile = Hostile(kind, place.own)
            child = await spawner.start(place.request(*hostile.argv))
            assert await asyncio.to_thread(within, 60, hostile.ready.exists)
            assert await child.end("", grace_sec=0.1)
            assert hostile.survivors() == []
            child.close()

    asyncio.run(main())


@pytest.mark.contract("B-3")
@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_of_a_hostile_engine_survives_a_kill_of_our_program_inside(place: Place, kind: str) -> None:
    hostile = Hostile(kind, place.own)
    argv = [sys.executable, "-c", PROGRAM, str(place.folder), json.dumps(hostile.argv)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        started = program.stdout.readline()
        ready = within(60, hostile.ready.exists)
        program.kill()
    assert (started, ready) == (b"started\n", True)
    assert hostile.is_gone()


@pytest.mark.contract("B-3")
def test_nothing_survives_when_keeper_and_guardian_are_killed_at_once(place: Place) -> None:
    async def main() -> None:
        guardian = Guardian()
        spawner = Sandboxed(guardian, hide=place.hide)
        hostile = Hostile("leaves a daemon without environment and files", place.own)
        child: Child = await spawner.start(place.request(*hostile.argv))
        assert await asyncio.to_thread(within, 60, hostile.ready.exists)
        assert guardian.pid is not None
        os.kill(guardian.pid, signal.SIGSTOP)
        for pid in (*children(guardian.pid), guardian.pid):
            os.kill(pid, signal.SIGKILL)
        assert await asyncio.to_thread(hostile.is_gone)
        child.close()
        await spawner.close()

    asyncio.run(main())


def test_without_bubblewrap_programs_run_under_the_guardian_alone_and_it_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(place.home))
    assert asyncio.run(_isolation(place)) == Isolation(
        level=IsolationLevel.GUARDIAN,
        why_not_more="bubblewrap is not installed",
        advice="install the package bubblewrap",
    )
    (place.home / "bwrap").write_text("#!/bin/sh\necho bwrap: No permissions to create new namespace >&2\nexit 1\n")
    (place.home / "bwrap").chmod(0o755)
    isolation = asyncio.run(_isolation(place))
    assert isolation.level is IsolationLevel.GUARDIAN
    assert "No permissions to create new namespace" in isolation.why_not_more
    assert place.printed(place.request("sh", "-c", f"cat {place.home}/.ssh/id_rsa")) == ["secret"]


def test_a_run_is_carried_out_inside(place: Place) -> None:
    world = World(place.folder / "world")
    world.folder.mkdir()

    async def main() -> None:
        async with world.working('sandbox = "on"') as app:
            asked = await waiting(app, (await submit(app, world.skill([ASK], [FINISH]))).id)
            await app.service.reply(asked.id, "blue")
            run = await over(app, asked.id)
            assert (run.error, (await app.service.result(run.id)).data) == (None, {"colour": "blue"})
            assert len(world.prompts(run.id)) == 2

    run_async(main)


def test_a_program_that_was_upgraded_is_seen_where_it_lies_now(tmp_path: Path) -> None:
    """Like package managers: a link in `bin` leads to a folder for each version."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    for version in ("1.0", "1.1"):
        (home / "cellar" / version / "bin").mkdir(parents=True)
        (home / "cellar" / version / "bin" / "tool").touch(mode=0o700)
    bubblewrap = Bubblewrap(program="bwrap", hide=deny_list(homes=[home], private=[tmp_path / "data"]))
    request = SpawnRequest(argv=["tool"], env={"PATH": str(home / "bin")}, cwd=tmp_path, limits=LIMITS)
    for version in ("1.0", "1.1"):
        (home / "bin" / "tool").unlink(missing_ok=True)
        (home / "bin" / "tool").symlink_to(home / "cellar" / version / "bin" / "tool")
        assert str(home / "cellar" / version / "bin") in bubblewrap.wrap(request).argv
