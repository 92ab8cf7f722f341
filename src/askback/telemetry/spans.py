"""Episodes of runs as spans: one trace for each run, with a span for the run and one for each part of it.

Needs OpenTelemetry. Attributes are chosen one by one, so that no text of a user or a model is among them: names, numbers
and codes only. Names follow the semantic conventions for generative AI where these have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from askback.core.trace_context import TraceParent, read_trace_parent, span_id, trace_id
from askback.telemetry.run_observer import Episode, EpisodeKind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TEXT = 200

Attributes = dict[str, str | int]


class Tracing:
    """Used by one thread at a time."""

    def __init__(self, resource: Resource) -> None:
        self._ids = _GivenIds()
        self._ended: list[ReadableSpan] = []
        # A caller that does not record its trace is respected in `spans`; everything else is recorded.
        provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(_Collecting(self._ended))
        self._tracer = provider.get_tracer("askback")

    def spans(self, episodes: Iterable[Episode]) -> Sequence[ReadableSpan]:
        """The spans of these episodes, without those of traces that the caller does not record."""
        for episode in episodes:
            caller = read_trace_parent(episode.run.trace_parent)
            if caller is None or caller.sampled:
                self._record(episode, caller)
        made = tuple(self._ended)
        self._ended.clear()
        return made

    def _record(self, episode: Episode, caller: TraceParent | None) -> None:
        run = episode.run
        trace, root = trace_id(run.id, caller), span_id(run.id)
        if episode.kind is EpisodeKind.RUN:
            own, parent = root, None if caller is None else caller.span_id
        else:
            # The version is that of the change that ended this part, so no other part of the run has it.
            own, parent = span_id(run.id, f"{episode.kind} {run.version}"), root
        self._ids.set(trace, own)
        began = _nanoseconds(episode.began)
        span = self._tracer.start_span(
            _name(episode), context=_context(trace, parent), attributes=_attributes(episode), start_time=began
        )
        for mark in episode.marks:
            span.add_event(mark.step, timestamp=_nanoseconds(mark.at))
        if episode.error is not None:
            # Only the code: a message may quote what the engine printed.
            span.set_status(Status(StatusCode.ERROR, episode.error))
        span.end(max(began, _nanoseconds(episode.ended)))


def _context(trace: str, parent: str | None) -> Context:
    """The parent's context; empty for a span that starts its trace."""
    if parent is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED)
    parent_context = SpanContext(int(trace, 16), int(parent, 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(parent_context), Context())


def _name(episode: Episode) -> str:
    names = {
        EpisodeKind.RUN: "askback run",
        EpisodeKind.QUEUED: "queued",
        EpisodeKind.TURN: f"invoke_agent {episode.run.engine}",
        EpisodeKind.WAITING: "waiting for user",
    }
    return names[episode.kind]


def _attributes(episode: Episode) -> Attributes:
    run = episode.run
    attributes: Attributes = {
        "askback.run.id": run.id,
        "askback.skill": run.skill.id[:_MAX_TEXT],
        "askback.engine": run.engine,
        "askback.outcome": episode.outcome,
    }
    if episode.error is not None:
        attributes["error.type"] = episode.error
    match episode.kind:
        case EpisodeKind.RUN:
            attributes |= {"askback.mode": run.mode, "askback.profile": run.profile.kind}
            attributes |= {"askback.turns": run.attempt_number}
        case EpisodeKind.TURN:
            attributes |= _turn_attributes(episode)
        case EpisodeKind.QUEUED:
            attributes |= {"askback.turn.kind": run.next_turn.kind, "askback.attempt": run.next_turn.attempt_number}
        case EpisodeKind.WAITING:
            attributes["askback.attempt"] = run.attempt_number
    return attributes


def _turn_attributes(episode: Episode) -> Attributes:
    run, usage = episode.run, episode.usage
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": run.engine,
        "gen_ai.conversation.id": run.id,
        "askback.turn.kind": run.next_turn.kind,
        "askback.attempt": run.attempt_number,
        "askback.restarts": run.restarts,
    }
    if run.options.model is not None:
        attributes["gen_ai.request.model"] = run.options.model[:_MAX_TEXT]
    if usage is not None:
        attributes |= {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
    return attributes


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


class _GivenIds(IdGenerator):
    """Gives the next span the ids that follow from its run."""

    def __init__(self) -> None:
        self._trace = self._span = 0

    def set(self, trace: str, span: str) -> None:
        self._trace, self._span = int(trace, 16), int(span, 16)

    def generate_trace_id(self) -> int:
        return self._trace

    def generate_span_id(self) -> int:
        return self._span


class _Collecting(SpanProcessor):
    def __init__(self, ended: list[ReadableSpan]) -> None:
        self._ended = ended

    def on_end(self, span: ReadableSpan) -> None:
        self._ended.append(span)
