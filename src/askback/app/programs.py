"""How this program registers among the others: by a file lock, or by a lease in PostgreSQL."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from askback import __version__
from askback.app.database import postgres_address
from askback.app.roles import Role
from askback.cluster.instances import Programs
from askback.cluster.locked import LockedPrograms
from askback.core.instances import InstanceFacts, InstanceKind
from askback.process.tree import boot_id
from askback.settings.model import Settings
from askback.store.base import Store

if TYPE_CHECKING:
    from askback.store.postgres import PostgresStore

_KINDS = {
    Role.COMMAND: InstanceKind.COMMAND,
    Role.SERVER: InstanceKind.SERVER,
    Role.API_SERVER: InstanceKind.SERVER,
    Role.WORKER: InstanceKind.WORKER,
}


def make_programs(settings: Settings, store: Store) -> Programs:
    locks = LockedPrograms(settings.data_dir / "programs")
    address = postgres_address(settings)
    if address is None:
        return locks
    # An extra.
    from askback.cluster.lease import LeaseTimes
    from askback.cluster.leased import LeasedPrograms

    times = LeaseTimes(lease=settings.fleet.lease_sec)
    return LeasedPrograms(cast("PostgresStore", store), address, locks, times)


def facts(settings: Settings, role: Role) -> InstanceFacts:
    slots = settings.slots if role.executes else 0
    return InstanceFacts(
        kind=_KINDS[role],
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        version=__version__,
        slots=slots,
        free=slots,
        public_url=settings.server.public_url if role.serves else None,
        port=(settings.server.port or None) if role.serves else None,
        lease_sec=settings.fleet.lease_sec,
    )


async def disagreements(programs: Programs) -> Sequence[str]:
    """What this program has set otherwise than those that run already, and must be the same."""
    others = [each.facts for each in await programs.living() if each.name != programs.name]
    return [problem for each in others for problem in differences(programs.facts, each)]


def differences(own: InstanceFacts, other: InstanceFacts) -> Iterator[str]:
    if own.lease_sec is None or other.lease_sec is None:
        # Of a version that does not say what it has set.
        return
    where = f"for the {other.kind} on {other.host} (pid {other.pid}); set the same on all machines"
    if own.lease_sec != other.lease_sec:
        yield f"fleet.lease_sec is {own.lease_sec:g} here, and {other.lease_sec:g} {where}"
    if own.kind is not InstanceKind.SERVER or other.kind is not InstanceKind.SERVER:
        return
    if own.public_url != other.public_url:
        yield f"server.public_url is {own.public_url or 'not set'} here, and {other.public_url or 'not set'} {where}"
    elif own.public_url is not None and None not in (own.port, other.port) and own.port != other.port:
        yield f"server.port is {own.port} here, and {other.port} {where}"
