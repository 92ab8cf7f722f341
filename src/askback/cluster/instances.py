"""Which programs work on the same database, which of them are alive, and which one leads.

A program registers under a name, which is in the runs that it executes. When it is not alive any more, the others continue
these runs. Embedded, a program is alive while it holds a file lock. With PostgreSQL, it is alive while its lease is not
over by the clock of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from askback.core.instances import Instance, InstanceFacts, InstanceKind
from askback.core.runs import SHARED


class Role(StrEnum):
    """What an instance does: serve the API, execute runs, or both."""

    COMMAND = "command"
    """Executes its own runs, and ends with them."""
    SERVER = "server"
    """Serves the API, and executes runs that any server or worker may execute."""
    API_SERVER = "api_server"
    """Serves the API, and executes nothing."""
    WORKER = "worker"
    """Executes runs that any server or worker may execute, and serves no API."""

    @property
    def kind(self) -> InstanceKind:
        """What the others see of the role."""
        match self:
            case Role.COMMAND:
                return InstanceKind.COMMAND
            case Role.WORKER:
                return InstanceKind.WORKER
            case Role.SERVER | Role.API_SERVER:
                return InstanceKind.SERVER

    @property
    def serves(self) -> bool:
        return self in (Role.SERVER, Role.API_SERVER)

    @property
    def executes(self) -> bool:
        return self is not Role.API_SERVER

    @property
    def uses_shared_queue(self) -> bool:
        """Whether its runs are in the queue that all servers and workers share, and so may be executed by any of them."""
        return self is not Role.COMMAND


class Programs(Protocol):
    """The programs on one database. Belongs to the event loop in which it was opened."""

    @property
    def name(self) -> str:
        """The name of this program. It changes when the program registers again."""
        ...

    @property
    def facts(self) -> InstanceFacts: ...

    async def register(self, facts: InstanceFacts) -> str:
        """Register this program, under a new name. Raises `Unavailable`."""
        ...

    def update(self, facts: InstanceFacts) -> None:
        """What the others see of this program from the next renewal on."""
        ...

    async def leave(self) -> None:
        """This program counts as dead from now on. Nothing that it has started may be alive."""
        ...

    def restore_registration(self) -> bool:
        """Whether the data folder still shows that this program is alive. If not, it does so afterwards. Blocks."""
        ...

    async def alive(self, names: Collection[str]) -> frozenset[str]:
        """Which of these programs are alive."""
        ...

    async def living(self) -> Sequence[Instance]:
        """All programs that are alive. Embedded, only this one is known."""
        ...

    async def known(self) -> Sequence[Instance]:
        """As `living`, with programs that were alive until a short while ago and did not leave."""
        ...

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Only one of all programs is in such a block at a time. Raises `Unavailable` if another does not leave it."""
        ...

    async def forget_dead(self) -> None:
        """Remove what dead programs have left of their registration. A program without one counts as dead."""
        ...

    # The lease.

    async def lost(self) -> str:
        """Wait until this program must count itself as dead; return why. Embedded, that never happens."""
        ...

    def on_renewed(self, call: Callable[[float], None]) -> None:
        """Have `call` called in the event loop after every renewal, with the time of CLOCK_BOOTTIME by which the next one
        must have happened. All turns of this program are stopped then."""
        ...

    # The leader.

    def seek_lead(self) -> None:
        """Become the leader as soon as no other program is."""
        ...

    async def leads(self) -> None:
        """Wait until this program is the leader."""
        ...

    async def leads_no_more(self) -> None:
        """Wait until this program is not the leader."""
        ...

    # The clock.

    def clock_error(self) -> timedelta:
        """What must be added to the clock of this machine to get that of the database."""
        ...


class OwnRuns(Collection[str]):
    """The owners whose runs a program executes: those of any server, or itself under its current name."""

    def __init__(self, programs: Programs, *, serving: bool) -> None:
        self._programs = programs
        self._serving = serving

    @property
    def owner(self) -> str:
        return SHARED if self._serving else self._programs.name

    def __contains__(self, owner: object) -> bool:
        return owner == self.owner

    def __iter__(self) -> Iterator[str]:
        yield self.owner

    def __len__(self) -> int:
        return 1


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
