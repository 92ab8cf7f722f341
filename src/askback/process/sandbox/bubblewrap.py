"""Bubblewrap around every program: its own process table, the system to read, and its own folders to write to.

`visibility.py` says which files are shown, `py` what can be connected to, `system_calls.py` what is refused.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from askback.core.errors import is_temporary
from askback.process.child import Child, NotStarted, SpawnRequest, call
from askback.process.guardian.client import Guardian
from askback.process.isolation import Isolation, IsolationLevel, Network
from askback.process.limits import Enforcement
from askback.process.sandbox import system_calls, visibility
from askback.process.sandbox.visibility import ETC, PASSING, SYSTEM, Hidden, both, closed_to_others, resolved, within

PROBE_SEC = 10.0
_CLOSED_SEC = 60
"""For so long it is not looked up again which files other users may not read."""
_PEOPLE_FROM_UID = 1000
_NOBODY = 65534
# Below these, what other users may not read is hidden too, down to so many folders.
_CLOSED = ((ETC, 6), (Path("/usr/local/etc"), 4), (Path("/opt"), 3))
_RUN = Path("/run")
_ANY = Path("/usr")
"""A folder that is there in every sandbox."""
# Root may write to these without any capability, and so have the kernel run a command outside of every sandbox.
_KERNEL_SETTINGS = tuple(Path("/proc", name) for name in ("sys", "sysrq-trigger", "acpi", "scsi"))
# In a user namespace of its own making root could mount the control groups of the machine, and change them.
_NO_NAMESPACES = ("--unshare-user", "--disable-userns")
# A character device on a mount without devices: opening it is refused.
_UNREADABLE = "/dev/null"


class Sandboxed:
    """A spawner that puts every program into a sandbox if one works here, which it finds out once."""

    def __init__(
        self,
        guardian: Guardian,
        *,
        hide: Hidden,
        show: Sequence[Path] = (),
        share: Sequence[Path] = (),
        networks: Iterable[Network] = (),
    ) -> None:
        """`networks`: those that programs will be started with, besides the host's own."""
        self._guardian = guardian
        self._networks = tuple(sorted({*networks} - {Network.HOST}))
        self._hide = hide
        self._show = tuple(show)
        self._share = tuple(share)
        self._found: tuple[Bubblewrap | None, Isolation] | None = None
        self._finding = asyncio.Lock()

    async def start(self, order: SpawnRequest) -> Child:
        bubblewrap, confinement = await self._find()
        if reason := confinement.no_network.get(order.network):
            # A setting that was possible when this program started, and is not any more, or that nobody checked.
            raise NotStarted(f"{order.argv[0]} cannot be started: {reason}")
        spawner = self._guardian if bubblewrap is None else Within(self._guardian, bubblewrap)
        return await spawner.start(order)

    async def confinement(self) -> Isolation:
        return (await self._find())[1]

    async def enforcement(self) -> Enforcement:
        bubblewrap, _ = await self._find()
        found = await self._guardian.enforcement()
        return found if bubblewrap is None else found.sandboxed()

    async def close(self) -> None:
        await self._guardian.close()

    async def _find(self) -> tuple[Bubblewrap | None, Isolation]:
        async with self._finding:
            if self._found is None:
                self._found = await self._look()
            return self._found

    async def _look(self) -> tuple[Bubblewrap | None, Isolation]:
        program = shutil.which("bwrap")
        if program is None:
            why, advice = "bubblewrap is not installed", "install the package bubblewrap"
        else:
            bubblewrap = Bubblewrap(
                program=program, hide=self._hide, show=self._show, share=self._share, filters=system_calls.known()
            )
            problem = await self._problem(bubblewrap, Network.HOST)
            if problem is None:
                return bubblewrap, await self._with_networks(bubblewrap)
            why = f"bubblewrap does not work here: {problem}"
            advice = "allow unprivileged user namespaces, or run it where they are allowed"
        needs = f"there is no sandbox: {why}; {advice}"
        no_network = dict.fromkeys(self._networks, needs)
        return None, Isolation(in_force=IsolationLevel.GUARDIAN, why_not_more=why, advice=advice, no_network=no_network)

    async def _with_networks(self, bubblewrap: Bubblewrap) -> Isolation:
        problems: dict[Network, str] = {}
        for network in self._networks:
            if network is Network.NO_LOOPBACK and program() is None:
                problems[network] = f"{PROGRAM} is not installed; install the package {PROGRAM}"
            elif problem := await self._problem(bubblewrap, network):
                problems[network] = f"it does not work here: {problem}"
        shared = tuple(str(path) for path in self._share)
        return Isolation(in_force=IsolationLevel.BUBBLEWRAP, shared=shared, no_network=problems)

    async def _problem(self, bubblewrap: Bubblewrap, network: Network) -> str | None:
        """What goes wrong with a program that does nothing, in the same sandbox as the others."""
        argv = ("/bin/sh", "-c", "exit 0")
        spawner = Within(self._guardian, bubblewrap)
        try:
            printed = await call(
                spawner, argv, env={}, cwd=_ANY, timeout_sec=PROBE_SEC, mark="probe-sandbox", network=network
            )
        except NotStarted as error:
            if is_temporary(error):
                raise
            return str(error)
        if printed.exit_code == 0:
            return None
        said = printed.stderr.strip().splitlines()
        return said[-1] if said else f"exit code {printed.exit_code}"


@dataclass(frozen=True, slots=True)
class Within:
    """A spawner for one kind of sandbox."""

    guardian: Guardian
    bubblewrap: Bubblewrap

    async def start(self, order: SpawnRequest) -> Child:
        order = await asyncio.to_thread(self.bubblewrap.around, order)
        if not self.bubblewrap.filters:
            return await self.guardian.start(order, wrapped=True)
        with system_calls.filter_file() as file:
            return await self.guardian.start(replace(order, keep_fds=(*order.keep_fds, file)), wrapped=True)

    async def confinement(self) -> Isolation:
        return Isolation(in_force=IsolationLevel.BUBBLEWRAP)

    async def enforcement(self) -> Enforcement:
        return (await self.guardian.enforcement()).sandboxed()

    async def close(self) -> None:
        await self.guardian.close()


def homes_of_people(user_home: Path) -> set[Path]:
    """The user's home, by the environment and by the system, and those of other people."""
    people = {each.pw_dir for each in pwd.getpwall() if _PEOPLE_FROM_UID <= each.pw_uid != _NOBODY}
    people |= {each.pw_dir for each in pwd.getpwall() if each.pw_uid == os.getuid()}
    return {user_home, Path("/root"), *map(Path, people)} - {Path("/nonexistent")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """How a sandbox is made on this machine."""

    program: str
    hide: Hidden
    show: tuple[Path, ...] = ()
    """Further files and folders to read, by the settings."""
    share: tuple[Path, ...] = ()
    """Further folders to write to, by the settings."""
    filters: bool = False
    """Whether some system calls are refused, by a filter that is the last of the files to keep."""

    def around(self, order: SpawnRequest) -> SpawnRequest:
        """The same program inside a sandbox."""
        path = shutil.which(order.argv[0], path=order.env.get("PATH", os.defpath))
        if path is None:
            raise NotStarted(f"{order.argv[0]} cannot be started: no such program")
        if any("\0" in word for word in order.argv):
            raise NotStarted(f"{order.argv[0]} cannot be started: embedded null character")
        search = order.env.get("PATH", "")
        readable = frozenset((*order.readable, *visibility.certificates(order.env)))
        view = self.view(_shown(self.hide, path, resolved(Path(path)), search, readable), order.network)
        own = tuple(_binds("--bind", (part for each in order.writable for part in both(each))))
        # The guardian replaces the word by the number of the file.
        refused = ("--seccomp", f"\0{len(order.keep_fds)}") if self.filters else ()
        # Its root is a file system in memory, which is closed once everything is in its place.
        options = (*view, *own, *refused, "--remount-ro", "/", "--chdir", str(order.cwd))
        argv = (*around(order.network), self.program, *options, "--", *order.argv)
        return replace(order, argv=argv)

    def view(self, shown: Iterable[Path], network: Network) -> tuple[str, ...]:
        """Later ones lie over earlier ones: what is shown of a home must not uncover our own files."""
        covered = self._covered()
        needed = [each for each in _outermost(shown) if not _is_system(each) or within(resolved(each), covered)]
        return (
            *("--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"),
            *(_NO_NAMESPACES if os.geteuid() == 0 else ()),
            *options(network),
            *(word for folder in (*PASSING, _RUN) for word in ("--tmpfs", str(folder))),
            *_system(),
            *("--dev", "/dev", "--proc", "/proc"),
            *_binds("--ro-bind-try", _KERNEL_SETTINGS if os.geteuid() == 0 else ()),
            *("--ro-bind", str(ETC), str(ETC)),
            *_masks(covered),
            *_binds("--ro-bind-try", [*_resolver_files(), *needed, *self.show]),
            *_binds("--bind-try", self.share),
            *_masks(self._uncovered()),
            *resolver(network),
        )

    def _covered(self) -> list[Path]:
        """What is hidden in the folders of the system; an installation in it is shown again."""
        folders = {path.parent for path in self.hide.private if not path.is_dir()} - {ETC, *SYSTEM}
        folders |= {*self.hide.homes}
        closed = _closed(int(time.monotonic() / _CLOSED_SEC))
        return [*sorted(folders), *(each for each in closed if not within(each, folders))]

    def _uncovered(self) -> Iterator[Path]:
        """Our own files, where a folder that is shown would show them, under whatever name."""
        for shown in (*SYSTEM, ETC, *self.show, *self.share):
            real = resolved(shown)
            for private in self.hide.private:
                if private.is_relative_to(real):
                    yield shown / private.relative_to(real)


@lru_cache(maxsize=256)
def _shown(hide: Hidden, program: str, _lies_at: Path, search: str, readable: frozenset[Path]) -> frozenset[Path]:
    """Looked up once for every engine, and again when it lies elsewhere: so many links are slow to follow."""
    shown = visibility.installation(hide, program, search)
    for named in (part for each in readable for part in both(each)):
        shown |= visibility.siblings(hide, named) if not named.is_dir() else {named} if hide.may_show(named) else set()
    return frozenset(shown)


@lru_cache(maxsize=1)
def _closed(_minute: int) -> tuple[Path, ...]:
    return tuple(each for folder, depth in _CLOSED for each in closed_to_others(folder, depth))


def _system() -> Iterator[str]:
    """The folders of the system that are there; a link, such as `/bin`, stays a link."""
    bound: list[Path] = []
    for folder in SYSTEM:
        real = resolved(folder)
        if not real.is_dir():
            continue
        if folder.is_symlink() and not within(folder, bound):
            yield from ("--symlink", str(folder.readlink()), str(folder))
        if not within(real, bound):
            yield from ("--ro-bind", str(real), str(real))
            bound.append(real)


def _masks(paths: Iterable[Path]) -> Iterator[str]:
    """An empty folder, or a file that cannot be opened, over each that is there."""
    for path in paths:
        if not os.access(path, os.F_OK):
            continue
        yield from ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", _UNREADABLE, str(path))


def _resolver_files() -> Iterator[Path]:
    """Where names are looked up, which many systems keep below `/run`. Only the file: its folder has sockets."""
    real = resolved(RESOLVER)
    if not _is_system(real):
        yield real


def _binds(option: str, paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        real = resolved(path)
        if os.access(real, os.F_OK):
            yield from (option, str(real), str(path))


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Without those that lie in another of them: a folder is shown with what is in it."""
    kept: list[Path] = []
    for path in sorted(paths):
        if not within(path, kept):
            kept.append(path)
    return kept


def _is_system(path: Path) -> bool:
    return within(path, (*SYSTEM, ETC))


PROGRAM = "slirp4netns"
RESOLVER = Path("/etc/resolv.conf")
_HELPER = Path(__file__).with_name("network_program.py")
_RESOLVER_FILE = "askback:resolver"
"""Replaced by `network_program.py` with the number of an open file."""


def program() -> str | None:
    return shutil.which(PROGRAM)


def around(network: Network) -> tuple[str, ...]:
    """What is started instead of the sandbox, and starts it."""
    if network is not Network.NO_LOOPBACK:
        return ()
    return (sys.executable, "-I", "-S", str(_HELPER), program() or PROGRAM, _RESOLVER_FILE)


def options(network: Network) -> tuple[str, ...]:
    return ("--unshare-net",) if network is Network.NONE else ()


def resolver(network: Network) -> tuple[str, ...]:
    """Names are looked up by the program that makes the network: the host's own resolver may be on its loopback."""
    real = resolved(RESOLVER)
    if network is not Network.NO_LOOPBACK or not real.is_file():
        return ()
    return ("--ro-bind-data", _RESOLVER_FILE, str(real))
