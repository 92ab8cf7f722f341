"""The list of runs: newest first, by state, skill and engine, and by words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from askback.core.runs import Run, RunState
from askback.service import Service
from askback.store.base import RunFilter, RunPage
from askback.web.desk import Desk, Page

PAGE_SIZE = 50
MOST_SEARCHED = 1000
"""How many runs one search looks through; the next page goes on from there."""
_SCAN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a list is asked for."""

    state: RunState | None
    skill: str | None
    engine: str | None
    words: str

    @classmethod
    def of(cls, request: Request) -> Wish:
        given = request.query_params
        known = [state for state in RunState if state == given.get("state")]
        return cls(
            state=known[0] if known else None,
            skill=given.get("skill") or None,
            engine=given.get("engine") or None,
            words=given.get("q", "").strip(),
        )

    @property
    def narrow(self) -> bool:
        return self != Wish(state=None, skill=None, engine=None, words="")

    @property
    def filter(self) -> RunFilter:
        return RunFilter(state=self.state, skill=self.skill, engine=self.engine)

    @property
    def stream(self) -> str:
        """Where the runs that may be in such a list are followed."""
        return _address("/v1/runs", {"skill": self.skill, "engine": self.engine})

    def address(self, **changes: str | None) -> str:
        given = {"state": self.state, "skill": self.skill, "engine": self.engine, "q": self.words, **changes}
        return _address("/runs", given)


async def runs(desk: Desk, request: Request) -> Response:
    wish, cursor = Wish.of(request), request.query_params.get("cursor") or None
    page = await _page(desk.service, wish, cursor)
    skills = await desk.service.pools.skills.run(desk.service.skills.names)
    return desk.show(
        request,
        "runs.html",
        wish=wish,
        runs=page.items,
        states=list(RunState),
        skills=sorted({*skills, *([wish.skill] if wish.skill else [])}),
        engines=sorted({*desk.service.engines.names, *([wish.engine] if wish.engine else [])}),
        first=cursor is None,
        further=wish.address(cursor=page.next_cursor) if page.next_cursor else None,
    )


async def _page(service: Service, wish: Wish, cursor: str | None) -> RunPage:
    if not wish.words:
        return await service.list_runs(wish.filter, cursor, PAGE_SIZE)
    found: list[Run] = []
    for _ in range(MOST_SEARCHED // _SCAN):
        page = await service.list_runs(wish.filter, cursor, _SCAN)
        cursor = page.next_cursor
        found += [run for run in page.items if _speaks_of(run, wish.words)]
        if cursor is None or len(found) >= PAGE_SIZE:
            break
    return RunPage(items=tuple(found), next_cursor=cursor)


def _address(path: str, given: Mapping[str, str | None]) -> str:
    query = urlencode({name: value for name, value in given.items() if value})
    return f"{path}?{query}" if query else path


def _speaks_of(run: Run, words: str) -> bool:
    question, error = run.pending_interaction, run.error
    texts = [run.id, run.skill.id, run.engine]
    texts += [question.prompt] if question else []
    texts += [error.code, error.message] if error else []
    text = " ".join(texts).lower()
    return all(word in text for word in words.lower().split())


PAGES = (Page(path="/runs", show=runs),)
