"""Metrics for Prometheus: changes of runs, slots, warm processes and event streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from askback.core.runs import Run, RunState
from askback.process.warm import DropReason, WarmPool
from askback.store.base import Store

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _WarmProcesses:
    """What the pool counts by itself."""

    def __init__(self, pool: WarmPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        pool = self._pool
        yield GaugeMetricFamily("askback_warm_processes", "Processes that are kept for waiting runs.", pool.count)
        memory = "Memory of these processes, as last measured."
        yield GaugeMetricFamily("askback_warm_memory_bytes", memory, pool.memory_bytes)
        replies = CounterMetricFamily(
            "askback_warm_replies",
            "Replies to resumable runs, by the process that got them: a warm one (hit) or a new one (miss).",
            labels=["result"],
        )
        replies.add_metric(["hit"], pool.hits)
        replies.add_metric(["miss"], pool.misses)
        yield replies
        drops = CounterMetricFamily(
            "askback_warm_drops", "Warm processes that were ended, by reason.", labels=["reason"]
        )
        for reason in DropReason:
            drops.add_metric([reason], pool.drops[reason])
        yield drops


class Metrics:
    def __init__(
        self, *, slots_total: int, slots_taken: Callable[[], int], streams: Callable[[], int], warm: WarmPool
    ) -> None:
        self._registry = CollectorRegistry()
        self._changes = Counter(
            "askback_run_changes",
            "Changes of runs that this server has seen, by their new state.",
            ["state"],
            registry=self._registry,
        )
        Gauge("askback_slots", "Engine processes that may run at the same time.", registry=self._registry).set(
            slots_total
        )
        taken = Gauge("askback_slots_taken", "Engine processes that are running.", registry=self._registry)
        taken.set_function(slots_taken)
        followed = Gauge("askback_event_streams", "Open event streams.", registry=self._registry)
        followed.set_function(streams)
        self._registry.register(_WarmProcesses(warm))

    async def watch(self, store: Store) -> None:
        """Count changes of state."""
        changes = store.changes()
        running: set[str] = set()
        try:
            while True:
                for run in (await changes.wait()).values():
                    if run is not None:
                        self._count(run, running)
        finally:
            changes.close()

    def _count(self, run: Run, running: set[str]) -> None:
        """A running run changes several times without a change of state; remembers at most one run per slot."""
        if run.state is RunState.RUNNING and run.id in running:
            return
        running.discard(run.id)
        if run.state is RunState.RUNNING:
            running.add(run.id)
        self._changes.labels(run.state).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)
