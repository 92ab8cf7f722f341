"""A program from its parts."""

from __future__ import annotations

from askback.app.app import App
from askback.app.database import postgres_address
from askback.app.fitness import make_fitness, start_patience_sec
from askback.app.fleet import make_fleet, make_offering
from askback.app.notifications import make_digests, make_notifications
from askback.app.parts import Parts
from askback.app.telegram import make_bot
from askback.catalog.engines import EngineCatalog
from askback.catalog.models import ModelLists
from askback.cluster.fleet import Fleet
from askback.cluster.fleet_engines import FleetEngines
from askback.cluster.offering import Offering
from askback.cluster.recovery import Recovery
from askback.process.child import OutputLimits
from askback.process.warm import DropReason
from askback.runs.continuation import Inheritance
from askback.runs.deletion import DeletedRuns, Deletion
from askback.runs.retention import Retention, RetentionPolicy
from askback.runs.service import Service
from askback.runs.submission import Submissions
from askback.worker.deadlines import Deadlines
from askback.worker.earlier_runs import EarlierRuns
from askback.worker.fitness import Fitness
from askback.worker.membership import Membership
from askback.worker.prewarm import Prewarming
from askback.worker.sharing import Sharing
from askback.worker.turn.context import TurnContext
from askback.worker.turn.shortage import Shortage
from askback.worker.vitals import Vitals
from askback.worker.worker import Worker
from askback.workspace.workspaces import FreshFolders


def assembled(parts: Parts) -> App:
    store, settings, clock, serving = parts.store, parts.settings, parts.clock, parts.serving
    prewarming = _prewarming(parts)
    recovery = Recovery(
        store=store,
        programs=parts.programs,
        workspaces=parts.workspaces,
        fresh_folders=prewarming.folders,
        clock=clock,
        check_sec=None if postgres_address(settings) is None else 1.0,
    )
    deletion = Deletion(store=store, workspaces=parts.workspaces, uploads=parts.uploads, pools=parts.pools)
    fleet = make_fleet(settings, parts.role, parts.programs, store, parts.slots)
    service = _service(parts, recovery, deletion, prewarming, fleet)
    telegram = make_bot(settings, service, store, clock) if serving else None
    fitness = make_fitness(
        settings, parts.role, parts.programs, parts.workspaces, parts.pools, store_watch=parts.store_watch
    )
    worker = _worker(parts, prewarming, fitness)
    deadlines = _deadlines(parts)
    digests = make_digests(parts) if serving else None
    retention = _retention(parts, deletion) if serving else None
    leading = (deadlines, recovery, digests, retention, telegram) if serving else ()
    duties = [each.run for each in leading if each is not None]
    return App(
        settings=settings,
        role=parts.role,
        fleet=fleet,
        offering=_offering(parts, worker),
        fitness=fitness,
        clock=clock,
        observer=parts.observer,
        exporter=parts.exporter,
        programs=parts.programs,
        membership=Membership(programs=parts.programs, worker=worker, recovery=recovery, duties=duties),
        store=store,
        files=parts.files,
        records=parts.records,
        workspaces=parts.workspaces,
        uploads=parts.uploads,
        slots=parts.slots,
        warm=parts.warm,
        spawner=parts.spawner,
        prewarming=prewarming,
        service=service,
        worker=worker,
        deadlines=deadlines,
        recovery=recovery,
        deletion=deletion,
        deleted_runs=_deleted_runs(parts),
        vitals=Vitals(store=store, files=parts.files, pools=parts.pools, clock=clock),
        notifications=make_notifications(parts, telegram) if serving else None,
        digests=digests,
        telegram=telegram,
        retention=retention,
        sharing=_sharing(parts),
        earlier_runs=_earlier_runs(parts),
    )


def _service(
    parts: Parts, recovery: Recovery, deletion: Deletion, prewarming: Prewarming, fleet: Fleet | None
) -> Service:
    engines = EngineCatalog(
        engines=parts.engines,
        setups=parts.setups,
        source=parts.probes if fleet is None else FleetEngines(fleet, parts.probes if parts.role.executes else None),
        models=ModelLists(
            folder=parts.settings.data_dir / "models",
            locks=parts.settings.data_dir / "locks",
            spawner=parts.spawner,
            clock=parts.clock,
        ),
        default_engine=parts.settings.default_engine,
    )
    return Service(
        store=parts.store,
        library=parts.library,
        engines=engines,
        workspaces=parts.workspaces,
        owner=parts.owner,
        programs=parts.programs,
        recovery=recovery,
        deletion=deletion,
        queue=parts.slots if fleet is None else fleet,
        warm=parts.warm,
        clock=parts.clock,
        new_id=parts.new_run_id,
        pools=parts.pools,
        submissions=_submissions(parts, engines, prewarming),
        homes=parts.homes,
    )


def _submissions(parts: Parts, engines: EngineCatalog, prewarming: Prewarming) -> Submissions:
    inheritance = Inheritance(
        store=parts.store,
        workspaces=parts.workspaces,
        pool=parts.pools.copying,
        engines=parts.engines,
        warm=parts.warm,
        homes=parts.homes,
    )
    return Submissions(
        store=parts.store,
        library=parts.library,
        engines=engines,
        workspaces=parts.workspaces,
        inheritance=inheritance,
        pools=parts.pools,
        owner=parts.owner,
        clock=parts.clock,
        new_id=parts.new_run_id,
        private_webhooks=parts.settings.notifications.allow_private,
        longest_turn_sec=parts.settings.limits.turn_sec,
        workdirs=parts.workdirs,
        prewarmed=prewarming,
        homes=parts.homes,
    )


def _turn_context(parts: Parts) -> TurnContext:
    limits = parts.settings.limits
    return TurnContext(
        store=parts.store,
        library=parts.library,
        workspaces=parts.workspaces,
        homes=parts.homes,
        store_watch=parts.store_watch,
        workdirs=parts.workdirs,
        locks=parts.settings.data_dir / "locks",
        engines=parts.engines,
        setups=parts.setups,
        probes=parts.probes,
        spawner=parts.spawner,
        limits=OutputLimits(line_bytes=limits.line_bytes, turn_bytes=limits.output_bytes),
        clock=parts.clock,
        pools=parts.pools,
        printed=parts.observer.printed,
        warm=parts.warm,
        shortage=Shortage(
            start_patience_sec(parts.settings, parts.role), relieve=lambda: parts.warm.drop_oldest(DropReason.ROOM)
        ),
    )


def _prewarming(parts: Parts) -> Prewarming:
    """Only a program that lasts keeps processes ready: a command ends with its run."""
    notes = parts.settings.data_dir / "prewarmed"
    folders = FreshFolders(parts.workspaces, notes, program=lambda: parts.programs.name)
    wanted = {name: setup.prewarm for name, setup in parts.setups.items()} if parts.role.uses_shared_queue else {}
    return Prewarming(_turn_context(parts), folders, wanted=wanted, new_id=parts.new_run_id)


def _offering(parts: Parts, worker: Worker) -> Offering | None:
    return make_offering(
        parts.settings,
        parts.role,
        parts.programs,
        engines=parts.engines,
        setups=parts.setups,
        probes=parts.probes,
        slots=parts.slots,
        worker=worker,
    )


def _deadlines(parts: Parts) -> Deadlines:
    return Deadlines(
        store=parts.store,
        owners=parts.own_runs,
        clock=parts.clock,
        announce_sec=parts.settings.notifications.reminders.before_deadline_sec,
    )


def _worker(parts: Parts, prewarming: Prewarming, fitness: Fitness) -> Worker:
    worker = Worker(
        name=lambda: parts.programs.name,
        owners=parts.own_runs,
        slots=parts.slots,
        context=prewarming.context,
        prewarming=prewarming,
        fitness=fitness,
    )

    def note(fit: bool) -> None:
        parts.slots.ready = fit
        if fit:
            worker.look_again()

    fitness.changed = note
    return worker


def _deleted_runs(parts: Parts) -> DeletedRuns | None:
    """With SQLite, all programs are on one machine, and a deletion removes everything."""
    if postgres_address(parts.settings) is None:
        return None
    return DeletedRuns(store=parts.store, workspaces=parts.workspaces, uploads=parts.uploads, pools=parts.pools)


def _sharing(parts: Parts) -> Sharing | None:
    if parts.homes is None or not parts.role.uses_shared_queue:
        return None
    return Sharing(
        store=parts.store,
        homes=parts.homes,
        workspaces=parts.workspaces,
        library=parts.library,
        engines=parts.engines,
        pools=parts.pools,
        clock=parts.clock,
    )


def _earlier_runs(parts: Parts) -> EarlierRuns | None:
    if parts.homes is None or not parts.role.uses_shared_queue:
        return None
    data_dir = parts.settings.data_dir
    return EarlierRuns(store=parts.store, workspaces=parts.workspaces, pools=parts.pools, data_dir=data_dir)


def _retention(parts: Parts, deletion: Deletion) -> Retention:
    settings = parts.settings
    return Retention(
        store=parts.store,
        workspaces=parts.workspaces,
        pools=parts.pools,
        uploads=parts.uploads,
        homes=parts.homes,
        deletion=deletion,
        keeping=RetentionPolicy(
            days=settings.retention.days,
            max_bytes=settings.retention.max_bytes,
            audit_days=settings.retention.audit_days,
        ),
        clock=parts.clock,
    )
