"""Sends traces and metrics to an OpenTelemetry collector, by OTLP over HTTP, in a separate thread. Needs OpenTelemetry.

Nobody waits for the collector. What it does not take in time is dropped and counted. Only the given endpoint is contacted:
no proxy of the environment, no redirect.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

from askback import __version__
from askback.background.loops import start_thread
from askback.core.errors import Unavailable
from askback.telemetry.run_observer import Episode, Observation
from askback.telemetry.spans import Tracing

log = logging.getLogger(__name__)

MAX_WAITING = 4096
"""Episodes that wait to be sent."""
_BATCH = 512
_COLLECT_SEC = 1.0
"""How long episodes are collected before they are sent together."""
_CLOSE_SEC = 5.0
"""How long the end of the instance may be delayed to send what is left, if the collector works so far."""


class Exporter:
    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        self.counts = {"sent": 0, "failed": 0, "dropped": 0}
        """Spans, by what became of them."""
        self._endpoint = endpoint.rstrip("/")
        self._resource = _resource()
        self._tracing = Tracing(self._resource)
        self._spans = OTLPSpanExporter(f"{self._endpoint}/v1/traces", headers=dict(headers), session=_session())
        self._metrics = OTLPMetricExporter(f"{self._endpoint}/v1/metrics", headers=dict(headers), session=_session())
        self._began = time.time_ns()
        self._episodes: deque[Episode] = deque()
        self._unsent_metrics: Sequence[Family] = ()
        self._news = threading.Event()
        self._closing = threading.Event()
        self._done = threading.Event()
        """Nothing is left that is worth waiting for."""
        self._failing = False
        self._is_told = False
        self._thread: threading.Thread | None = None
        self._messages = _Messages(self._record_failure)
        self._reason = "unknown reason"

    def observe(self, seen: Observation) -> None:
        if not isinstance(seen, Episode):
            return
        if len(self._episodes) >= MAX_WAITING:
            self.counts["dropped"] += 1
            return
        self._episodes.append(seen)
        self._wake()

    def send_metrics(self, metrics: Sequence[Family]) -> None:
        """Send the metrics as soon as possible, instead of earlier ones that are not sent yet."""
        self._unsent_metrics = metrics
        self._wake()

    async def close(self) -> None:
        """Send what is left. Does not wait for a collector that fails or takes too long."""
        self._closing.set()
        self._news.set()
        if self._thread is not None and not self._failing:
            await asyncio.to_thread(self._done.wait, _CLOSE_SEC)
        # Ends a pause between two attempts.
        self._spans.shutdown()  # type: ignore[no-untyped-call]
        self._metrics.shutdown()
        self._messages.remove()

    def _wake(self) -> None:
        self._news.set()
        # Without a thread, it waits for the next call.
        with suppress(Unavailable):
            self._thread = self._thread or start_thread(self._run, name="askback-telemetry")

    def _run(self) -> None:
        while not self._closing.is_set():
            self._news.wait()
            self._news.clear()
            self._closing.wait(_COLLECT_SEC)
            self._send()
        self._send()
        self._done.set()

    def _send(self) -> None:
        try:
            self._send_all()
        except Exception:  # no error may end this thread
            log.exception("telemetry was dropped")

    def _send_all(self) -> None:
        while self._episodes and not (self._failing and self._closing.is_set()):
            self._send_spans([self._episodes.popleft() for _ in range(min(_BATCH, len(self._episodes)))])
        metrics, self._unsent_metrics = self._unsent_metrics, ()
        if metrics and not (self._failing and self._closing.is_set()):
            data = metrics_data(metrics, self._resource, began=self._began, now=time.time_ns())
            self._attempt(lambda: self._metrics.export(data) is otel.MetricExportResult.SUCCESS)

    def _send_spans(self, episodes: list[Episode]) -> None:
        spans = self._tracing.spans(episodes)
        if spans:
            sent = self._attempt(lambda: self._spans.export(spans) is SpanExportResult.SUCCESS)
            self.counts["sent" if sent else "failed"] += len(spans)

    def _attempt(self, export: Callable[[], bool]) -> bool:
        """Export, and log when the collector starts to fail, and when it works again."""
        try:
            sent = export()
        except Exception as error:
            self._reason, sent = f"{type(error).__name__}: {error}", False
        if not sent and not self._is_told:
            log.warning("telemetry cannot be sent to %s; runs are not affected: %s", self._endpoint, self._reason)
        if sent and self._is_told:
            log.info("telemetry is sent to %s again", self._endpoint)
        self._failing = self._is_told = not sent
        return sent

    def _record_failure(self, reason: str) -> None:
        """An attempt failed; the exporter may try again. The first message has the cause, later ones are about retries."""
        if not self._failing:
            self._reason = reason
        self._failing = True
        if self._closing.is_set():
            self._done.set()


def _resource() -> Resource:
    """This service. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES can name it otherwise."""
    resource = Resource.create({"service.version": __version__})
    is_named = not str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service")
    return resource if is_named else resource.merge(Resource({"service.name": "askback"}))


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    return session


class _Messages(logging.Handler):
    """Takes what the exporters log about failed attempts, which is too much for the log of a server."""

    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__()
        self._take = take
        self._exporters = logging.getLogger("opentelemetry.exporter")
        # Stays when this one is removed: without any handler, messages go to standard error.
        self._exporters.addHandler(logging.NullHandler())
        self._exporters.addHandler(self)
        self._exporters.propagate = False

    def remove(self) -> None:
        self._exporters.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._take(record.getMessage())


_UNKNOWN: Any = None
"""The least and the greatest value, which Prometheus does not keep."""


def metrics_data(families: Iterable[Family], resource: Resource, *, began: int, now: int) -> otel.MetricsData:
    """Everything in the registry. `began` and `now` are in nanoseconds: all values count from `began`."""
    metrics = [_metric(family, began, now) for family in families if family.samples]
    scope = otel.ScopeMetrics(scope=InstrumentationScope("askback"), metrics=metrics, schema_url="")
    return otel.MetricsData(
        resource_metrics=[
            otel.ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url=resource.schema_url)
        ]
    )


def _metric(family: Family, began: int, now: int) -> otel.Metric:
    data: otel.Sum | otel.Gauge | otel.Histogram
    match family.type:
        case "histogram":
            points = [_histogram_point(samples, began, now) for samples in _by_labels(family.samples)]
            data = otel.Histogram(points, otel.AggregationTemporality.CUMULATIVE)
        case "counter":
            data = otel.Sum(
                _number_points(family, began, now), otel.AggregationTemporality.CUMULATIVE, is_monotonic=True
            )
        case _:
            data = otel.Gauge(_number_points(family, began, now))
    unit = "s" if family.name.endswith("_seconds") else "1"
    return otel.Metric(name=family.name, description=family.documentation, unit=unit, data=data)


def _number_points(family: Family, began: int, now: int) -> list[otel.NumberDataPoint]:
    return [otel.NumberDataPoint(dict(sample.labels), began, now, sample.value) for sample in family.samples]


def _by_labels(samples: Iterable[Sample]) -> Iterable[Sequence[Sample]]:
    groups: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        groups.setdefault(_labels(sample), []).append(sample)
    return groups.values()


def _labels(sample: Sample) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in sample.labels.items() if name != "le")


def _histogram_point(samples: Sequence[Sample], began: int, now: int) -> otel.HistogramDataPoint:
    """Prometheus counts a value in every bucket that is wide enough, OpenTelemetry in one."""
    buckets = sorted((float(each.labels["le"]), each.value) for each in samples if each.name.endswith("_bucket"))
    counts = [int(value) for _, value in buckets]
    total = next(each.value for each in samples if each.name.endswith("_sum"))
    return otel.HistogramDataPoint(
        attributes=dict(_labels(samples[0])),
        start_time_unix_nano=began,
        time_unix_nano=now,
        count=counts[-1],
        sum=total,
        bucket_counts=[count - below for count, below in zip(counts, [0, *counts], strict=False)],
        explicit_bounds=[bound for bound, _ in buckets if not math.isinf(bound)],
        min=_UNKNOWN,
        max=_UNKNOWN,
    )
