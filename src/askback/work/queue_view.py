"""The queue as one worker knows it: read once, then kept up to date by the changes that the store reports.

Saves a read of the queue for every run that is queued and for every slot that becomes free.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from askback.core.runs import Run, RunState
from askback.store.base import Store


class QueueView:
    def __init__(self, store: Store, owners: Collection[str]) -> None:
        self._store = store
        self._owners = owners
        self._fresh: list[Run] = []
        """Queued since the queue was last read, in order."""
        self._complete = False
        """Whether nothing but `_fresh` can be in the queue."""
        self._outdated = False
        """Whether the queue may have changed in an unknown way since the last read began."""
        self._read: set[tuple[str, int]] = set()
        """Ids and versions of the runs that were last read. Their changes may be reported after that."""

    def note(self, changed: Mapping[str, Run | None]) -> bool:
        """Take changes of the store. Returns whether a run may have been queued."""
        if None in changed.values():
            self._complete, self._outdated = False, True
            return True
        queued = [run for run in changed.values() if run is not None and run.state is RunState.QUEUED]
        self._fresh += [run for run in queued if run.owner in self._owners and (run.id, run.version) not in self._read]
        return bool(queued)

    def note_left(self) -> None:
        """A run of the queue was not taken."""
        self._complete, self._outdated = False, True

    async def heads(self, *, without_engines: Collection[str], limit: int) -> Sequence[Run]:
        """The runs to take next; empty if there are none."""
        fresh, self._fresh = self._fresh, []
        if self._complete and not without_engines and len(fresh) <= limit:
            return fresh
        if self._complete and not fresh:
            return ()
        # Until the read is done, others rely on nothing. What is queued meanwhile is noted.
        self._complete, self._outdated = False, False
        runs = await self._store.queued(self._owners, without_engines=without_engines, limit=limit)
        self._read = {(run.id, run.version) for run in runs}
        self._fresh = [run for run in self._fresh if (run.id, run.version) not in self._read]
        self._complete = len(runs) < limit and not without_engines and not self._outdated
        return runs
