"""The rows of an SQLite file that somebody else may have prepared: each is decoded by our types before it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from askback.core.errors import RefusalCode, Unavailable
from askback.core.events import EventType
from askback.core.interactions import InteractionOutcome
from askback.core.runs import RunState, require_run_id
from askback.core.webhooks import DeliveryReason, WebhookKind
from askback.store.sql import rows
from askback.store.sqlite.moving import known_columns

Row = Mapping[str, Any]

TABLES = (
    "runs",
    "requests",
    "results",
    "interactions",
    "events",
    "idempotency_keys",
    "run_labels",
    "webhooks",
    "deliveries",
    "daily_runs",
    "chat_messages",
    "audit",
    "file_store",
)
"""In the order of their references."""
MAX_NUMBER = 2**62
"""Above all that a server can have counted. Further rows need numbers above those that are imported."""


def check(table: str, row: Row) -> None:
    """Raises `Unavailable` for a row that no version of Askback has written."""
    try:
        for name, kinds in known_columns(table).items():
            _check_value(name, row[name], kinds)
        _check_documents(table, row)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise refused(table, error) from error


def without_trust(doc: str) -> str:
    """The document of a run, whose workdir only the settings can allow: the file may be from somebody else."""
    run = rows.load_run(doc)
    if run.workdir is None or not run.workdir.by_user:
        return doc
    return rows.stored(run.evolve(workdir=replace(run.workdir, by_user=False)))[1]


def refused(table: str, error: Exception) -> Unavailable:
    reason = " ".join(str(error).split())[:300]
    message = (
        f"a row of `{table}` in the SQLite file cannot be imported: {reason}. Nothing was imported; repair the file, or"
        " restore a backup of the folder"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def _check_value(name: str, value: object, kinds: tuple[type, ...]) -> None:
    if type(value) not in kinds:
        raise TypeError(f"{name} has a value of the type {type(value).__name__}")
    if isinstance(value, str) and "\0" in value:
        raise ValueError(f"{name} contains U+0000")
    if isinstance(value, int) and name in ("number", "run", "webhook") and not 0 <= value < MAX_NUMBER:
        raise ValueError(f"{name} is {value}")
    if isinstance(value, int) and (name == "at" or name.endswith("_at")):
        rows.moment(value)


def _check_documents(table: str, row: Row) -> None:
    match table:
        case "runs":
            run = rows.load_run(row["doc"])
            require_run_id(row["id"])
            if (run.id, run.state) != (row["id"], row["state"]):
                raise ValueError(f"the document of run {row['id']} is that of another run or state")
            if run.kept is not None and not run.kept.startswith(f"runs/{run.id}/"):
                raise ValueError(f"run {run.id} names the files of another run")
        case "requests":
            request = rows.load_request(row["input"], row["parameter"], row["env"])
            _check_objects(request.input, request.parameter)
        case "results":
            rows.load(row["data"])
        case "interactions":
            if rows.load_interaction(row["doc"]).interaction_id != row["interaction_id"]:
                raise ValueError("the document of an interaction is that of another one")
            InteractionOutcome(row["outcome"])
        case "events":
            EventType(row["type"])
            _check_objects(rows.load(row["data"]))
        case "webhooks":
            WebhookKind(row["kind"])
            _check_states((row["states"] or "").split(","))
            _check_objects(rows.load(row["labels"] or "{}"))
            msgspec.json.decode(row["remind_after"] or "[]", type=list[int])
        case "deliveries":
            DeliveryReason(row["reason"])
            _check_states([row["old"], row["new"]])
            if row["doc"] is not None:
                rows.load_run(row["doc"])
        case "daily_runs":
            RunState(row["state"])


def _check_states(states: Iterable[str | None]) -> None:
    for state in filter(None, states):
        RunState(state)


def _check_objects(*values: object) -> None:
    if not all(isinstance(value, dict) for value in values):
        raise TypeError("a document is no JSON object")
