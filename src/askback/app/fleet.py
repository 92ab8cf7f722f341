"""The workers of all machines: what this program tells of itself, and what it reads of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from askback.app.roles import Role
from askback.catalog.probes import EngineSetup, Probes
from askback.cluster.fleet import Fleet, FleetWorker, Offer, WorkerState
from askback.cluster.instances import Programs
from askback.cluster.offering import Offering
from askback.cluster.slots import Slots
from askback.core.access import MAIN
from askback.core.instances import Instance, InstanceKind
from askback.core.queue import Shares
from askback.engines.registry import Engines
from askback.settings.model import Settings
from askback.settings.sections import Quota, Quotas
from askback.store.base import Store
from askback.wire import server as wire
from askback.wire.base import utc
from askback.worker.worker import Worker

_EXECUTE = (InstanceKind.SERVER, InstanceKind.WORKER)


def is_shared(settings: Settings) -> bool:
    """Whether programs on other machines may work on the same runs."""
    return settings.database not in (None, "sqlite")


def share_slots(quotas: Quotas, total: int) -> Shares:
    """By default, no token can take all slots. The server's own token can, unless the settings give it quotas."""

    def share(quota: Quota) -> int:
        return max(1, total - 1) if quota.running is None else quota.running

    named = {name: share(quota) for name, quota in quotas.tokens.items()}
    return Shares(usual=share(quotas), named={MAIN: None, **named})


def make_fleet(settings: Settings, role: Role, programs: Programs, store: Store, slots: Slots) -> Fleet | None:
    """For a server. None if there can be no other programs than those on this machine."""
    if not (role.serves and is_shared(settings)):
        return None

    async def read() -> Sequence[FleetWorker]:
        return await read_workers(programs)

    return Fleet(
        read,
        own=lambda: programs.name,
        slots=slots if role.executes else None,
        held=store.held_by_token,
        share=partial(share_slots, settings.quotas),
    )


async def read_workers(programs: Programs) -> Sequence[FleetWorker]:
    """The programs that execute runs which belong to nobody in particular."""
    found = [worker_of(each) for each in await programs.known() if each.facts.kind in _EXECUTE]
    return [each for each in found if each.offer.slots]


def worker_of(program: Instance) -> FleetWorker:
    facts = program.facts
    return FleetWorker(
        name=program.name,
        kind=facts.kind,
        host=facts.host,
        pid=facts.pid,
        version=facts.version,
        started_at=program.started_at,
        alive=program.alive,
        offer=Offer.read(facts.offer),
    )


def make_offering(
    settings: Settings,
    role: Role,
    programs: Programs,
    *,
    engines: Engines,
    setups: dict[str, EngineSetup],
    probes: Probes,
    slots: Slots,
    worker: Worker,
) -> Offering | None:
    """For a program that executes runs of others. None if there are no others."""
    if not (role.executes and role.uses_shared_queue and is_shared(settings)):
        return None

    def publish(offer: Offer) -> None:
        programs.update(replace(programs.facts, offer=offer.document))

    async def count() -> int:
        working = [each for each in await read_workers(programs) if each.state is WorkerState.ALIVE]
        return sum(each.offer.slots for each in working)

    return Offering(
        engines=engines,
        setups=setups,
        probes=probes,
        slots=slots,
        only=settings.worker.engines if role is Role.WORKER else (),
        labels=settings.worker.labels if role is Role.WORKER else {},
        draining=lambda: worker.draining,
        problem=lambda: worker.problem,
        publish=publish,
        count=count,
        changed=worker.look_again,
    )


def shown(worker: FleetWorker) -> wire.Worker:
    offer = worker.offer
    return wire.Worker(
        name=worker.name,
        kind=worker.kind,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        state=worker.state,
        labels=dict(offer.labels),
        slots=wire.Slots(total=offer.slots, taken=offer.taken),
        engines=tuple(
            wire.WorkerEngine(
                name=name,
                version=each.probe.version,
                interactive_profile=each.probe.kind,
                signed_in=each.signed_in,
                slots=each.slots,
                taken=each.taken,
            )
            for name, each in sorted(offer.engines.items())
        ),
        started_at=utc(worker.started_at),
        problem=offer.problem or None,
    )
