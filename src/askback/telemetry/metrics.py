"""The metrics of a server, in one registry: `/metrics` shows it, and an OpenTelemetry collector gets the same numbers.

Labels have few values: engines, states and codes. Callers choose the labels of runs, so these are counted only if the
settings name them, and only so many values of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from askback import __version__
from askback.core.errors import Unavailable
from askback.core.runs import Run
from askback.store.visible import RunStore
from askback.telemetry.run_observer import Episode, EpisodeKind, Observation, ReplyReached, StateChanged, TurnStep

CONTENT_TYPE = CONTENT_TYPE_LATEST

_QUICK = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
_DELAY = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600)
_TURN = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 3600)
_WAIT = (1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86_400, 3 * 86_400, 7 * 86_400, 30 * 86_400)
"""Upper bounds of buckets, in seconds: of our own work, of what a user waits for, of engines, of people."""

MAX_LABEL_VALUES = 100
"""How many values of a run label have their own series. Further ones count as `OTHER`."""
OTHER = "other"

# A second series for every other one, which nothing here uses.
disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    name: str
    kind: str
    labels: tuple[str, ...]
    about: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gauges:
    """What is read when the metrics are: values of other parts of the server."""

    slots_total: int = 0
    slots_taken: Callable[[], float] = lambda: 0
    workers: Callable[[], float] = lambda: 1
    """How many instances start turns, on all machines."""
    streams: Callable[[], float] = lambda: 0
    loop_lag_sec: Callable[[], float] = lambda: 0
    warm_processes: Callable[[], float] = lambda: 0
    warm_bytes: Callable[[], float] = lambda: 0
    warm_replies: Callable[[], Mapping[str, int]] = dict
    """Replies to resumable runs, by whether their process was still there."""
    warm_drops: Callable[[], Mapping[str, int]] = dict
    """Warm processes that were ended, by reason."""
    prewarmed_processes: Callable[[], float] = lambda: 0
    prewarmed_starts: Callable[[], Mapping[str, int]] = dict
    """First turns on engines that are prewarmed, by whether a process was ready."""
    spans: Callable[[], Mapping[str, int]] = dict
    """Spans for the collector, by what became of them."""


class _LabelValues:
    def __init__(self, names: Sequence[str]) -> None:
        self._known: dict[str, set[str]] = {name: set() for name in names}

    def of(self, run: Run) -> Iterator[tuple[str, str]]:
        for name, known in self._known.items():
            value = run.labels.get(name)
            if value is None:
                continue
            if value not in known and len(known) >= MAX_LABEL_VALUES:
                value = OTHER
            known.add(value)
            yield name, value


class Metrics:
    def __init__(self, gauges: Gauges, run_labels: Sequence[str] = ()) -> None:
        self._labels = _LabelValues(run_labels)
        self.registry = CollectorRegistry()
        self.descriptions: list[Description] = []
        self._declare_runs()
        self._declare_delays()
        self._declare_server(gauges)
        self._declare_warm(gauges)

    # Declarations. A metric is one call here, and one in the code that observes it.

    def _declare_runs(self) -> None:
        self._changes = self._counter(
            "askback_run_changes", "Changes of runs that this server has seen, by their new state.", "state"
        )
        self._finished = self._counter(
            "askback_runs_finished",
            "Runs that this server has ended. `error` is the error code of a failed run.",
            "engine",
            "state",
            "error",
        )
        self._tokens = self._counter(
            "askback_tokens",
            "Tokens that engines reported, by kind: `input`, `output`, `cached`, `reasoning`.",
            "engine",
            "kind",
        )
        self._cost = self._counter("askback_cost_usd", "What turns cost in dollars, as engines reported it.", "engine")
        self._labelled_runs = self._counter(
            "askback_labelled_runs_finished",
            "Runs that this server has ended, by the labels that `telemetry.metric_labels` names.",
            "label",
            "value",
            "state",
        )
        self._labelled_tokens = self._counter(
            "askback_labelled_tokens",
            "Tokens that engines reported, by the same labels and by kind: `input`, `output`, `cached`.",
            "label",
            "value",
            "kind",
        )
        self._unfinished = self._gauge("askback_runs_unfinished", "Runs in the store that are not over.", "state")

    def _declare_delays(self) -> None:
        self._queue = self._histogram(
            "askback_queue_delay_seconds",
            "From when a turn was queued until a worker took it, by the kind of turn: `start`, `reply` or `repair`.",
            _DELAY,
            "engine",
            "turn",
        )
        self._reply_process = self._histogram(
            "askback_reply_to_process_seconds",
            "From a reply until the engine's new process was started. A reply to a resident or warm"
            " process needs none and does not count.",
            _DELAY,
            "engine",
        )
        self._reply_output = self._histogram(
            "askback_reply_to_output_seconds", "From a reply until the engine printed its first line.", _DELAY, "engine"
        )
        self._turn = self._histogram(
            "askback_turn_seconds",
            "How long turns took, by outcome: `final`, `ask_user`, `error`, `interrupted` or `canceled`.",
            _TURN,
            "engine",
            "outcome",
        )
        self._wait = self._histogram(
            "askback_wait_seconds",
            "How long runs waited for their user, by outcome: `answered`, `auto_decided`, `expired`, `canceled`"
            " or `abandoned`.",
            _WAIT,
            "engine",
            "outcome",
        )

    def _declare_server(self, gauges: Gauges) -> None:
        self.commit = self._histogram(
            "askback_store_commit_seconds", "Duration of the transactions that write to the database.", _QUICK
        )
        self.event_lag = self._histogram(
            "askback_event_lag_seconds",
            "From the commit of an event until it was written to a client that follows the run.",
            _QUICK,
        )
        self._gauge("askback_slots", "Engine processes that may run at the same time.").set(gauges.slots_total)
        self._gauge("askback_slots_taken", "Engine processes that are running.").set_function(gauges.slots_taken)
        self._gauge(
            "askback_workers",
            "Programs that start turns: as a server on PostgreSQL knows them; 1 for any other program that does.",
        ).set_function(gauges.workers)
        self._gauge("askback_event_streams", "Open event streams.").set_function(gauges.streams)
        self._gauge(
            "askback_event_loop_lag_seconds", "The longest delay of the server's event loop in the last seconds."
        ).set_function(gauges.loop_lag_sec)
        self._read_counter(
            "askback_telemetry_spans",
            "Spans for the OpenTelemetry collector: `sent`, `failed` to send, or `dropped` because the queue was full.",
            "outcome",
            gauges.spans,
        )
        self._gauge("askback_build_info", "Always 1; the version of Askback is a label.", "version").labels(
            __version__
        ).set(1)

    def _declare_warm(self, gauges: Gauges) -> None:
        self._gauge("askback_warm_processes", "Processes that are kept for waiting runs.").set_function(
            gauges.warm_processes
        )
        self._gauge(
            "askback_warm_memory_bytes", "Memory of warm and prewarmed processes, as last measured."
        ).set_function(gauges.warm_bytes)
        self._read_counter(
            "askback_warm_replies",
            "Replies to resumable runs with `warm_sec`, by the process that got them: a warm one (`hit`) or a new one"
            " (`miss`).",
            "result",
            gauges.warm_replies,
        )
        self._read_counter(
            "askback_warm_drops",
            "Warm and prewarmed processes that were ended, by reason: `expired`; `room` for another process; `memory` was"
            " short; the `run` was over or continued elsewhere; `lost`, the process ended by itself; `stop` of the server.",
            "reason",
            gauges.warm_drops,
        )
        self._gauge(
            "askback_prewarmed_processes", "Processes that are ready for runs that are not submitted yet."
        ).set_function(gauges.prewarmed_processes)
        self._read_counter(
            "askback_prewarmed_starts",
            "First turns of interactive runs on engines with `prewarm`, by their process: a prewarmed one (`hit`) or a"
            " new one (`miss`).",
            "result",
            gauges.prewarmed_starts,
        )

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        self._describe(f"{name}_total", "counter", labels, about)
        return Counter(name, about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        self._describe(name, "gauge", labels, about)
        return Gauge(name, about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
        self._describe(name, "histogram", labels, about)
        return Histogram(name, about, labels, registry=self.registry, buckets=buckets)

    def _read_counter(self, name: str, about: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Add a counter whose values another part of the server counts."""
        self._describe(f"{name}_total", "counter", (label,), about)
        self.registry.register(_Counted(name, about, label, read))

    def _describe(self, name: str, kind: str, labels: tuple[str, ...], about: str) -> None:
        self.descriptions.append(Description(name=name, kind=kind, labels=labels, about=about))

    def observe(self, seen: Observation) -> None:
        match seen:
            case StateChanged(run=run):
                self._changes.labels(run.state).inc()
            case ReplyReached(run=run, step=step, seconds=seconds):
                reached = self._reply_process if step is TurnStep.PROCESS_STARTED else self._reply_output
                reached.labels(run.engine).observe(seconds)
            case Episode():
                self._observe_episode(seen)
            case _:
                assert_never(seen)

    def _observe_episode(self, seen: Episode) -> None:
        engine = seen.run.engine
        match seen.kind:
            case EpisodeKind.RUN:
                self._finished.labels(engine, seen.outcome, seen.error or "").inc()
                for name, value in self._labels.of(seen.run):
                    self._labelled_runs.labels(name, value, seen.outcome).inc()
            case EpisodeKind.QUEUED:
                self._queue.labels(engine, seen.run.next_turn.kind).observe(seen.seconds)
            case EpisodeKind.TURN:
                self._observe_turn(seen)
            case EpisodeKind.WAITING:
                self._wait.labels(engine, seen.outcome).observe(seen.seconds)
            case _:
                assert_never(seen.kind)

    def _observe_turn(self, seen: Episode) -> None:
        if seen.exact:
            self._turn.labels(seen.run.engine, seen.outcome).observe(seen.seconds)
        if (usage := seen.usage) is not None:
            if usage.cost_usd is not None:
                self._cost.labels(seen.run.engine).inc(usage.cost_usd)
            counts = {"input": usage.input_tokens, "output": usage.output_tokens, "cached": usage.cached_tokens}
            for kind, count in ({**counts, "reasoning": usage.reasoning_tokens}).items():
                if count is None:
                    continue
                self._tokens.labels(seen.run.engine, kind).inc(count)
                for name, value in self._labels.of(seen.run):
                    self._labelled_tokens.labels(name, value, kind).inc(count)

    async def refresh(self, store: RunStore) -> None:
        """Read what is only in the store. Without the store, those series are left out."""
        today = datetime.now(UTC).date()
        try:
            unfinished = (await store.run_stats(today, today, latest=1)).unfinished
        except Unavailable:
            unfinished = {}
        self._unfinished.clear()
        for state, count in unfinished.items():
            self._unfinished.labels(state).set(count)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Counted(Collector):
    def __init__(self, name: str, about: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
        self._name = name
        self._about = about
        self._label = label
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._about, labels=[self._label])
        for value, count in self._read().items():
            family.add_metric([value], count)
        yield family
