"""docs/reference/metrics.md: every metric of a server, read from the registry that `/metrics` shows."""

from __future__ import annotations

from askback.telemetry.metrics import Gauges, Metrics
from pages.markdown import code, table

INTRODUCTION = """# Metrics

What `GET /metrics` shows in the Prometheus text format, and what an OpenTelemetry collector gets, from the same registry.
[Watch it in production](../guides/watch-in-production.md) says how to use them.

A server measures what it does itself: counters and histograms start at zero with it. Labels have few values. `engine` is the
name of an engine, `state` a [state of a run](lifecycle.md), `error` an [error code](errors.md) or empty. A histogram
consists of the series `NAME_bucket`, `NAME_sum` and `NAME_count`. An OpenTelemetry collector gets counters without the
suffix `_total`.

"""


def page() -> str:
    rows = [
        [code(each.name), each.kind, " ".join(code(label) for label in each.labels), each.about]
        for each in sorted(Metrics(Gauges()).descriptions, key=lambda each: each.name)
    ]
    return INTRODUCTION + table(["metric", "type", "labels", "meaning"], rows)
