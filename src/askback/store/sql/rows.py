"""Runs, interactions, requests and events as rows: JSON documents and the columns for queries.

A lone surrogate becomes U+FFFD; a number that JSON cannot express is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from askback.core.errors import Invalid, RefusalCode
from askback.core.events import Event, EventType, NewEvent
from askback.core.interactions import Interaction, Json
from askback.core.runs import Run, RunRequest
from askback.store.base import EventPage
from askback.store.sql.newer_fields import known_fields, newer_fields, with_fields
from askback.store.sql.search import searched_text
from askback.text.json_text import clean

Columns = dict[str, Any]
T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EVENT_OVERHEAD_BYTES = 100
_STRICT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# Created at import, by one thread: msgspec crashes the process if two threads use a class for the first time at once.
_JSON = msgspec.json.Decoder()
_RUN = msgspec.json.Decoder(Run)
_RUN_FIELDS = known_fields(Run)
_NO_NEWER_FIELDS = ',"newer":null}'
_INTERACTION = msgspec.json.Decoder(Interaction)


# Plain values.


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def span(time: timedelta) -> int:
    return time // _MICROSECOND


def moment(at: int) -> datetime:
    return _EPOCH + at * _MICROSECOND


def dump(value: Json) -> str:
    try:
        text = msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, ValueError, RecursionError, msgspec.MsgspecError):
        return _dump_with_care(value)
    # msgspec writes NaN as null: if the text has no null, there was no NaN.
    return text if "null" not in text or _is_finite(value) else _dump_with_care(value)


def _is_finite(value: Json) -> bool:
    """Whether plain JSON has no number that JSON cannot express. False for other objects: nobody looked into them."""
    if value is None or isinstance(value, str | int):
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return isinstance(value, list | tuple) and all(map(_is_finite, value))


def _dump_with_care(value: Json) -> str:
    try:
        return clean(_STRICT.encode(msgspec.to_builtins(value, str_keys=True)))
    except (ValueError, RecursionError) as error:
        raise Invalid(
            RefusalCode.INPUT_INVALID,
            f"this value cannot be stored as JSON ({error}); send finite numbers and less deeply nested values",
        ) from error


def load(text: str) -> Json:
    return _load(_JSON, text)


def _load(decoder: msgspec.json.Decoder[T], text: str) -> T:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        # msgspec cannot read the longest negative number that it writes.
        return msgspec.convert(json.loads(text), decoder.type)


# Runs.


def stored(run: Run) -> tuple[Run, str]:
    """The run as it will be read back, and its document."""
    own = run if run.newer is None else run.evolve(newer=None)
    try:
        doc = _without_newer(msgspec.json.encode(own).decode())
    except (UnicodeEncodeError, ValueError, RecursionError):
        doc = with_fields(_without_newer(_dump_with_care(own)), run.newer or {})
        return load_run(doc), doc
    return run, with_fields(doc, run.newer or {})


def _without_newer(doc: str) -> str:
    return doc.removesuffix(_NO_NEWER_FIELDS) + "}"


def load_run(doc: str) -> Run:
    run = _load(_RUN, doc)
    newer = newer_fields(doc, _RUN_FIELDS)
    return run.evolve(newer=newer) if newer else run


def run_columns(run: Run, doc: str, added: int) -> Columns:
    """`added` is the number of events that are stored with this version of the run."""
    pending = run.pending_interaction
    # The deadline does not matter for a run that is being canceled.
    deadline = None if run.cancel_requested else run.wait_deadline_at
    return {
        "id": run.id,
        "version": run.version,
        "epoch": run.epoch,
        "state": run.state,
        "ended": run.state if run.state.final else None,
        "skill": run.skill.id,
        "engine": run.engine,
        "owner": run.owner,
        "creator": run.created_by,
        "worker": run.worker,
        "created_at": micros(run.created_at),
        "asked_at": None if pending is None else micros(pending.asked_at),
        "deadline_at": None if deadline is None else micros(deadline),
        "expiring": run.expiring,
        "added": added,
        "workdir": None if run.workdir is None else run.workdir.path,
        "searched": searched_text(run),
        "doc": doc,
    }


# What belongs to a run.


def interaction_columns(interaction: Interaction) -> Columns:
    answered_at = interaction.answered_at
    return {
        "interaction_id": clean(interaction.interaction_id),
        "outcome": interaction.outcome,
        "asked_at": micros(interaction.asked_at),
        "answered_at": None if answered_at is None else micros(answered_at),
        "doc": dump(interaction),
    }


def load_interaction(doc: str) -> Interaction:
    return _load(_INTERACTION, doc)


def load_request(input_: str, parameter: str, env: str | None) -> RunRequest:
    return RunRequest(input=load(input_), parameter=load(parameter), env=env)


def event_rows(events: Sequence[NewEvent]) -> tuple[tuple[str, int, str], ...]:
    return tuple((event.type, micros(event.at), dump(dict(event.data))) for event in events)


def event_page(
    run_id: str, found: Iterable[tuple[int, str, int, str]], *, more: bool, committed_at: float | None = None
) -> EventPage:
    events, size = [], 0
    for seq, type_, at, data in found:
        events.append(Event(seq=seq, run_id=run_id, type=EventType(type_), at=moment(at), data=load(data)))
        size += len(data) + _EVENT_OVERHEAD_BYTES
    return EventPage.of(events, more=more, size=size, committed_at=committed_at)
