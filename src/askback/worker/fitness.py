"""Whether this machine can execute turns, and whether it is to blame for one that failed.

A machine that is short of disk, folders, processes or open files starts no turns while that lasts: it would take one after
another and fail each. It tries again by itself, at first after a second, later after up to half a minute. Without the file
store it starts none until `worker.store_watch` has seen that the store can be used.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from askback.background.pools import Pool
from askback.core.errors import ErrorCode, RefusalCode, RunError, Unavailable, is_temporary
from askback.core.runs import Run
from askback.fs.usable import FolderProblem, code_of
from askback.worker.store_watch import StoreWatch

log = logging.getLogger(__name__)

LOOK_SEC = 2.0
_ANSWER_SEC = 5.0
"""A folder that takes longer to answer is not usable."""
_FIRST_PAUSE_SEC = 1.0
_LONGEST_PAUSE_SEC = 30.0
_FORGIVEN = 3
"""How often a run may fail on a machine that seems to be well before that counts."""
_OWN_BYTES = 8_000_000
"""A run with fewer files than this has not filled the disk."""
_BROKEN = frozenset({errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ENOTCONN})
_MACHINE = frozenset(
    {RefusalCode.DISK_FULL, RefusalCode.RESOURCE_SHORTAGE, RefusalCode.STORE_READ_ONLY, RefusalCode.STORE_UNUSABLE}
)
_SUSPECT = frozenset(
    {
        ErrorCode.ENGINE_CRASHED,
        ErrorCode.ENGINE_NOT_FOUND,
        ErrorCode.ENGINE_START_FAILED,
        ErrorCode.SESSION_RESUME_FAILED,
        ErrorCode.INTERNAL_ERROR,
    }
)
"""How a turn may end that has met a machine which is not well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The machine is the reason. `counted`: perhaps it is the run after all."""

    code: RefusalCode
    counted: bool


class Fitness:
    def __init__(
        self,
        *,
        look: Callable[[bool], FolderProblem | None],
        size_of: Callable[[str], int | None],
        pool: Pool,
        has_others: bool,
        files: StoreWatch | None = None,
        changed: Callable[[bool], None] = lambda fit: None,
    ) -> None:
        """`look` checks the folders, thoroughly or not; `size_of` returns the disk space of a run, None if it has no folder.
        Both block. `has_others`: other machines can execute the runs of this one."""
        self.changed = changed
        """Called when the machine is fit, or is not any more."""
        self._look = look
        self._size_of = size_of
        self._pool = pool
        self._has_others = has_others
        self._files = files
        if files is not None:
            files.changed = self._note_files
        self._problem: FolderProblem | None = None
        self._pause_sec = 0.0
        self._until = 0.0
        self._forgiven: Counter[str] = Counter()

    @property
    def problem(self) -> RefusalCode | None:
        """Why no turns are started."""
        if self._problem is not None:
            return self._problem.code
        return RefusalCode.FILES_UNAVAILABLE if self._files_fail else None

    @property
    def _files_fail(self) -> bool:
        return self._files is not None and self._files.problem is not None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            if self._files is not None:
                group.create_task(self._files.run())

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(min(LOOK_SEC, self._pause_sec or LOOK_SEC))

    async def look(self) -> RefusalCode | None:
        """Look at the machine now, and return why no turns are started."""
        found = await self._found(thorough=self._problem is not None)
        if found is not None:
            self._begin(found)
        elif self._problem is not None and _now() >= self._until:
            self._problem = None
            self._end()
        return self.problem

    async def _found(self, *, thorough: bool) -> FolderProblem | None:
        try:
            async with asyncio.timeout(_ANSWER_SEC):
                return await self._pool.run(self._look, thorough, admitted=True)
        except TimeoutError:
            message = f"its folders have not answered for {_ANSWER_SEC:g} s"
            return FolderProblem(code=RefusalCode.STORE_UNUSABLE, message=message)
        except Unavailable as error:
            # Not even a thread is left.
            return FolderProblem(code=error.code, message=error.message)

    def _begin(self, problem: FolderProblem) -> None:
        began, self._problem = self._problem is None, problem
        if began:
            self._say(problem.message)

    def _say(self, problem: str) -> None:
        log.error("this machine starts no turns for now: %s", problem)
        self.changed(False)

    def _end(self) -> None:
        """One problem is over. There may be another."""
        if self.problem is None:
            log.warning("this machine starts turns again")
            self.changed(True)

    def _note_files(self, problem: str | None) -> None:
        if problem is None:
            self._end()
        else:
            self._say(problem)

    # Turns.

    async def blame(self, run: Run, fault: BaseException) -> Blame | None:
        """Whether the machine is to blame for what a turn has met. If so, it pauses."""
        found = await self._found(thorough=True)
        known = _code_of(fault)
        size = await self._size(run)
        if found is None and known is None and size is None and isinstance(fault, OSError | Unavailable):
            known = RefusalCode.STORE_UNUSABLE
        if found is None and known is None:
            return None
        problem = found or FolderProblem(code=known or RefusalCode.STORE_UNUSABLE, message=str(fault))
        self._pause(problem)
        return Blame(code=problem.code, counted=self._counts(run, problem, well=found is None, size=size or 0))

    async def blame_for_end(self, run: Run, error: RunError) -> Blame | None:
        """As `blame`, for a turn that has ended with an error."""
        if error.code not in _SUSPECT:
            return None
        found = await self._found(thorough=True)
        if found is None and not (error.code is ErrorCode.ENGINE_START_FAILED and self._has_others):
            return None
        problem = found or FolderProblem(code=RefusalCode.RESOURCE_SHORTAGE, message=error.message)
        self._pause(problem)
        size = await self._size(run)
        return Blame(code=problem.code, counted=self._counts(run, problem, well=False, size=size or 0))

    async def _size(self, run: Run) -> int | None:
        """0 if it takes too long to find out."""
        try:
            async with asyncio.timeout(_ANSWER_SEC):
                return await self._pool.run(self._size_of, run.id, admitted=True)
        except (TimeoutError, Unavailable):
            return 0

    def _counts(self, run: Run, problem: FolderProblem, *, well: bool, size: int) -> bool:
        """A run that fills a small disk must end some time, and so must one that fails on every machine."""
        if problem.code is RefusalCode.FILES_UNAVAILABLE:
            return False
        if problem.code is RefusalCode.DISK_FULL and size >= _OWN_BYTES:
            return True
        if not well:
            return False
        self._forgiven[run.id] += 1
        return self._forgiven[run.id] > _FORGIVEN

    def _pause(self, problem: FolderProblem) -> None:
        """Turns that fail at the same moment make one pause."""
        if problem.code is RefusalCode.FILES_UNAVAILABLE and self._files is not None:
            self._files.failed(problem.message)
            return
        if _now() >= self._until:
            self._pause_sec = min(max(2 * self._pause_sec, _FIRST_PAUSE_SEC), _LONGEST_PAUSE_SEC)
            self._until = _now() + self._pause_sec
        self._begin(problem)

    def note_file_store(self) -> None:
        """A turn was put back because the file store could not be used."""
        self._pause(FolderProblem(code=RefusalCode.FILES_UNAVAILABLE, message="the file store cannot be used"))

    def note_end(self, run: Run) -> None:
        """A turn has ended as it should."""
        self._pause_sec = 0.0
        if self._files is not None:
            self._files.note_end()
        self._forgiven.pop(run.id, None)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _code_of(fault: BaseException) -> RefusalCode | None:
    """What the fault alone says about the machine."""
    if is_temporary(fault):
        return RefusalCode.RESOURCE_SHORTAGE
    if isinstance(fault, Unavailable):
        return fault.code if fault.code in _MACHINE or fault.code is RefusalCode.FILES_UNAVAILABLE else None
    if not isinstance(fault, OSError):
        return None
    code = code_of(fault)
    return code if code is RefusalCode.DISK_FULL or fault.errno in _BROKEN else None
