"""An OpenTelemetry collector on this machine: decodes what comes, and keeps it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from support.receiver import Came, Receiver, receiving


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty if it starts its trace."""
    began: int
    ended: int
    attributes: dict[str, Any]
    events: tuple[str, ...]
    failed: str
    """What its status says, if it is an error."""

    @property
    def run_id(self) -> str:
        return str(self.attributes["askback.run.id"])


@dataclass(slots=True, kw_only=True)
class Collector:
    receiver: Receiver = field(default_factory=Receiver)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.receiver.port}"

    @property
    def settings(self) -> dict[str, str]:
        """For the environment of a program that sends its telemetry here."""
        return {"ASKBACK_TELEMETRY__OTLP_ENDPOINT": self.endpoint, "ASKBACK_TELEMETRY__METRICS_SEC": "1"}

    def spans(self, run_id: str | None = None) -> Sequence[Span]:
        """What came so far, of one run or of all."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self._bodies("/v1/traces")]
        found = [_span(each) for request in requests for part in request.resource_spans for each in _spans_of(part)]
        return [span for span in found if run_id in (None, span.run_id)]

    def metrics(self) -> dict[str, Metric]:
        """The metrics that came last, by name."""
        requests = [ExportMetricsServiceRequest.FromString(body) for body in self._bodies("/v1/metrics")]
        if not requests:
            return {}
        scopes = (scope for part in requests[-1].resource_metrics for scope in part.scope_metrics)
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def everything(self) -> bytes:
        """All that came, as text."""
        spans = (str(ExportTraceServiceRequest.FromString(body)) for body in self._bodies("/v1/traces"))
        metrics = (str(ExportMetricsServiceRequest.FromString(body)) for body in self._bodies("/v1/metrics"))
        return "\n".join((*spans, *metrics)).encode()

    def _bodies(self, path: str) -> Iterator[bytes]:
        return (_body(each) for each in tuple(self.receiver.came) if each.path == path)


@contextmanager
def collecting(receiver: Receiver | None = None, *, hold: bool = False) -> Iterator[Collector]:
    with receiving(receiver or Receiver(), hold=hold) as opened:
        yield Collector(receiver=opened)


def _body(came: Came) -> bytes:
    return gzip.decompress(came.body) if came.headers.get("content-encoding") == "gzip" else came.body


def _spans_of(part: Any) -> Iterator[Any]:
    return (span for scope in part.scope_spans for span in scope.spans)


def _span(span: Any) -> Span:
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        attributes={each.key: _value(each.value) for each in span.attributes},
        events=tuple(event.name for event in span.events),
        failed=span.status.message,
    )


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
