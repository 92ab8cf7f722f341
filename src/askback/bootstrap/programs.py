"""How this program registers among the others: by a file lock, or by a lease in PostgreSQL."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, cast

from askback import __version__
from askback.bootstrap.database import postgres_address
from askback.core.programs import ProgramFacts, ProgramKind
from askback.process.tree import boot_id
from askback.programs import Programs
from askback.programs.locked import LockedPrograms
from askback.settings import Settings
from askback.store.base import Store

if TYPE_CHECKING:
    from askback.store.postgres import PostgresStore


def make_programs(settings: Settings, store: Store) -> Programs:
    locks = LockedPrograms(settings.data_dir / "programs")
    address = postgres_address(settings)
    if address is None:
        return locks
    # An extra.
    from askback.programs.lease import LeaseTimes
    from askback.programs.leased import LeasedPrograms

    times = LeaseTimes(lease=settings.fleet.lease_sec)
    return LeasedPrograms(cast("PostgresStore", store), address, locks, times)


def facts(settings: Settings, *, serving: bool) -> ProgramFacts:
    return ProgramFacts(
        kind=ProgramKind.SERVER if serving else ProgramKind.COMMAND,
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        version=__version__,
        slots=settings.slots,
        free=settings.slots,
    )
