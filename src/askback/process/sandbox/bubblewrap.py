"""Bubblewrap around every program: its own process table, a read-only system, and writable folders of its run.

`visibility.py` decides which files are shown, `network_program.py` connects the network, and `system_calls.py` lists the
refused system calls.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from askback.core.errors import is_temporary
from askback.fs.repositories import TooManyFolders, repositories
from askback.process.child import Child, FolderRefused, NotStarted, SpawnRequest, call
from askback.process.guardian.client import Guardian
from askback.process.isolation import Enforcement, Isolation, IsolationLevel, Network
from askback.process.sandbox import system_calls, visibility
from askback.process.sandbox.visibility import ETC, PASSING, SYSTEM, DenyList, both, closed_to_others, resolved, within

PROBE_SEC = 10.0
_PROBES = 5
"""A probe also fails if a path that is to be hidden is removed meanwhile. It takes this many failures to count."""
_FIRST_USER_UID = 1000
_NOBODY = 65534
# In these folders, files that other users cannot read are hidden too, down to this depth.
_CLOSED = ((ETC, 6), (Path("/usr/local/etc"), 4), (Path("/opt"), 3))
# With a private file directly in one of these, only that file is hidden: every program needs the rest.
_NEEDED = frozenset(
    (*SYSTEM, *map(Path, ("/", "/etc", "/etc/ssl", "/etc/ssl/certs", "/etc/pki", "/etc/pki/tls", "/etc/pki/tls/certs")))
)
_RUN = Path("/run")
_ANY = Path("/usr")
"""A folder that exists in every sandbox."""
# Root can write to these without any capability, and so make the kernel run a command outside the sandbox.
_KERNEL_SETTINGS = tuple(Path("/proc", name) for name in ("sys", "sysrq-trigger", "acpi", "scsi"))
# In a new user namespace, root could mount the control groups of the machine and change them.
_NO_NAMESPACES = ("--unshare-user", "--disable-userns")
# A character device on a mount without devices: opening it is refused.
_UNREADABLE = "/dev/null"


class Sandboxed:
    """A spawner that starts every program in a sandbox, if one works on this machine. That is tested once."""

    def __init__(
        self,
        guardian: Guardian,
        *,
        hide: DenyList,
        show: Sequence[Path] = (),
        share: Sequence[Path] = (),
        networks: Iterable[Network] = (),
    ) -> None:
        """`networks`: those that programs will use, besides the host's own."""
        self._guardian = guardian
        self._networks = tuple(sorted({*networks} - {Network.HOST}))
        self._hide = hide
        self._show = tuple(show)
        self._share = tuple(share)
        self._probed: tuple[Bubblewrap | None, Isolation] | None = None
        self._probing = asyncio.Lock()

    async def start(self, request: SpawnRequest) -> Child:
        bubblewrap, isolation = await self._probe_once()
        if reason := isolation.no_network.get(request.network):
            # The network was available when Askback started but no longer is, or nobody checked.
            raise NotStarted(f"{request.argv[0]} cannot be started: {reason}")
        starter = self._guardian if bubblewrap is None else _InSandbox(self._guardian, bubblewrap)
        return await starter.start(request)

    async def isolation(self) -> Isolation:
        return (await self._probe_once())[1]

    async def enforcement(self) -> Enforcement:
        bubblewrap, _ = await self._probe_once()
        enforced = await self._guardian.enforcement()
        return enforced if bubblewrap is None else enforced.sandboxed()

    def extend_lease(self, deadline: float) -> None:
        self._guardian.extend_lease(deadline)

    async def close(self) -> None:
        await self._guardian.close()

    async def _probe_once(self) -> tuple[Bubblewrap | None, Isolation]:
        async with self._probing:
            if self._probed is None:
                self._probed = await self._probe()
            return self._probed

    async def _probe(self) -> tuple[Bubblewrap | None, Isolation]:
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
        return None, Isolation(level=IsolationLevel.GUARDIAN, why_not_more=why, advice=advice, no_network=no_network)

    async def _with_networks(self, bubblewrap: Bubblewrap) -> Isolation:
        problems: dict[Network, str] = {}
        for network in self._networks:
            if network is Network.NO_LOOPBACK and shutil.which(PROGRAM) is None:
                problems[network] = f"{PROGRAM} is not installed; install the package {PROGRAM}"
            elif problem := await self._problem(bubblewrap, network):
                problems[network] = f"it does not work here: {problem}"
        shared = tuple(str(path) for path in self._share)
        return Isolation(level=IsolationLevel.BUBBLEWRAP, shared=shared, no_network=problems)

    async def _problem(self, bubblewrap: Bubblewrap, network: Network) -> str | None:
        """Why a sandbox does not work here, or None. A failure that does not repeat must not turn the sandbox off."""
        for _ in range(_PROBES):
            problem = await self._failure(bubblewrap, network)
            if problem is None:
                break
        return problem

    async def _failure(self, bubblewrap: Bubblewrap, network: Network) -> str | None:
        """Run a program that does nothing in the sandbox. Returns why it failed, or None."""
        argv = ("/bin/sh", "-c", "exit 0")
        starter = _InSandbox(self._guardian, bubblewrap)
        try:
            printed = await call(
                starter, argv, env={}, cwd=_ANY, timeout_sec=PROBE_SEC, mark="probe-sandbox", network=network
            )
        except NotStarted as error:
            if is_temporary(error):
                raise
            return str(error)
        if printed.exit_code == 0:
            return None
        lines = printed.stderr.strip().splitlines()
        return lines[-1] if lines else f"exit code {printed.exit_code}"


@dataclass(frozen=True, slots=True)
class _InSandbox:
    """Starts programs in one kind of sandbox."""

    guardian: Guardian
    bubblewrap: Bubblewrap

    async def start(self, request: SpawnRequest) -> Child:
        request = await asyncio.to_thread(self.bubblewrap.wrap, request)
        if not self.bubblewrap.filters:
            return await self.guardian.start(request, wrapped=True)
        with system_calls.filter_file() as file:
            return await self.guardian.start(replace(request, pass_fds=(*request.pass_fds, file)), wrapped=True)


def homes_of_users(user_home: Path) -> set[Path]:
    """The user's home, from the environment and from the system, and the homes of other people."""
    people = {each.pw_dir for each in pwd.getpwall() if _FIRST_USER_UID <= each.pw_uid != _NOBODY}
    people |= {each.pw_dir for each in pwd.getpwall() if each.pw_uid == os.getuid()}
    return {user_home, Path("/root"), *map(Path, people)} - {Path("/nonexistent")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """The options of a sandbox on this machine."""

    program: str
    hide: DenyList
    show: tuple[Path, ...] = ()
    """Further files and folders to read, from the settings."""
    share: tuple[Path, ...] = ()
    """Further folders to write to, from the settings."""
    filters: bool = False
    """Whether some system calls are refused. The filter is the last file in `pass_fds`."""

    def wrap(self, request: SpawnRequest) -> SpawnRequest:
        """The same program inside a sandbox."""
        path = shutil.which(request.argv[0], path=request.env.get("PATH", os.defpath))
        if path is None:
            raise NotStarted(f"{request.argv[0]} cannot be started: no such program")
        if any("\0" in word for word in request.argv):
            raise NotStarted(f"{request.argv[0]} cannot be started: embedded null character")
        search = request.env.get("PATH", "")
        readable = frozenset((*request.readable, *visibility.certificates(request.env)))
        shown = _shown(self.hide, path, resolved(Path(path)), search, readable)
        # Not cached: a file that other users cannot read may be new since the last start.
        view = _existing(self.view(shown, request.network))
        own = tuple(_binds("--bind", (part for each in request.writable for part in both(each))))
        own += tuple(self._workdir(request.workdir))
        # The guardian replaces this argument by the number of the file.
        seccomp = ("--seccomp", f"\0{len(request.pass_fds)}") if self.filters else ()
        # The root is a file system in memory. It becomes read-only once everything is mounted.
        options = (*view, *own, *seccomp, "--remount-ro", "/", "--chdir", str(request.cwd))
        argv = (self.program, *options, "--", *request.argv)
        if request.network is Network.NO_LOOPBACK:
            # The program that creates the network and then starts the sandbox.
            slirp = shutil.which(PROGRAM) or PROGRAM
            argv = (sys.executable, "-I", "-S", str(_HELPER), slirp, _RESOLVER_FILE, *argv)
        # Git would refresh the index, which is read-only.
        env = request.env if request.workdir is None else {**request.env, "GIT_OPTIONAL_LOCKS": "0"}
        return replace(request, argv=argv, env=env)

    def _workdir(self, workdir: Path | None) -> Iterator[str]:
        """The user's folder, without our own files in it. Every git repository in it is read-only: its configuration names
        programs that git runs, and the user runs git outside the sandbox."""
        if workdir is None:
            return
        _check_in_place(workdir)
        yield from ("--bind", str(workdir), str(workdir))
        guarded = _guarded(workdir)
        # Mounted on itself, a folder around a repository cannot be renamed and replaced.
        around = {
            parent for each in guarded for parent in each.parents if parent != workdir and within(parent, [workdir])
        }
        for each in sorted({*around, *guarded}):
            yield from ("--ro-bind" if each in guarded else "--bind", str(each), str(each))
        yield from _existing(private for private in self.hide.private if private.is_relative_to(workdir))

    def view(self, shown: Iterable[Path], network: Network) -> tuple[str | Path, ...]:
        """What is the same for every run. A path is to be covered if it exists.

        Later options cover earlier ones: what is shown of a home must not uncover our own files.
        """
        covered = self._covered()
        needed = [each for each in _outermost(shown) if not _is_system(each) or within(resolved(each), covered)]
        return (
            *("--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"),
            *(_NO_NAMESPACES if os.geteuid() == 0 else ()),
            *(("--unshare-net",) if network is Network.NONE else ()),
            *(word for folder in (*PASSING, _RUN) for word in ("--tmpfs", str(folder))),
            *_system(),
            *("--dev", "/dev", "--proc", "/proc"),
            *_binds("--ro-bind-try", _KERNEL_SETTINGS if os.geteuid() == 0 else ()),
            *("--ro-bind", str(ETC), str(ETC)),
            *covered,
            *_binds("--ro-bind-try", [*_resolver_files(), *needed, *self.show]),
            *_binds("--bind-try", self.share),
            *self._uncovered(),
            *_resolver_options(network),
        )

    def _covered(self) -> list[Path]:
        """Paths to hide inside the system folders. An installation in one of them is shown again."""
        folders = {path.parent for path in self.hide.private if not path.is_dir()} - _NEEDED
        folders |= {*self.hide.homes}
        closed = (each for folder, depth in _CLOSED for each in closed_to_others(folder, depth))
        return [*sorted(folders), *(each for each in closed if not within(each, folders))]

    def _uncovered(self) -> Iterator[Path]:
        """Our own files, under every name by which a folder that is shown would show them."""
        for shown in (*SYSTEM, ETC, *self.show, *self.share):
            real = resolved(shown)
            for private in self.hide.private:
                if private.is_relative_to(real):
                    yield shown / private.relative_to(real)


def _check_in_place(workdir: Path) -> None:
    """It was checked before; this is the last look before it is mounted."""
    try:
        moved = resolved(workdir) != workdir
    except OSError as error:
        # A part of the path was replaced at this moment.
        raise FolderRefused(f"{workdir} cannot be found: {error.strerror}") from error
    if moved:
        raise FolderRefused(f"{workdir} was replaced by a link")
    if not workdir.is_dir():
        raise FolderRefused(f"{workdir} does not exist")


def _guarded(workdir: Path) -> frozenset[Path]:
    try:
        found = repositories(workdir)
    except TooManyFolders as problem:
        raise FolderRefused(str(problem)) from None
    for each in found:
        if each == workdir:
            raise FolderRefused(f"{workdir} is itself the inside of a git repository")
        if each.is_symlink():
            raise FolderRefused(f"{each} is a link, which the sandbox cannot protect; put the repository itself there")
    return frozenset(found)


@lru_cache(maxsize=256)
def _shown(hide: DenyList, program: str, _lies_at: Path, search: str, readable: frozenset[Path]) -> frozenset[Path]:
    """Cached for each engine until its program moves: following so many links is slow."""
    shown = visibility.installation(hide, program, search)
    for named in (part for each in readable for part in both(each)):
        shown |= visibility.siblings(hide, named) if not named.is_dir() else {named} if hide.may_show(named) else set()
    return frozenset(shown)


def _system() -> Iterator[str]:
    """The system folders that exist. A link, such as `/bin`, stays a link."""
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


def _existing(options: Iterable[str | Path]) -> Iterator[str]:
    """Cover each path that exists with an empty folder, or with a file that cannot be opened."""
    for each in options:
        if isinstance(each, str):
            yield each
        elif os.access(each, os.F_OK):
            yield from ("--tmpfs", str(each)) if each.is_dir() else ("--ro-bind", _UNREADABLE, str(each))


def _resolver_files() -> Iterator[Path]:
    """The resolver's configuration, which many systems keep in `/run`. Only the file: its folder has sockets."""
    real = resolved(RESOLVER)
    if not _is_system(real):
        yield real


def _binds(option: str, paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        real = resolved(path)
        if os.access(real, os.F_OK):
            yield from (option, str(real), str(path))


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Without paths inside another one: a folder is shown with its contents."""
    outermost: list[Path] = []
    for path in sorted(paths):
        if not within(path, outermost):
            outermost.append(path)
    return outermost


def _is_system(path: Path) -> bool:
    return within(path, (*SYSTEM, ETC))


# The network.

PROGRAM = "slirp4netns"
RESOLVER = Path("/etc/resolv.conf")
_HELPER = Path(__file__).with_name("network_program.py")
_RESOLVER_FILE = "askback:resolver"
"""`network_program.py` replaces this argument by the number of an open file."""


def _resolver_options(network: Network) -> tuple[str, ...]:
    """slirp4netns resolves names: the host's own resolver may be on its loopback interface."""
    real = resolved(RESOLVER)
    if network is not Network.NO_LOOPBACK or not real.is_file():
        return ()
    return ("--ro-bind-data", _RESOLVER_FILE, str(real))
