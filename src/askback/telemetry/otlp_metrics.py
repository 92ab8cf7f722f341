"""The metrics of a Prometheus registry as OpenTelemetry data: the same names, labels and numbers. Needs OpenTelemetry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

_UNKNOWN: Any = None
"""The least and the greatest value, which Prometheus does not keep."""


def metrics_data(families: Iterable[Family], resource: Resource, *, began: int, now: int) -> MetricsData:
    """Everything in the registry. `began` and `now` are in nanoseconds: all values count from `began`."""
    metrics = [_metric(family, began, now) for family in families if family.samples]
    scope = ScopeMetrics(scope=InstrumentationScope("askback"), metrics=metrics, schema_url="")
    return MetricsData(
        resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url=resource.schema_url)]
    )


def _metric(family: Family, began: int, now: int) -> Metric:
    data: Sum | Gauge | Histogram
    match family.type:
        case "histogram":
            points = [_histogram_point(samples, began, now) for samples in _by_labels(family.samples)]
            data = Histogram(points, AggregationTemporality.CUMULATIVE)
        case "counter":
            data = Sum(_number_points(family, began, now), AggregationTemporality.CUMULATIVE, is_monotonic=True)
        case _:
            data = Gauge(_number_points(family, began, now))
    unit = "s" if family.name.endswith("_seconds") else "1"
    return Metric(name=family.name, description=family.documentation, unit=unit, data=data)


def _number_points(family: Family, began: int, now: int) -> list[NumberDataPoint]:
    return [NumberDataPoint(dict(sample.labels), began, now, sample.value) for sample in family.samples]


def _by_labels(samples: Iterable[Sample]) -> Iterable[Sequence[Sample]]:
    """The samples of each histogram."""
    groups: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        groups.setdefault(_labels(sample), []).append(sample)
    return groups.values()


def _labels(sample: Sample) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in sample.labels.items() if name != "le")


def _histogram_point(samples: Sequence[Sample], began: int, now: int) -> HistogramDataPoint:
    """Prometheus counts a value in every bucket that is wide enough, OpenTelemetry in one."""
    buckets = sorted((float(each.labels["le"]), each.value) for each in samples if each.name.endswith("_bucket"))
    counts = [int(value) for _, value in buckets]
    total = next(each.value for each in samples if each.name.endswith("_sum"))
    return HistogramDataPoint(
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
