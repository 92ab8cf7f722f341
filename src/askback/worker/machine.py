"""Whether this machine can execute turns, and whether it is the reason why one failed.

A machine that is short of disk, folders, processes or open files starts no turns while that lasts: it would take one after
another and fail each. It tries again by itself, at first after a second, later after up to half a minute. Without the file
store it starts none either. A failure of any turn counts at once; only a check of the store says that it can be used again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from askback.background.outages import OUTAGES
from askback.background.pools import Pool
from askback.cluster.instances import Instances
from askback.core.errors import ErrorCode, RefusalCode, RunError, Unavailable, is_outage, is_temporary
from askback.core.outcomes import TurnError, engine_failure
from askback.core.runs import Run
from askback.core.signals import Signal, TurnEnded, TurnLost
from askback.fs.atomic import make_private
from askback.fs.paths import FolderProblem, code_of, problem_of

log = logging.getLogger(__name__)

CHECK_SEC = 2.0
CHECK_FILES_SEC = 5.0
_RETRY_FILES_SEC = 2.0
_ANSWER_SEC = 5.0
"""A folder that takes longer to answer is not usable."""
_FIRST_PAUSE_SEC = 1.0
_LONGEST_PAUSE_SEC = 30.0
"""A file store may pass every check and fail in every turn, for instance because of a quota."""
_TOLERATED = 3
"""How often a run may fail on a machine that seems to be well before that counts."""
_OWN_BYTES = 8_000_000
"""A run with fewer files than this has not filled the disk."""
_BROKEN = frozenset({errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ENOTCONN})
FILES_WORK = "the file store can be used again"
REASONS = {
    RefusalCode.DISK_FULL: "the disk was full",
    RefusalCode.STORE_UNUSABLE: "the data folder or the database could not be used",
    RefusalCode.FILES_UNAVAILABLE: "the file store could not be used",
    RefusalCode.STORE_READ_ONLY: "the data folder or the database could not be written to",
    RefusalCode.RESOURCE_SHORTAGE: "the machine was short of processes, memory or open files",
}
"""Why a turn was interrupted, for people."""
_SUSPECT = frozenset(
    {
        ErrorCode.ENGINE_CRASHED,
        ErrorCode.ENGINE_NOT_FOUND,
        ErrorCode.ENGINE_START_FAILED,
        ErrorCode.SESSION_RESUME_FAILED,
        ErrorCode.INTERNAL_ERROR,
    }
)
"""Error codes that an unhealthy machine can cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFolders:
    """The folders that a machine needs to execute turns, and the file that shows that this instance is alive."""

    data_dir: Path
    runs: Path
    separate_runs: bool
    """Whether the runs are outside of the data folder."""
    min_free_bytes: int | None
    recreates: bool
    """Never the folder of an SQLite database, which somebody may have moved away with all its runs."""
    instances: Instances

    def check(self, thorough: bool) -> FolderProblem | None:
        """A folder that was removed is made again, and counts as a problem until the next check. Blocks."""
        # The folder of runs in the data folder is made for the first run, and may be a separate disk.
        needs_runs = self.separate_runs or self.runs.exists()
        for folder in (self.data_dir, self.runs) if needs_runs else (self.data_dir,):
            found = problem_of(folder, min_free_bytes=self.min_free_bytes, thorough=thorough)
            if found is not None:
                if self.recreates and not os.path.lexists(folder):
                    with suppress(OSError):
                        make_private(folder)
                return found
        try:
            if self.instances.restore_registration():
                return None
        except OSError as error:
            return FolderProblem(code=code_of(error), message=f"{self.data_dir} cannot be used: {error}")
        return FolderProblem(code=RefusalCode.STORE_UNUSABLE, message=f"files in {self.data_dir} were removed")


@dataclass(slots=True)
class _Outage:
    """A reason to start no turns, if there is one, and how long it lasts at least."""

    problem: FolderProblem | None = None
    pause_sec: float = 0.0
    until: float = 0.0

    def pause(self) -> None:
        """Each pause is twice as long as the one before, until a turn has ended as it should."""
        self.pause_sec = min(max(2 * self.pause_sec, _FIRST_PAUSE_SEC), _LONGEST_PAUSE_SEC)
        self.until = _now() + self.pause_sec


class MachineHealth:
    def __init__(
        self,
        *,
        check_folders: Callable[[bool], FolderProblem | None],
        size_of: Callable[[str], int | None],
        pool: Pool,
        clock: Callable[[], datetime],
        has_others: bool = False,
        check_files: Callable[[bool], Awaitable[object]] | None = None,
    ) -> None:
        """`check_folders` checks the folders, thoroughly or not; `size_of` returns the disk space of a run, None if it has
        no folder. Both block. `has_others`: other machines can execute the runs of this one. `check_files` raises
        `Unavailable` if the file store cannot be used; with True it also writes a file there."""
        self._check_folders = check_folders
        self._size_of = size_of
        self._pool = pool
        self._clock = clock
        self._has_others = has_others
        self._check_files = check_files
        self._machine = _Outage()
        self._files = _Outage()
        self._files_failures = 0
        self._files_failed = asyncio.Event()
        self._recovered = asyncio.Event()
        self._tolerated: Counter[str] = Counter()

    @property
    def problem(self) -> RefusalCode | None:
        """Why no turns are started."""
        found = self._machine.problem or self._files.problem
        return None if found is None else found.code

    async def recovered(self) -> None:
        """Wait until turns can be started again, since the last call."""
        await self._recovered.wait()
        self._recovered.clear()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_folders())
            if self._check_files is not None:
                group.create_task(self._watch_files(self._check_files))

    async def _watch_folders(self) -> None:
        while True:
            await self.check()
            await asyncio.sleep(min(CHECK_SEC, self._machine.pause_sec or CHECK_SEC))

    async def check(self) -> RefusalCode | None:
        """Check the folders now, and return why no turns are started."""
        found = await self._found(thorough=self._machine.problem is not None)
        if found is not None:
            self._begin(self._machine, found)
        elif self._machine.problem is not None and _now() >= self._machine.until:
            self._end(self._machine)
        return self.problem

    async def _found(self, *, thorough: bool) -> FolderProblem | None:
        try:
            async with asyncio.timeout(_ANSWER_SEC):
                return await self._pool.run(self._check_folders, thorough, admitted=True)
        except TimeoutError:
            message = f"its folders have not answered for {_ANSWER_SEC:g} s"
            return FolderProblem(code=RefusalCode.STORE_UNUSABLE, message=message)
        except Unavailable as error:
            # Not even a thread is left.
            return FolderProblem(code=error.code, message=error.message)

    def _begin(self, outage: _Outage, problem: FolderProblem) -> None:
        if outage.problem is None:
            log.error("this machine starts no turns for now: %s", problem.message)
        outage.problem = problem

    def _end(self, outage: _Outage) -> None:
        outage.problem = None
        if self.problem is None:
            log.warning("this machine starts turns again")
            self._recovered.set()

    # The file store.

    async def _watch_files(self, check: Callable[[bool], Awaitable[object]]) -> None:
        while True:
            await self.check_files(check)
            if self._files.problem is not None:
                await asyncio.sleep(max(_RETRY_FILES_SEC, self._files.until - _now()))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_FILES_SEC):
                    await self._files_failed.wait()

    async def check_files(self, check: Callable[[bool], Awaitable[object]]) -> None:
        """Check the file store now. Without its database it cannot be judged, and what was known stays."""
        failures, failing = self._files_failures, self._files.problem is not None
        try:
            await check(failing)
        except Exception as error:
            if not is_outage(error):
                raise
            if isinstance(error, Unavailable) and error.code is RefusalCode.FILES_UNAVAILABLE:
                self.files_failed(error.message)
            return
        # A failure during the check may be newer than what the check has seen.
        if failing and failures == self._files_failures and _now() >= self._files.until:
            self._files_failed.clear()
            OUTAGES.over(log, RefusalCode.FILES_UNAVAILABLE, FILES_WORK)
            self._end(self._files)

    def files_failed(self, message: str) -> None:
        """Something could not be done because of the file store."""
        self._files_failures += 1
        if self._files.problem is None and self._check_files is not None:
            self._files.pause()
            self._files_failed.set()
            self._begin(self._files, FolderProblem(code=RefusalCode.FILES_UNAVAILABLE, message=message))

    # Turns.

    async def classify_exception(self, run: Run, fault: BaseException) -> TurnLost | TurnEnded:
        """How a turn ends that raised an exception: if the machine is the reason, it restarts; otherwise the run fails."""
        lost = await self._attribute_failure(run, fault)
        if lost is not None:
            return lost
        trace = None if isinstance(fault, Unavailable) else fault
        log.error("a turn ended with an internal error: %s", fault, exc_info=trace, extra={"run": run.id})
        message = "Askback could not execute the turn; see the log"
        outcome = engine_failure(ErrorCode.INTERNAL_ERROR, message, detail=f"{type(fault).__name__}: {fault}")
        return TurnEnded(epoch=run.epoch, outcome=outcome, at=self._clock(), archive_key=run.kept)

    async def classify_result(self, run: Run, signal: Signal) -> Signal:
        """The end of a turn, unless it has failed because of the machine: then it restarts."""
        if not isinstance(signal, TurnEnded):
            return signal
        if isinstance(signal.outcome, TurnError) and not run.bound_to_process:
            lost = await self._attribute_error(run, signal.outcome.error)
            if lost is not None:
                return lost
        self._machine.pause_sec = self._files.pause_sec = 0.0
        self._tolerated.pop(run.id, None)
        return signal

    async def _attribute_failure(self, run: Run, fault: BaseException) -> TurnLost | None:
        """The loss of the turn, if the machine is the reason for the exception."""
        found, size, known = await self._found(thorough=True), await self._size(run), _code_of(fault)
        if found is None and known is None and size is None and isinstance(fault, OSError | Unavailable):
            known = RefusalCode.STORE_UNUSABLE
        if found is None and known is None:
            return None
        problem = found or FolderProblem(code=known or RefusalCode.STORE_UNUSABLE, message=str(fault))
        counted = self._counts(run, problem, seems_well=found is None, size=size or 0)
        return self._lose(run, problem, counted=counted, why=str(fault))

    async def _attribute_error(self, run: Run, error: RunError) -> TurnLost | None:
        """As `_attribute_failure`, for a turn that has ended with an error."""
        if error.code not in _SUSPECT:
            return None
        found = await self._found(thorough=True)
        if found is None and not (error.code is ErrorCode.ENGINE_START_FAILED and self._has_others):
            return None
        problem = found or FolderProblem(code=RefusalCode.RESOURCE_SHORTAGE, message=error.message)
        counted = self._counts(run, problem, seems_well=False, size=await self._size(run) or 0)
        return self._lose(run, problem, counted=counted, why=f"{error.code}: {error.message}")

    def _lose(self, run: Run, problem: FolderProblem, *, counted: bool, why: str) -> TurnLost:
        """The turn restarts, and no other one starts for a while. Turns that fail at the same moment make one pause."""
        if problem.code is RefusalCode.FILES_UNAVAILABLE and self._check_files is not None:
            self.files_failed(problem.message)
        else:
            if _now() >= self._machine.until:
                self._machine.pause()
            self._begin(self._machine, problem)
        log.error("a turn was interrupted: %s", why, extra={"run": run.id})
        return TurnLost(epoch=run.epoch, at=self._clock(), counted=counted, why=REASONS[problem.code])

    async def _size(self, run: Run) -> int | None:
        """0 if it takes too long to find out."""
        try:
            async with asyncio.timeout(_ANSWER_SEC):
                return await self._pool.run(self._size_of, run.id, admitted=True)
        except (TimeoutError, Unavailable):
            return 0

    def _counts(self, run: Run, problem: FolderProblem, *, seems_well: bool, size: int) -> bool:
        """Whether the loss counts as a restart of the run.

        A run that fills a small disk must end some time, and so must one that fails on every machine.
        """
        if problem.code is RefusalCode.FILES_UNAVAILABLE:
            return False
        if problem.code is RefusalCode.DISK_FULL and size >= _OWN_BYTES:
            return True
        if not seems_well:
            return False
        self._tolerated[run.id] += 1
        return self._tolerated[run.id] > _TOLERATED


def _now() -> float:
    return asyncio.get_running_loop().time()


def _code_of(fault: BaseException) -> RefusalCode | None:
    """What the fault alone says about the machine."""
    if is_temporary(fault):
        return RefusalCode.RESOURCE_SHORTAGE
    if isinstance(fault, Unavailable):
        return fault.code if fault.code in REASONS else None
    if not isinstance(fault, OSError):
        return None
    code = code_of(fault)
    return code if code is RefusalCode.DISK_FULL or fault.errno in _BROKEN else None
