"""How an engine is started on this machine, and probes of what it can do.

Results of probes are cached until the executable or Askback changes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from askback import __version__
from askback.core.errors import RefusalCode, Unavailable, is_temporary
from askback.engines.base import CallResult, Engine, Launch, Probe
from askback.fs.atomic import make_private, write_private
from askback.fs.paths import is_kind
from askback.process.child import NotStarted, Spawner, call
from askback.process.isolation import UNLIMITED, Network, ResourceLimits
from askback.workspace.sign_ins import Credentials

T = TypeVar("T")

PROBE_SEC = 15.0
_MAX_CACHE_BYTES = 1_000_000
_NOT_STARTED = 127
"""The exit code that a shell uses for a command it cannot find."""
# A text is matched as a whole, so that nothing in it is taken for a comment.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    """How an engine is started on this machine, according to the settings."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    model: str | None = None
    effort: str | None = None
    home: Path | None = None
    sign_in_home: Path | None = None
    """The home with the credentials: the configured one, or else the user's."""
    renew_sign_in: bool = True
    """Whether tokens that a turn renewed are merged into the credentials there."""
    extra_args: tuple[str, ...] = ()
    slots: int | None = None
    warm_sec: float = 0
    """How long the process of a waiting run stays, at most."""
    prewarm: int = 0
    """How many processes are started in advance, for runs that are not submitted yet."""
    ask_tool: bool = False
    """Whether the engine gets the tool `put_question`, if it takes MCP servers."""
    secrets: tuple[str, ...] = ()
    resources: ResourceLimits = UNLIMITED
    network: Network = Network.HOST

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the command names: `python3 /opt/tool/main.py` needs more than Python."""
        words = (Path(word) for word in (*self.command[1:], *self.extra_args) if word.startswith("/"))
        return tuple(path for path in words if is_kind(path, Path.exists))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed engine: the path of its program, and the result of the probe."""

    path: str
    probe: Probe
    signed_in: bool | None = None


Amend = Callable[[Engine, EngineSetup, str, Probe], Probe]


class EngineSource:
    """Where engines are found: on this machine (`Probes`), or on all that execute runs (`FleetEngines`). Here, nowhere."""

    async def find(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        """The engine as a run can use it now; None if it cannot."""
        return None

    async def here(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        """The engine on this machine."""
        return await self.find(engine, setup)

    async def expected(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        """The engine as a run will use it that names it; None if such a run is refused."""
        return await self.find(engine, setup)

    def has(self, engine: Engine, setup: EngineSetup) -> bool:
        """Whether a run can use it now, without a look at what it can do. Starts no program."""
        return False

    def signed_in(self, engine: Engine, setup: EngineSetup) -> bool | None:
        """Whether the engine is signed in; None if that is unknown. Starts no program."""
        return None

    def workers(self, engine: Engine) -> int | None:
        """How many programs start turns of it; None if there are no others than this one."""
        return None

    def any_worker(self) -> bool:
        return True

    def watch(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the name of every engine before its program is probed here."""

    def forget(self) -> None:
        """Probe every engine again."""


class Probes(EngineSource):
    """Caches probes on disk, by path, size and modification time of the executable, and by the version of Askback."""

    def __init__(self, cache: Path, spawner: Spawner, amend: Amend = lambda engine, setup, path, probe: probe) -> None:
        """`amend`: adds to a probe what else is known of the program."""
        self._cache_path = cache
        self._spawner = spawner
        self._amend = amend
        self._known: dict[str, Probe] | None = None
        self.on_probe: Callable[[str], None] = lambda name: None
        """Called with the name of an engine before its program is asked, which can take seconds."""
        self._locks: dict[str, asyncio.Lock] = {}

    async def find(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        """The engine as installed, or None when its program cannot be found."""
        path = program_path(setup)
        if path is None:
            return None
        key = identity_of(engine, path, setup)
        async with self._locks.setdefault(key, asyncio.Lock()):
            probe = self._load().get(key)
            if probe is None:
                self.on_probe(engine.name)
                probe, answered = await _ask(self._spawner, engine, setup)
                # A program that hung or could not start, perhaps due to load, is asked again.
                if answered:
                    self._remember(key, probe, f"{engine.name} {path} ")
            # What can change without the program is found every time: its sign-in, and what a check has shown.
            amended = self._amend(engine, setup, key, probe)
            return Installed(path=path, probe=amended, signed_in=is_signed_in(engine, setup))

    def has(self, engine: Engine, setup: EngineSetup) -> bool:
        return program_path(setup) is not None

    def signed_in(self, engine: Engine, setup: EngineSetup) -> bool | None:
        return is_signed_in(engine, setup)

    def watch(self, listener: Callable[[str], None]) -> None:
        self.on_probe = listener

    def forget(self) -> None:
        self._known = {}

    def _load(self) -> dict[str, Probe]:
        if self._known is None:
            self._known = read_private(self._cache_path, dict[str, Probe]) or {}
        return self._known

    def _remember(self, key: str, probe: Probe, replaced: str) -> None:
        """Write the cache, without older results of the same program: their keys start with `replaced`.

        Errors are ignored: without the cache, an engine is only probed again.
        """
        known = {other: each for other, each in self._load().items() if not other.startswith(replaced)}
        self._known = known = {**known, key: probe}
        with suppress(OSError):
            make_private(self._cache_path.parent)
            write_private(self._cache_path, msgspec.json.encode(known))


def read_private(path: Path, kind: type[T]) -> T | None:
    """What an earlier program has stored. A file that is damaged, or that another user may have written, is not used."""
    with suppress(OSError, ValueError, RecursionError, msgspec.MsgspecError):
        # Not through a link, and without waiting for the writer of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
            content = file.read(_MAX_CACHE_BYTES + 1) if is_ours else b""
        if 0 < len(content) <= _MAX_CACHE_BYTES:
            return msgspec.json.decode(content, type=kind)
    return None


def program_path(setup: EngineSetup) -> str | None:
    """Where the engine's program is; None if it is not installed."""
    return shutil.which(setup.command[0], path=setup.env.get("PATH"))


def is_signed_in(engine: Engine, setup: EngineSetup) -> bool | None:
    """Whether the engine is signed in. None: unknown. Starts no program."""
    home = setup.sign_in_home
    files = [name for name in engine.credentials if home is not None and is_kind(home / name, Path.is_file)]
    return engine.signed_in(files, setup.env.keys())


def sign_in_of(engine: Engine, setup: EngineSetup, locks: Path) -> Credentials | None:
    """The sign-in that a process of the engine gets a copy of; None if the engine has no such files."""
    if setup.sign_in_home is None or not engine.credentials:
        return None
    return Credentials(
        source=setup.sign_in_home,
        names=engine.credentials,
        lock=locks / f"sign-in-{engine.name}.lock",
        renewals=engine.renewals if setup.renew_sign_in else (),
    )


def identity_of(engine: Engine, path: str, setup: EngineSetup) -> str:
    """The cache key. It includes every file in the command: `python tool.py` changes with `tool.py`.

    It includes the version of Askback, which decides what is asked and how the answers are read.
    """
    parts = [engine.name]
    for word in (path, *setup.command[1:]):
        parts.append(word)
        with suppress(OSError, ValueError):
            status = Path(word).stat()
            parts.append(f"{status.st_size}:{status.st_mtime_ns}")
    return " ".join((*parts, f"askback:{__version__}"))


async def _ask(spawner: Spawner, engine: Engine, setup: EngineSetup) -> tuple[Probe, bool]:
    """The probe, and whether every call ended normally. All calls together may take `PROBE_SEC`."""
    deadline = time.monotonic() + PROBE_SEC
    with tempfile.TemporaryDirectory(prefix="askback-probe-") as folder:
        results = [
            await _call(spawner, engine, setup, args, Path(folder), deadline - time.monotonic())
            for args in engine.probe_calls()
        ]
    # A program killed by a signal, for example for lack of memory, is also probed again.
    answered = all(
        code is not None and code >= 0 and code != _NOT_STARTED for code in (each.exit_code for each in results)
    )
    return engine.read_probe(results), answered


async def _call(
    spawner: Spawner, engine: Engine, setup: EngineSetup, args: tuple[str, ...], folder: Path, seconds: float
) -> CallResult:
    mark = f"probe-{engine.name}-{secrets.token_hex(6)}"
    env = {**setup.env, "HOME": str(folder)}
    try:
        command = (*setup.command, *args)
        printed = await call(
            spawner,
            command,
            env=env,
            cwd=folder,
            timeout_sec=max(seconds, 0),
            mark=mark,
            readable=setup.files,
            network=setup.network,
            question=engine.probe_input,
            answers=engine.ends_probe,
        )
    except NotStarted as error:
        if is_temporary(error):
            # This says nothing about the program: do not cache it, and do not report the engine as missing.
            message = f"engine '{engine.name}' cannot be probed at the moment: {error}; try again"
            raise Unavailable(RefusalCode.RESOURCE_SHORTAGE, message) from error
        return CallResult(args=args, exit_code=_NOT_STARTED, stdout="", stderr=str(error))
    return CallResult(args=args, exit_code=printed.exit_code, stdout=printed.stdout, stderr=printed.stderr)


# The files of a home.


def home_files(launch: Launch, configured: Path | None) -> dict[str, bytes]:
    """The files that an engine gets in the home of a run before it starts.

    These are `files`, and `settings` merged over the same files of the configured home. Reads nothing that an engine
    can write.
    """
    return {**launch.files, **dict(_merged(launch.settings, configured))}


def _merged(settings: Mapping[str, Mapping[str, Any]], configured: Path | None) -> Iterator[tuple[str, bytes]]:
    for name, values in settings.items():
        try:
            text = "{}" if configured is None else (configured / name).read_text("utf-8")
            given = json.loads(_COMMENT.sub(lambda found: found[1] or "", text))
        except FileNotFoundError:
            given = {}
        except (OSError, ValueError, RecursionError):
            given = None
        # A file that cannot be read stays as it is in the copy: the engine itself says what is wrong with it.
        if isinstance(given, dict):
            yield name, json.dumps(_over(given, values)).encode()


def _over(given: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two JSON values. Those of `values` have priority, at every depth."""
    merged = dict(given)
    for key, value in values.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return merged
