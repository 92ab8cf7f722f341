"""The engines of all machines, for a server that leaves runs to others: found in what the workers offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from askback.catalog.probes import EngineSetup, Installed, Probes
from askback.cluster.fleet import Fleet
from askback.core.runs import ProfileKind
from askback.engines.base import Engine, Probe

_ASSUMED = "no worker has the engine at the moment; assumed"


class FleetEngines:
    """`here`: the engines of this machine, if this instance executes runs."""

    def __init__(self, fleet: Fleet, here: Probes | None) -> None:
        self._fleet = fleet
        self._here = here

    async def find(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        """The engine as every worker that has it can do; the weakest decides."""
        own = await self.here(engine, setup)
        return weakest([*([] if own is None else [own]), *self._elsewhere(engine)])

    async def here(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        return None if self._here is None else await self._here.find(engine, setup)

    async def expected(self, engine: Engine, setup: EngineSetup) -> Installed | None:
        """As `find`; if no worker has the engine now, as the last one had it.

        A server without a worker expects any engine that it knows: its worker may not have been started yet.
        """
        found = await self.find(engine, setup)
        if found is not None:
            return found
        gone = weakest([each.installed for each in self._fleet.last_offers(engine.name)])
        return gone if gone is not None or self._here is not None else _assumed(engine)

    def has(self, engine: Engine, setup: EngineSetup) -> bool:
        return bool(self._elsewhere(engine)) or (self._here is not None and self._here.has(engine, setup))

    def signed_in(self, engine: Engine, setup: EngineSetup) -> bool | None:
        """Whether it is signed in wherever it is: a run may get any of them."""
        known = [each.signed_in for each in self._elsewhere(engine)]
        if self._here is not None and self._here.has(engine, setup):
            known.append(self._here.signed_in(engine, setup))
        return _all_signed_in(known) if known else False

    def workers(self, engine: Engine) -> int | None:
        return self._fleet.having(engine.name)

    def any_worker(self) -> bool:
        return self._here is not None or bool(self._fleet.working)

    def watch(self, listener: Callable[[str], None]) -> None:
        if self._here is not None:
            self._here.watch(listener)

    def forget(self) -> None:
        if self._here is not None:
            self._here.forget()

    def _elsewhere(self, engine: Engine) -> list[Installed]:
        return [each.installed for each in self._fleet.offers(engine.name)]


def weakest(found: Sequence[Installed]) -> Installed | None:
    """What all of them can do: a run may get any of them."""
    if not found:
        return None
    probes = [each.probe for each in found]
    least = min(found, key=lambda each: (each.probe.kind is ProfileKind.RESUMABLE, each.probe.resident))
    efforts = set(least.probe.effort).intersection(*(each.effort for each in probes))
    features = set(least.probe.features).intersection(*(each.features for each in probes))
    return Installed(
        path=least.path,
        probe=Probe(
            kind=least.probe.kind,
            reason=least.probe.reason,
            version=least.probe.version,
            features=tuple(each for each in least.probe.features if each in features),
            resident=all(each.resident for each in probes),
            effort=tuple(each for each in least.probe.effort if each in efforts),
        ),
        signed_in=_all_signed_in([each.signed_in for each in found]),
    )


def _all_signed_in(known: Sequence[bool | None]) -> bool | None:
    return next((each for each in (False, None) if each in known), True)


def _assumed(engine: Engine) -> Installed:
    resumable = ProfileKind.RESUMABLE in engine.profiles
    probe = Probe(
        kind=ProfileKind.RESUMABLE if resumable else ProfileKind.STICKY_PROCESS,
        reason=_ASSUMED,
        resident=ProfileKind.STICKY_PROCESS in engine.profiles,
        effort=tuple(sorted(engine.profiles)),
    )
    return Installed(path="", probe=probe, signed_in=None)
