"""How this program registers among the others: by a file lock, or by a lease in PostgreSQL."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, cast

from askback import __version__
from askback.bootstrap.database import postgres_address
from askback.bootstrap.roles import Role
from askback.core.programs import ProgramFacts, ProgramKind
from askback.process.tree import boot_id
from askback.programs import Programs
from askback.programs.locked import LockedPrograms
from askback.settings import Settings
from askback.store.base import Store

if TYPE_CHECKING:
    from askback.store.postgres import PostgresStore

_KINDS = {
    Role.COMMAND: ProgramKind.COMMAND,
    Role.SERVER: ProgramKind.SERVER,
    Role.API_SERVER: ProgramKind.SERVER,
    Role.WORKER: ProgramKind.WORKER,
}


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


def facts(settings: Settings, role: Role) -> ProgramFacts:
    slots = settings.slots if role.executes else 0
    return ProgramFacts(
        kind=_KINDS[role],
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        version=__version__,
        slots=slots,
        free=slots,
    )
