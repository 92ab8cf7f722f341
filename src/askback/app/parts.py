"""What the parts of a program are made of: the same for all of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from askback.app.roles import Role
from askback.background.pools import Pools
from askback.blobs.marked import MarkedFiles
from askback.catalog.probes import EngineSetup, Probes
from askback.cluster.instances import OwnRuns, Programs
from askback.cluster.slots import Slots
from askback.engines.registry import Engines
from askback.fs.records import Records
from askback.process.child import Spawner
from askback.process.warm import WarmPool
from askback.settings.model import Settings
from askback.skills.library import Library
from askback.store.base import Store
from askback.telemetry.run_observer import RunObserver
from askback.worker.store_watch import StoreWatch
from askback.workspace.archives import Homes
from askback.workspace.uploads import Uploads
from askback.workspace.workdirs import Workdirs
from askback.workspace.workspaces import Workspaces

if TYPE_CHECKING:
    from askback.telemetry.exporter import Exporter

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """What the other parts of a program are made of."""

    settings: Settings
    role: Role
    programs: Programs
    store: Store
    files: MarkedFiles | None
    store_watch: StoreWatch | None
    records: Records
    spawner: Spawner
    engines: Engines
    setups: dict[str, EngineSetup]
    library: Library
    workspaces: Workspaces
    homes: Homes | None
    workdirs: Workdirs
    probes: Probes
    slots: Slots
    warm: WarmPool
    pools: Pools
    uploads: Uploads
    clock: Callable[[], datetime]
    observer: RunObserver
    exporter: Exporter | None

    @property
    def own_runs(self) -> OwnRuns:
        return OwnRuns(self.programs, serving=self.role.uses_shared_queue)

    def owner(self) -> str:
        return self.own_runs.owner

    def new_run_id(self) -> str:
        return new_run_id(self.clock())

    @property
    def serving(self) -> bool:
        return self.role.serves


def now() -> datetime:
    return datetime.now(UTC)


def new_run_id(at: datetime) -> str:
    """Sorts by time, short enough to type: 9 characters of milliseconds and 7 random ones."""
    number = (int(at.timestamp() * 1000) << 35) | secrets.randbits(35)
    digits = [_ALPHABET[(number >> shift) & 31] for shift in range(75, -5, -5)]
    return "".join(digits)
