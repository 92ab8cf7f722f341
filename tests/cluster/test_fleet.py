"""What all workers offer together: engines, profiles, and the reasons why a run is queued."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from askback.app.app import share_slots
from askback.catalog.probes import EngineSetup
from askback.cluster.fleet import EngineOffer, Fleet, FleetWorker, Offer, WorkerState
from askback.cluster.offering import FleetEngines
from askback.cluster.slots import Slots
from askback.core.access import MAIN
from askback.core.runs import ProfileKind
from askback.engines.base import Probe
from askback.engines.scripted import Scripted
from askback.settings.sections import Quota, Quotas

RESUMABLE = Probe(kind=ProfileKind.RESUMABLE, reason="it resumes", version="2.0", resident=True, effort=("resumable",))
STICKY = Probe(kind=ProfileKind.STICKY_PROCESS, reason="it does not resume", version="1.0", resident=True)
START = datetime(2026, 3, 1, tzinfo=UTC)
ENGINE = Scripted()
SETUP = EngineSetup(command=("scripted",), env={})


def offer(**engines: EngineOffer) -> Offer:
    return Offer(slots=2, taken=0, engines=engines)


def having(probe: Probe = RESUMABLE, **rest: Any) -> EngineOffer:
    return EngineOffer(path="/bin/scripted", probe=probe, **rest)


def worker(name: str, offered: Offer, *, alive: bool = True, minute: int = 0) -> FleetWorker:
    return FleetWorker(
        name=name,
        kind="worker",
        host="here",
        pid=1,
        version="1",
        started_at=START + timedelta(minutes=minute),
        alive=alive,
        offer=offered,
    )


def fleet_of(
    *workers: FleetWorker,
    slots: Slots | None = None,
    own: str = "own",
    held: Mapping[str, Mapping[str, int]] | None = None,
) -> Fleet:
    """Each token may have all slots but one."""

    async def read() -> Sequence[FleetWorker]:
        return workers

    async def count() -> Mapping[str, Mapping[str, int]]:
        return held or {}

    fleet = Fleet(read, own=lambda: own, slots=slots, held=count, share=partial(share_slots, Quotas()))
    asyncio.run(fleet.refresh())
    return fleet


def test_an_offer_is_read_as_it_was_written() -> None:
    made = replace(offer(scripted=having(STICKY, slots=1, taken=1, signed_in=False)), labels={"zone": "eu"})
    assert Offer.read(made.document) == made
    assert Offer.read({**made.document, "of_a_later_version": 1}) == made


@pytest.mark.parametrize("document", [{}, {"slots": "many"}, {"engines": {"codex": {}}}], ids=repr)
def test_an_offer_that_cannot_be_read_offers_nothing(document: Mapping[str, Any]) -> None:
    assert Offer.read(document) == Offer()


@pytest.mark.contract("M-3")
@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        ([offer(scripted=having())], "starting"),
        ([offer(other=having())], "no_worker"),
        ([], "no_worker"),
        ([Offer(slots=1, taken=1, engines={"scripted": having()})], "slots"),
        ([offer(scripted=having(slots=1, taken=1))], "engine_slots"),
        (
            [offer(scripted=having(slots=1, taken=1)), Offer(slots=1, taken=1, engines={"scripted": having()})],
            "engine_slots",
        ),
        ([Offer(slots=1, taken=1, engines={"scripted": having()}), offer(scripted=having())], "starting"),
        ([replace(offer(scripted=having()), draining=True)], "no_worker"),
        ([replace(offer(scripted=having()), problem="DISK_FULL")], "unready"),
        ([replace(offer(scripted=having()), problem="DISK_FULL"), offer(scripted=having())], "starting"),
    ],
)
def test_why_a_run_is_queued_depends_on_the_workers_that_have_its_engine(offered: Sequence[Offer], reason: str) -> None:
    fleet = fleet_of(*(worker(f"w{place}", each) for place, each in enumerate(offered)))
    assert fleet.reason("scripted") == reason


def test_a_run_whose_token_has_its_share_of_all_slots_is_queued_because_of_that() -> None:
    here, there = offer(scripted=having()), replace(offer(scripted=having()), taken=2)
    fleet = fleet_of(
        worker("here", here), worker("there", there), held={"greedy": {"scripted": 3}, "modest": {"scripted": 2}}
    )
    assert (fleet.reason("scripted", "greedy"), fleet.reason("scripted", "modest")) == ("token_slots", "starting")
    assert fleet.reason("scripted", None) == fleet.reason("scripted", "new") == "starting"
    assert fleet.reason("other", "greedy") == "no_worker"


@pytest.mark.parametrize(("total", "share"), [(1, 1), (2, 1), (8, 7)])
def test_by_default_a_token_may_have_all_slots_but_one_and_the_servers_own_token_all(total: int, share: int) -> None:
    shares = share_slots(Quotas(), total, {})
    assert (shares.of("app"), shares.of(MAIN), shares.of(None)) == (share, None, None)


def test_a_token_with_quotas_has_its_own_limit_of_slots() -> None:
    quotas = Quotas(running=3, tokens={"batch": Quota(running=1), MAIN: Quota()})
    shares = share_slots(quotas, 8, {})
    assert (shares.of("app"), shares.of("batch"), shares.of(MAIN), shares.of(None)) == (3, 1, 7, None)


def test_a_token_may_have_all_slots_of_an_engine_but_one_unless_it_has_a_limit_of_its_own() -> None:
    quotas = Quotas(tokens={"app": Quota(running=8), "slow": Quota(requests_per_min=1)})
    shares = share_slots(quotas, 8, {"codex": 3, "scripted": 1})
    assert [shares.of_engine(token, "codex") for token in ("any", "slow", "app", MAIN, None)] == [
        2,
        2,
        None,
        None,
        None,
    ]
    assert (shares.of_engine("any", "scripted"), shares.of_engine("any", "gemini")) == (1, None)
    assert share_slots(Quotas(tokens={MAIN: Quota()}), 8, {"codex": 3}).of_engine(MAIN, "codex") == 2


def test_a_run_whose_token_has_its_share_of_the_engine_is_queued_because_of_that() -> None:
    """The engine has one slot on each machine, though the machines have more."""
    here, there = offer(scripted=having(slots=1, taken=1)), offer(scripted=having(slots=2, taken=1), other=having())
    held = {"greedy": {"scripted": 2}, "modest": {"scripted": 1, "other": 1}}
    fleet = fleet_of(worker("here", here), worker("there", there), held=held)
    assert fleet.reason("scripted", "greedy") == "token_slots"
    assert fleet.reason("scripted", "modest") == fleet.reason("other", "greedy") == "starting"
    slots = Slots(4, {"scripted": 2}, partial(share_slots, Quotas()))
    slots.take("scripted", "greedy")
    assert (slots.reason("scripted", "greedy"), slots.reason("scripted", "other")) == ("token_slots", "starting")
    slots.release("scripted", "greedy")
    assert slots.reason("scripted", "greedy") == "starting"


def test_the_slots_of_this_server_count_as_they_are_now() -> None:
    ready = True
    slots = Slots(1, {}, ready=lambda: ready)
    fleet = fleet_of(worker("own", offer(scripted=having())), slots=slots)
    assert fleet.reason("scripted") == "starting"
    slots.take("scripted")
    assert fleet.reason("scripted") == "slots"
    ready = False
    assert fleet.reason("scripted") == "unready"
    slots.only = frozenset({"other"})
    assert fleet.reason("scripted") == "no_worker"


def test_an_engine_that_is_not_offered_gets_no_slot() -> None:
    slots = Slots(2, {})
    slots.only = frozenset({"other"})
    assert not slots.take("scripted")
    assert (slots.free_of("scripted"), slots.free_of("other")) == (0, 2)
    assert slots.take("other")
    slots.only = frozenset({"other", "scripted"})
    assert slots.take("scripted")


def test_a_run_gets_the_profile_that_every_worker_has() -> None:
    fleet = fleet_of(
        worker("a", offer(scripted=having())), worker("b", offer(scripted=having(STICKY, signed_in=False)))
    )
    engines = FleetEngines(fleet, None)
    found = asyncio.run(engines.find(ENGINE, SETUP))
    assert found is not None
    assert (found.probe.kind, found.probe.reason) == (ProfileKind.STICKY_PROCESS, STICKY.reason)
    assert found.probe.effort == ()
    assert found.signed_in is False
    assert engines.workers(ENGINE) == 2


def test_a_worker_that_is_gone_or_stopping_offers_nothing_but_is_remembered() -> None:
    stopping = replace(offer(scripted=having()), draining=True)
    fleet = fleet_of(worker("a", offer(scripted=having(STICKY)), alive=False), worker("b", stopping, minute=1))
    assert [each.state for each in fleet.workers] == [WorkerState.GONE, WorkerState.DRAINING]
    engines = FleetEngines(fleet, None)
    assert asyncio.run(engines.find(ENGINE, SETUP)) is None
    assert not engines.has(ENGINE, SETUP)
    assert not engines.any_worker()
    expected = asyncio.run(engines.expected(ENGINE, SETUP))
    assert expected is not None
    assert expected.probe.kind is ProfileKind.STICKY_PROCESS


def test_a_server_without_a_worker_expects_every_engine_that_it_knows() -> None:
    expected = asyncio.run(FleetEngines(fleet_of(), None).expected(ENGINE, SETUP))
    assert expected is not None
    assert expected.probe.kind is ProfileKind.RESUMABLE
    assert "no worker" in expected.probe.reason
