"""What the turns of all runs share: the store, the folders, the engines, the limits and the threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from askback.background.pools import Pools
from askback.catalog.probes import EngineSetup, Probes
from askback.core.runs import Run
from askback.engines.base import Engine
from askback.process.child import OutputLimits, Spawner
from askback.process.warm import WarmPool
from askback.runs.secrets import RunSecrets
from askback.skills.library import Library
from askback.store.base import Store
from askback.worker.machine import MachineHealth
from askback.worker.turn.early_saves import EarlySaves
from askback.worker.turn.shortage import Shortage
from askback.workspace.archives import RunArchives
from askback.workspace.workdirs import Workdirs
from askback.workspace.workspaces import Workspaces

T = TypeVar("T")

_SHORT = 65_536
"""Characters that are parsed in the event loop: switching threads would cost more than parsing them."""


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
    printed: Callable[[Run], None] = lambda run: None
    """Called when an engine prints its first line in a turn."""
    parsing: Parsing = field(default_factory=Parsing)
    shortage: Shortage = field(default_factory=Shortage)
    early_saves: EarlySaves = field(default_factory=EarlySaves)

    @property
    def secrets(self) -> RunSecrets:
        return RunSecrets(library=self.library, workspaces=self.workspaces, pools=self.pools, archives=self.archives)
