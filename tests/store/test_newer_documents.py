"""Documents that a newer version has stored: this version reads them, and keeps what it does not know."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lives import new_run
from msgspec import inspect

import askback
from askback.access.push_subscriptions import Subscription
from askback.access.sessions import Invitation, Session
from askback.access.tokens import Token, TokenUse
from askback.cluster.fleet import Offer
from askback.core import access, interactions, permissions, runs
from askback.core.errors import ErrorCode, RunError, RunWarning, WarningCode
from askback.core.events import EventType
from askback.core.instances import InstanceFacts, InstanceKind
from askback.core.interactions import Interaction
from askback.core.runs import Run
from askback.core.values import OpenValue
from askback.notifications.digests import DigestRecord
from askback.runs.links import StoredLink
from askback.skills.shelf import SkillRecord
from askback.store.sql import rows
from askback.workspace.run_objects import _Input
from askback.workspace.turn_artifacts import _List
from askback.workspace.uploads import _About
from support.postgres import databases

RECORDS: tuple[type[Any], ...] = (
    Token,
    Session,
    Invitation,
    TokenUse,
    Subscription,
    SkillRecord,
    DigestRecord,
    StoredLink,
)
DOCUMENTS: tuple[type[Any], ...] = (Run, Interaction, InstanceFacts, Offer, _About, _Input, _List, *RECORDS)
CLOSED: set[type[Enum]] = {
    runs.RunState,
    runs.Mode,
    runs.ProfileKind,
    runs.ProfileChoice,
    runs.Validation,
    runs.OnLostSession,
    runs.OnLimit,
    runs.TurnKind,
    runs.InheritedFiles,
    interactions.InteractionOutcome,
    interactions.AnsweredBy,
    access.AccessScope,
    permissions.PolicySource,
    permissions.Ruling,
}
"""A program that does not know the value cannot do what it means: a new one needs a step that names the oldest format."""
LATER = {"plain": 1, "nested": {"list": [1, {"a": None}], "text": '"quoted" \u00fc \U0001f600'}, "no": None}


def inner_types(kind: inspect.Type) -> Iterator[inspect.Type]:
    yield kind
    for part in ("item_type", "key_type", "value_type"):
        if (inner := getattr(kind, part, None)) is not None:
            yield from inner_types(inner)
    for inner in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
        yield from inner_types(inner)
    for each in getattr(kind, "fields", ()):
        yield from inner_types(each.type)


@pytest.mark.contract("M-10")
@pytest.mark.parametrize("kind", DOCUMENTS, ids=lambda kind: kind.__name__)
def test_a_stored_document_takes_unknown_fields_and_its_values_are_open_or_listed(kind: type[Any]) -> None:
    for each in inner_types(inspect.type_info(kind)):
        assert not getattr(each, "forbid_unknown_fields", False), each
        if isinstance(each, inspect.EnumType):
            assert issubclass(each.cls, OpenValue) or each.cls in CLOSED, f"decide for {each.cls.__name__}"


def test_every_collection_of_records_is_among_the_documents() -> None:
    source = Path(askback.__file__).parent
    made = re.compile(r'\b(?:(?:collection|of_run)\(.*|collection, record = )"[a-z-]+", (\w+)\b')
    named = {name for path in source.rglob("*.py") for name in made.findall(path.read_text())}
    assert named == {kind.__name__ for kind in RECORDS}


def with_later(doc: str) -> str:
    return json.dumps({**json.loads(doc), "later": LATER})


@pytest.mark.contract("M-10")
def test_a_change_of_a_run_keeps_the_fields_of_a_newer_version() -> None:
    run = new_run()
    _, doc = rows.stored(run)
    assert "newer" not in json.loads(doc)
    assert list(Run.__dataclass_fields__)[-1] == "newer", "the document is written without it"
    read = rows.load_run(with_later(doc))
    changed, written = rows.stored(read.evolve(epoch=7, summary="broken \ud800"))
    assert json.loads(written)["later"] == LATER
    assert changed == rows.load_run(written)
    assert changed.epoch == 7
    assert rows.load_run(doc) == run


@pytest.mark.contract("M-10")
def test_codes_and_types_of_a_newer_version_are_read_and_written_as_they_are() -> None:
    error = RunError(code=ErrorCode("LATER_ERROR"), message="m", cause=ErrorCode("LATER_CAUSE"))
    warning = RunWarning(code=WarningCode("LATER_WARNING"), message="m")
    _, doc = rows.stored(new_run().evolve(error=error, warnings=(warning,)))
    read = rows.load_run(doc)
    assert (read.error, read.warnings) == (error, (warning,))
    assert json.loads(rows.stored(read)[1]) == json.loads(doc)
    [event] = rows.event_page("r", [(1, "turn.paused", 0, "{}")], more=False)
    assert (event.type, event.type.known, EventType.USAGE.known) == ("turn.paused", False, True)
    with pytest.raises(msgspec.ValidationError):
        rows.load_run(doc.replace('"queued"', '"paused"', 1))


@pytest.mark.contract("M-10")
def test_a_change_of_a_record_keeps_the_fields_of_a_newer_version(address: str) -> None:
    from askback.store.postgres import open_records

    tokens = open_records(address).collection("tokens", Token)
    made = Token(name="a", digest="d", scopes=(access.AccessScope.READ,), created_at=datetime.now(UTC))
    with tokens.changing() as records:
        records["d"] = made
    name = address.partition("@/")[2].partition("?")[0]
    [(doc,)] = databases.server.execute("SELECT doc FROM askback.records WHERE collection = 'tokens'", name)
    newer = with_later(doc).replace("'", "''")
    databases.server.execute(f"UPDATE askback.records SET doc = '{newer}' WHERE collection = 'tokens'", name)
    with tokens.changing() as records:
        assert records["d"] == made
        records["d"] = replace(made, name="b")
    [(doc,)] = databases.server.execute("SELECT doc FROM askback.records WHERE collection = 'tokens'", name)
    assert json.loads(doc)["later"] == LATER
    assert json.loads(doc)["name"] == "b"


@pytest.mark.contract("M-10")
def test_a_program_of_an_unknown_kind_is_read(address: str) -> None:
    from askback.store.postgres import living_instances

    facts = InstanceFacts(kind=InstanceKind("scheduler"), host="h", pid=1, boot_id="b", version="9")
    doc = with_later(rows.dump(facts)).replace("'", "''")
    name = address.partition("@/")[2].partition("?")[0]
    databases.server.execute(
        "INSERT INTO askback.programs (name, kind, host, pid, boot_id, version, lease_until, doc)"
        f" VALUES ('p', 'scheduler', 'h', 1, 'b', '9', now() + interval '1 hour', '{doc}')",
        name,
    )
    [program] = living_instances(address)
    assert program.facts == facts
