"""Bubblewrap around every program: its own process table, a system that it can read, and its own folders to write to.

What is hidden: the homes of people, our data folder, and the places where programs leave sockets; passing files, too,
where the user insists on a sandbox, and not where one is only taken because it works. What a program was installed
with is shown again where that lies in a home. The network stays.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from askback.process.child import Child, NotStarted, Order, call
from askback.process.confinement import Confinement, InForce
from askback.process.guardian import Guardian

PROBE_SEC = 10.0

_PASSING = ("/tmp", "/var/tmp")
_SOCKETS = "/run"
_HOMES = ("/home", "/root")
# Names are looked up with these, which distributions keep below /run.
_RUN_READABLE = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/nscd", "/run/current-system")
_PACKAGE = Path(__file__).parents[1]


class Sandboxed:
    """A spawner that puts every program into a sandbox if one works here, which it finds out once."""

    def __init__(self, guardian: Guardian, *, home: Path, data_dir: Path, private_tmp: bool = True) -> None:
        self._guardian = guardian
        self._private_tmp = private_tmp
        self._home = home
        self._data_dir = data_dir
        self._found: tuple[Bubblewrap | None, Confinement] | None = None
        self._finding = asyncio.Lock()

    async def start(self, order: Order) -> Child:
        bubblewrap, _ = await self._find()
        if bubblewrap is None:
            return await self._guardian.start(order)
        return await self._guardian.start(bubblewrap.around(order), wrapped=True)

    async def confinement(self) -> Confinement:
        return (await self._find())[1]

    async def close(self) -> None:
        await self._guardian.close()

    async def _find(self) -> tuple[Bubblewrap | None, Confinement]:
        async with self._finding:
            if self._found is None:
                self._found = await self._look()
            return self._found

    async def _look(self) -> tuple[Bubblewrap | None, Confinement]:
        program = shutil.which("bwrap")
        if program is None:
            why, advice = "bubblewrap is not installed", "install the package bubblewrap"
        else:
            bubblewrap = Bubblewrap(
                program=program, home=self._home, data_dir=self._data_dir, private_tmp=self._private_tmp
            )
            problem = await _problem(self._guardian, bubblewrap)
            if problem is None:
                return bubblewrap, Confinement(in_force=InForce.BUBBLEWRAP)
            why = f"bubblewrap does not work here: {problem}"
            advice = "allow unprivileged user namespaces, or run it where they are allowed"
        return None, Confinement(in_force=InForce.GUARDIAN, why_not_more=why, advice=advice)


async def _problem(guardian: Guardian, bubblewrap: Bubblewrap) -> str | None:
    """What goes wrong with a program that does nothing, in the same sandbox as the others."""
    argv = (*bubblewrap.view(()), "--", "/bin/sh", "-c", "exit 0")
    try:
        printed = await call(guardian, argv, env={}, cwd=Path("/"), timeout_sec=PROBE_SEC, mark="probe-sandbox")
    except NotStarted as error:
        return str(error)
    if printed.exit_code == 0:
        return None
    said = printed.stderr.strip().splitlines()
    return said[-1] if said else f"exit code {printed.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """How a sandbox is made on this machine."""

    program: str
    home: Path
    """The home of the user who runs us."""
    data_dir: Path
    private_tmp: bool

    def around(self, order: Order) -> Order:
        """The same program inside a sandbox."""
        path = shutil.which(order.argv[0], path=order.env.get("PATH", os.defpath))
        if path is None:
            raise NotStarted(f"{order.argv[0]} cannot be started: no such program")
        view = _view(self, path, Path(path).resolve(), order.env.get("PATH", ""), tuple(order.readable))
        own = _binds("--bind", (part for each in order.writable for part in _both(each)))
        return replace(order, argv=(*view, *own, "--chdir", str(order.cwd), "--", *order.argv))

    def view(self, shown: Iterable[Path]) -> tuple[str, ...]:
        """Later ones lie over earlier ones: what is shown of a home must not uncover our data."""
        base = (self.program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL")
        system = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
        passing = [Path(each) for each in _PASSING]
        covered = [*(Path(each) for each in (_SOCKETS, *_HOMES)), self.home.resolve()]
        if self.private_tmp:
            covered = [*passing, *covered]
        return (
            *base,
            *system,
            *(() if self.private_tmp else _binds("--bind", passing)),
            *_each("--tmpfs", covered),
            *_binds("--ro-bind-try", (Path(each) for each in _RUN_READABLE)),
            *_binds("--ro-bind-try", sorted(each for each in shown if _below_any(each, covered))),
            *_each("--tmpfs", (self.data_dir.resolve(),)),
        )


@cache
def _view(
    bubblewrap: Bubblewrap, program: str, _lies_at: Path, search: str, readable: tuple[Path, ...]
) -> tuple[str, ...]:
    """Looked up once for every engine, and again when it lies elsewhere: so many links are slow to follow."""
    shown = {*installation(program, search)}
    for each in readable:
        shown |= {part for named in _both(each) for part in _siblings(named)}
    return bubblewrap.view(shown)


def installation(program: str, search: str) -> Iterator[Path]:
    """What a program needs besides itself: what it was installed with, its interpreter, and what it finds by name."""
    for path in _both(Path(program)):
        yield from _siblings(path)
        if (interpreter := _interpreter(path)) is not None:
            for each in _both(interpreter):
                yield from _siblings(each)
    for folder in search.split(os.pathsep):
        if folder.startswith("/"):
            yield from _siblings(Path(folder, "any"))
    yield _PACKAGE


def _siblings(program: Path) -> Iterator[Path]:
    """Never the whole prefix: next to `bin` lie also the credentials of some package managers."""
    parts, folder = program.parts, program.parent
    if "node_modules" in parts:
        yield Path(*parts[: parts.index("node_modules") + 1])
    elif folder.name in ("bin", "sbin"):
        yield folder
        yield from (folder.parent / name for name in ("lib", "lib64", "libexec", "pyvenv.cfg"))
        if _exists(folder.parent / "pyvenv.cfg"):
            real = (folder / "python").resolve()
            yield from (real.parent, real.parent.parent / "lib")
    else:
        yield from (program, folder)


def _interpreter(program: Path) -> Path | None:
    """The program that its first line names, where it is a script."""
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    words = first[2:].split()
    return Path(os.fsdecode(words[0])) if first.startswith(b"#!") and words else None


def _both(path: Path) -> Iterator[Path]:
    """As it is named, and as it is in truth: a link that leads there may be hidden too."""
    yield path
    if (real := path.resolve()) != path:
        yield real


def _each(option: str, folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        # A home may be `/`, where there is no user to speak of.
        if folder.is_dir() and not folder.is_symlink() and folder != Path("/"):
            yield from (option, str(folder))


def _binds(option: str, paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        if _exists(path):
            yield from (option, str(path.resolve()), str(path))


def _exists(path: Path) -> bool:
    """What may not be looked at is not there."""
    try:
        return path.exists()
    except OSError:
        return False


def _below_any(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) and path != folder for folder in folders)
