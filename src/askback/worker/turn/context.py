"""What the turns of all runs share: the store, the folders, the engines, the limits and the threads.

Also the one rule for which processes may be kept warm, and the patience with a machine that is short of resources.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from askback.background.loops import Pauses, retry
from askback.background.pools import Pools
from askback.catalog.engines import can_be_warm
from askback.catalog.probes import EngineSetup, Probes
from askback.core.errors import ErrorCode, is_temporary
from askback.core.outcomes import TurnOutcome, engine_failure
from askback.core.runs import Mode, ProfileKind, Run
from askback.engines.base import Engine, Probe
from askback.process.child import OutputLimits, Spawner
from askback.runs.secrets import RunSecrets
from askback.skills.library import Library
from askback.store.base import Store
from askback.worker.claimed_run import ClaimedRun
from askback.worker.machine import MachineHealth
from askback.worker.warm_pool import WarmPool
from askback.workspace.archives import RunArchives
from askback.workspace.workdirs import Workdirs
from askback.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHORT = 65_536
"""Characters that are parsed in the event loop: switching threads would cost more than parsing them."""
PATIENCE_SEC = 180.0
"""How long the start of an engine is repeated in a shortage."""
FLEET_PATIENCE_SEC = 15.0
"""The same, if other machines can execute the turn."""


class CannotStart(Exception):
    """The engine cannot be started; the outcome says why."""

    def __init__(self, outcome: TurnOutcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


class Stopped(Exception):
    """The turn was stopped before its engine could be started, or before its files could be stored."""


async def pause(claim: ClaimedRun, seconds: float) -> None:
    """Wait before another attempt. Raises `Stopped` if the run is stopped."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await claim.wait_stopped()
    if claim.stop_reason is not None:
        raise Stopped


class Shortage:
    """Retries what fails because the machine is short of processes, memory or open files, for a few minutes.

    Shared by all turns, so that the start and the end of a shortage are logged once.
    """

    def __init__(self, patience_sec: float = PATIENCE_SEC, relieve: Callable[[], object] = lambda: None) -> None:
        """`relieve` is called before each further attempt, and may end something that can be spared."""
        self._patience_sec = patience_sec
        self._relieve = relieve
        self._is_on = False

    async def retry(self, attempt: Callable[[], Awaitable[T]], claim: ClaimedRun) -> tuple[T, bool]:
        """The result of the attempt, and whether it had to be repeated.

        Raises `CannotStart` if the shortage does not end, and `Stopped` if the turn is stopped first.
        """
        deadline, delayed, pauses = time.monotonic() + self._patience_sec, False, Pauses(5.0, first_sec=0.1)

        def retries(error: Exception) -> bool:
            nonlocal delayed
            if not is_temporary(error):
                return False
            delayed = True
            if not self._is_on:
                log.warning("the machine is short of resources; turns wait: %s", error)
            self._is_on = True
            if time.monotonic() >= deadline:
                message = "the machine had no processes, memory or open files left to start the engine; try again later"
                raise CannotStart(engine_failure(ErrorCode.ENGINE_START_FAILED, message, detail=str(error))) from error
            self._relieve()
            return True

        result = await retry(attempt, retries=retries, pause=lambda: pause(claim, pauses.next_sec()))
        if self._is_on:
            log.warning("engines can be started again")
        self._is_on = False
        return result, delayed


class Parsing:
    """Parses long text outside the event loop, in one thread: more would only wait for the interpreter lock."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="askback-parsing")

    async def run(self, work: Callable[[], T], size: int) -> T:
        """Run work that parses a text of this size."""
        return work() if size <= _SHORT else await self.in_thread(work)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run work that may be slow for a text of any size."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    store: Store
    library: Library
    workspaces: Workspaces
    workdirs: Workdirs
    locks: Path
    engines: Mapping[str, Engine]
    setups: Mapping[str, EngineSetup]
    probes: Probes
    spawner: Spawner
    limits: OutputLimits
    clock: Callable[[], datetime]
    pools: Pools
    warm: WarmPool
    machine: MachineHealth
    archives: RunArchives | None = None
    """None: the files of runs are only on this machine."""
    spawned: Callable[[Run], None] = lambda run: None
    """Called when the process of a turn has started."""
    printed: Callable[[Run], None] = lambda run: None
    """Called when an engine prints its first line in a turn."""
    parsing: Parsing = field(default_factory=Parsing)
    shortage: Shortage = field(default_factory=Shortage)

    @property
    def secrets(self) -> RunSecrets:
        return RunSecrets(library=self.library, workspaces=self.workspaces, pools=self.pools, archives=self.archives)

    # Which processes may be kept warm.

    def warm_obstacle(self, engine: str, probe: Probe, run: Run | None = None) -> str | None:
        """Why no process of this engine is kept warm for this run, or for any run without options; None if it is.

        The process is one that starts a session. A prewarmed one must be one that may be kept warm afterwards.
        """
        setup = self.setups[engine]
        effort = run.options.effort or setup.effort if run is not None else setup.effort
        seconds = self.warm_sec(run) if run is not None else setup.warm_sec
        if run is not None and not _suits_warm_process(run):
            return "the run needs a new process for its turns"
        if not can_be_warm(self.engines[engine], probe):
            return "the installed version cannot be kept warm"
        if effort and ProfileKind.STICKY_PROCESS not in probe.effort:
            return "the installed version has no option for the effort of a resident process"
        if not self.warm.on or seconds <= 0:
            return "warm waits are off: see warm_sec and warm.max_processes"
        return "limits.cpu_sec counts from the start of a process" if setup.resources.cpu_sec else None

    def may_take_prewarmed(self, run: Run) -> bool:
        """A quick look. What decides is the comparison of both launches when the process is taken."""
        setup, options = self.setups[run.engine], run.options
        same = (options.model or setup.model, options.effort or setup.effort) == (setup.model, setup.effort)
        plain = same and not run.env_names and not run.skill.uploaded
        return plain and _suits_warm_process(run) and self.warm_sec(run) > 0

    def warm_sec(self, run: Run) -> float:
        """How long the process of this run may be kept while the run waits: what it asks for, at most what is allowed."""
        allowed, own = self.setups[run.engine].warm_sec, run.options.warm_sec
        return allowed if own is None else min(own, allowed)


def _suits_warm_process(run: Run) -> bool:
    """Not in a folder of the user, which is checked and recorded with each new process, and not with a gate."""
    return (
        run.mode is Mode.INTERACTIVE
        and not run.sticky
        and run.handle is None
        and run.workdir is None
        and run.permissions is None
    )
