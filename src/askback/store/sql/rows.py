"""Runs, interactions, requests and events as rows: JSON documents, the columns for queries, and the text to search.

A lone surrogate becomes U+FFFD; a number that JSON cannot express is refused. Fields of a document that only newer versions
know stay as they are when it is changed, except those of nested objects, which are written as this version knows them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

import msgspec

from askback.core.errors import Invalid, RefusalCode
from askback.core.events import Event, EventType, NewEvent
from askback.core.interactions import Interaction, Json
from askback.core.runs import Run, RunRequest
from askback.store.pages import EventPage, LabelSet
from askback.text.formatting import folded, has_all, words_in
from askback.text.json_text import clean

Columns = dict[str, Any]
T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EVENT_OVERHEAD_BYTES = 100
_STRICT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# Created at import, by one thread: msgspec crashes the process if two threads use a class for the first time at once.
_LITERAL = str.maketrans({sign: f"\\{sign}" for sign in "\\%_"})
"""Signs that mean something in a pattern of LIKE."""
_JSON = msgspec.json.Decoder()
_RUN = msgspec.json.Decoder(Run)
_NO_NEWER_FIELDS = ',"newer":null}'
_INTERACTION = msgspec.json.Decoder(Interaction)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


# Plain values.


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def span(time: timedelta) -> int:
    return time // _MICROSECOND


def moment(at: int) -> datetime:
    return _EPOCH + at * _MICROSECOND


def moment_or_none(at: int | None) -> datetime | None:
    return None if at is None else moment(at)


def values(**given: Any) -> Columns:
    """Parameters of a statement: times in microseconds, collections of texts as JSON, and texts that can be stored."""
    return {name: _value(value) for name, value in given.items()}


def _value(value: Any) -> Any:
    match value:
        case datetime():
            return micros(value)
        case timedelta():
            return span(value)
        case str():
            return clean(value)
        case list() | tuple() | set() | frozenset():
            return json.dumps(sorted({clean(text) for text in value}))
        case _:
            return value


def label_values(labels: LabelSet) -> dict[str, str | None]:
    """The labels as parameters. If the statement is driven by a label, then by the first one."""
    if not labels:
        return {"labels": None}
    pairs = sorted((clean(name), clean(value)) for name, value in labels)
    name, value = pairs[0]
    return {"label_name": name, "label_value": value, "labels": json.dumps(pairs)}


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


# Fields that only newer versions know.


@cache
def known_fields(kind: type[Any]) -> frozenset[str]:
    """The names of the fields of a dataclass or a struct."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.DataclassType | msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in info.fields)


_RUN_FIELDS = known_fields(Run)


def newer_fields(doc: str, known: Set[str]) -> dict[str, str]:
    """The other fields of a document: JSON by name."""
    try:
        found = _FIELDS.decode(doc)
    except msgspec.MsgspecError:
        # It has no fields, or it is damaged: who decodes it says so.
        return {}
    if found.keys() <= known:
        return {}
    return {name: bytes(raw).decode() for name, raw in found.items() if name not in known}


def with_fields(doc: str, newer: Mapping[str, str]) -> str:
    """The document with these fields added, which it does not have."""
    added = ",".join(f"{msgspec.json.encode(name).decode()}:{value}" for name, value in newer.items())
    return f"{doc[:-1]}{',' if len(doc) > 2 else ''}{added}}}" if added else doc


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
    deadline = None if run.cancel_requested else run.wait_deadline_at or run.not_before
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
    times = values(asked_at=interaction.asked_at, answered_at=interaction.answered_at)
    interaction_id, outcome = clean(interaction.interaction_id), interaction.outcome
    return {"interaction_id": interaction_id, "outcome": outcome, **times, "doc": dump(interaction)}


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


# The search for words in pending questions.


def words_of(text: str) -> str | None:
    """The words of a search as a statement expects them; None if there are none."""
    # PostgreSQL has no texts with U+0000, and none that are not valid.
    words = words_in(clean(text.replace("\0", " ")))
    return json.dumps(words) if words else None


def word_values(text: str) -> Columns:
    """The words of a search, and the longest of them as patterns."""
    words = words_of(text)
    longest = sorted(json.loads(words or "[]"), key=len, reverse=True)
    patterns = [f"%{word.translate(_LITERAL)}%" for word in longest] + 3 * ["%"]
    return {"words": words, "longest": patterns[0], "second": patterns[1], "third": patterns[2]}


def searched_text(run: Run) -> str | None:
    """What a search looks at: the skill, the summary, the prompts and the context of a pending question."""
    asked = run.pending_interaction
    if asked is None:
        return None
    prompts = (asked.prompt, *(field.prompt for field in asked.questions or ()))
    return folded((run.skill.id, run.summary, *prompts, *_texts(asked.context)))


def mentions(*values: Any) -> bool:
    """Whether the question of a run contains all words. The run and the words are JSON."""
    doc, words = values
    run = json.loads(doc)
    asked = run.get("pending_interaction") or {}
    prompts = (asked.get("prompt"), *(field["prompt"] for field in asked.get("questions") or ()))
    whole = folded((run["skill"]["id"], run.get("summary"), *prompts, *_texts(asked.get("context"))))
    return has_all(whole, json.loads(words))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif value is not None:
        yield str(value)
