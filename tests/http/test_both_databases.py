"""One server on SQLite and one on PostgreSQL get the same requests, and give the same answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import postgres
from support.api import calling, over, reach, start, waiting
from support.data_folder import World
from support.postgres import databases
from support.server import Server

RUN = {"skill": "asking", "engine": "scripted", "mode": "interactive"}
OTHERS = re.compile(
    r"\d{4}-\d\d-\d\dT[0-9:.]+Z?|\d{4}-\d\d-\d\d|program-[0-9a-f]{12}|ses-[0-9a-f-]{36}|http://[^\"]*|[0-9a-f]{32,64}"
)
"""Times, names of programs, sessions, addresses with secrets, and digests: they are never the same twice."""
MEASURED = {"next_cursor", "token", "link_id", "upload_id", "median_sec", "p90_sec", "p95_sec", "seconds", "oldest_sec"}


@dataclass(slots=True)
class Caller:
    """A client of one server, which records what it was told."""

    client: httpx.Client
    names: dict[str, str] = field(default_factory=dict)
    told: list[tuple[str, int, Any]] = field(default_factory=list)

    def named(self, name: str, id_: str) -> None:
        """Whatever has this id is recorded under a name, which is the same for all databases."""
        self.names.setdefault(id_, name)

    def id(self, name: str) -> str:
        return next(id_ for id_, known in self.names.items() if known == name)

    def __call__(self, method: str, path: str, **rest: Any) -> Any:
        answer = self.client.request(method, path, **rest)
        body = answer.json() if "json" in answer.headers.get("content-type", "") else answer.text
        # How far a run is by now that has just begun is not known.
        begun = method == "POST" and answer.is_success
        self.told.append((f"{method} {path}", answer.status_code, {"id": body.get("id")} if begun else body))
        return body

    def comparable(self) -> list[Any]:
        return [self._comparable(list(each)) for each in self.told]

    def _comparable(self, value: Any) -> Any:
        match value:
            case dict():
                return {key: "…" if key in MEASURED else self._comparable(each) for key, each in value.items()}
            case list():
                return [self._comparable(each) for each in value]
            case str():
                return self._plain(value)
            case _:
                return value

    def _plain(self, text: str) -> str:
        for id_, name in self.names.items():
            text = text.replace(id_, name)
        return OTHERS.sub("…", text)


@pytest.fixture
def callers(tmp_path: Path, furnished_at: Callable[[Path], World]) -> Iterator[list[Caller]]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        found = []
        for name in ("sqlite", "postgres"):
            stack.enter_context(databases.chosen(name == "postgres"))
            world = furnished_at(tmp_path / name)
            assert (world.database is None) == (name == "sqlite")
            server = stack.enter_context(Server(world, env={"ASKBACK_SLOTS": "1"}))
            found.append(Caller(stack.enter_context(calling(server.url, server.token))))
        yield found


def create_runs(call: Caller) -> None:
    """One that is answered, one that is canceled, and one that succeeds without a question."""
    first = {**RUN, "labels": {"team": "a", "customer": "客户 Größe"}}
    for key, body in (("one", first), ("one", first), ("one", {**RUN, "skill": "quick"})):
        made = call("POST", "/v1/runs", json=body, headers={"idempotency-key": key})
        if "id" in made:
            call.named("FIRST", made["id"])
    call("POST", "/v1/runs", json={**RUN, "skill": "unknown"})
    call("POST", "/v1/runs", json={**RUN, "input": {"a": 1}, "labels": {"": "x"}})
    reach(call.client, call.id("FIRST"), "waiting_user")
    call.named("SECOND", waiting(call.client, labels={"team": "b"}))
    call.named("THIRD", over(call.client, start(call.client, "quick", mode="auto", labels={"team": "a"}))["id"])


def look(call: Caller) -> None:
    """Everything that is told of runs."""
    for query in ("", "?limit=2", "?state=waiting_user", "?label=team:a", "?skill=quick", "?state=wrong", "?cursor=x"):
        call("GET", f"/v1/runs{query}")
    for path in (
        "inbox",
        "interactions",
        "interactions?query=colour",
        "deliveries",
        "stats?days=1",
        "skills",
    ):
        call("GET", f"/v1/{path}")
    for name in ("FIRST", "SECOND", "THIRD"):
        run = f"/v1/runs/{call.id(name)}"
        for path in ("", "/result", "/events", "/events?after=3&limit=2", "/interaction", "/interactions"):
            call("GET", f"{run}{path}")
        for path in ("/artifacts", "/artifacts/deep/a%20b.txt", "/versions?path=deep/a%20b.txt", "/deliveries"):
            call("GET", f"{run}{path}")
    call("GET", "/v1/runs/unknown")


def use(call: Caller) -> None:
    create_runs(call)
    look(call)
    first, second = (f"/v1/runs/{call.id(name)}" for name in ("FIRST", "SECOND"))
    answer = {"interaction_id": "colour", "response": "blue"}
    for body in ({**answer, "interaction_id": "other"}, {**answer, "colour": "red"}, answer):
        call("POST", f"{first}/interaction/reply", json=body)
    over(call.client, call.id("FIRST"))
    call("POST", f"{first}/interaction/reply", json=answer)
    for path in (f"{second}/cancel", f"{second}/cancel", f"{first}/cancel"):
        call("POST", path)
    over(call.client, call.id("SECOND"))
    look(call)
    for name in ("reader", "reader"):
        call("POST", "/v1/tokens", json={"name": name, "scopes": ["read"], "labels": {"team": "a"}})
    call("GET", "/v1/tokens")
    for path in (first, first, "/v1/tokens/reader", "/v1/tokens/reader"):
        call("DELETE", path)
    for path in ("/v1/runs", "/v1/interactions", "/v1/audit", first):
        call("GET", path)


@pytest.mark.contract("M-1")
def test_both_databases_give_the_same_answers(callers: list[Caller]) -> None:
    for call in callers:
        use(call)
    sqlite, shared = (call.comparable() for call in callers)
    assert len(sqlite) > 100
    for one, other in zip(sqlite, shared, strict=True):
        assert one == other
