"""The pages for runs and questions: inbox, runs, run, dashboard, engines, sessions, and the answer page of a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from askback.core.runs import Run, RunState
from askback.service import Service
from askback.store.base import RunFilter, RunPage
from askback.web import files
from askback.web.page_context import ANSWER, READ, SUBMIT, Page, PageContext, duration_text, size_text
from askback.wire import runs as wire
from askback.wire.base import plain
from askback.wire.server import Engine

PAGE_SIZE = 50
MAX_SEARCHED = 1000
"""How many runs one search examines; the next page continues from there."""
_SCAN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The filters of the list."""

    state: RunState | None
    skill: str | None
    engine: str | None
    words: str

    @classmethod
    def of(cls, request: Request) -> Query:
        given = request.query_params
        known = [state for state in RunState if state == given.get("state")]
        return cls(
            state=known[0] if known else None,
            skill=given.get("skill") or None,
            engine=given.get("engine") or None,
            words=given.get("q", "").strip(),
        )

    @property
    def is_filtered(self) -> bool:
        return self != Query(state=None, skill=None, engine=None, words="")

    @property
    def filter(self) -> RunFilter:
        return RunFilter(state=self.state, skill=self.skill, engine=self.engine)

    @property
    def stream(self) -> str:
        """The stream of the runs that may be in this list."""
        return _address("/v1/runs", {"skill": self.skill, "engine": self.engine})

    def address(self, **changes: str | None) -> str:
        given = {"state": self.state, "skill": self.skill, "engine": self.engine, "q": self.words, **changes}
        return _address("/runs", given)


async def runs(context: PageContext, request: Request) -> Response:
    query, cursor = Query.of(request), request.query_params.get("cursor") or None
    page = await _page(context.service, query, cursor)
    skills = await context.service.pools.skills.run(context.service.skills.names)
    return context.show(
        request,
        "runs.html",
        query=query,
        runs=page.items,
        states=list(RunState),
        skills=sorted({*skills, *([query.skill] if query.skill else [])}),
        engines=sorted({*context.service.engines.names, *([query.engine] if query.engine else [])}),
        first=cursor is None,
        further=query.address(cursor=page.next_cursor) if page.next_cursor else None,
    )


async def _page(service: Service, query: Query, cursor: str | None) -> RunPage:
    if not query.words:
        return await service.store.list_runs(query.filter, cursor, PAGE_SIZE)
    found: list[Run] = []
    for _ in range(MAX_SEARCHED // _SCAN):
        page = await service.store.list_runs(query.filter, cursor, _SCAN)
        cursor = page.next_cursor
        found += [run for run in page.items if _matches(run, query.words)]
        if cursor is None or len(found) >= PAGE_SIZE:
            break
    return RunPage(items=tuple(found), next_cursor=cursor)


def _address(path: str, given: Mapping[str, str | None]) -> str:
    query = urlencode({name: value for name, value in given.items() if value})
    return f"{path}?{query}" if query else path


def _matches(run: Run, words: str) -> bool:
    question, error = run.pending_interaction, run.error
    texts = [run.id, run.skill.id, run.engine]
    texts += [run.summary] if run.summary else []
    texts += [question.prompt] if question else []
    texts += [error.code, error.message] if error else []
    text = " ".join(texts).lower()
    return all(word in text for word in words.lower().split())


_RUN_LIST = (Page(path="/runs", show=runs),)


_BAR_WIDTH = 600
_MIN_BAR = 4
_MAX_SQUARES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A segment of the chart of runs by state, in units of its view box."""

    state: RunState
    count: int
    x: float
    width: float


async def dashboard(context: PageContext, request: Request) -> Response:
    tally, health = await context.service.store.run_stats(), await context.health()
    oldest = (await context.service.store.pending(limit=1)).items
    waits = sorted(tally.answer_sec)
    return context.show(
        request,
        "dashboard.html",
        counts=tally.runs,
        bars=bars([(state, tally.runs[state]) for state in RunState]),
        bar_width=_BAR_WIDTH,
        slots=health.slots,
        squares=squares(health.slots.taken, health.slots.total),
        health=health,
        disk_free=size_text(health.disk_free_bytes),
        oldest_asked=oldest[0].pending_interaction if oldest else None,
        oldest_queued=_duration(health.oldest_queued_sec),
        answers=len(waits),
        median=_duration(quantile(waits, 0.5)),
        p90=_duration(quantile(waits, 0.9)),
    )


def squares(taken: int, total: int) -> list[bool]:
    """The slots as a row of squares, used ones first, scaled down if there are many."""
    shown = min(total, _MAX_SQUARES)
    return [place < taken * shown / total for place in range(shown)]


def _duration(seconds: float | None) -> str | None:
    """With non-breaking spaces between numbers and units."""
    return None if seconds is None else duration_text(seconds).replace(" ", "\u00a0")


def bars(counts: Sequence[tuple[RunState, int]]) -> list[Bar]:
    """One bar in segments, as wide as their shares but with a visible minimum."""
    there = [(state, count) for state, count in counts if count]
    total = sum(count for _, count in there)
    widths = [max(_BAR_WIDTH * count / total, _MIN_BAR) for _, count in there]
    scale = _BAR_WIDTH / sum(widths) if widths else 1
    made: list[Bar] = []
    x = 0.0
    for (state, count), width in zip(there, widths, strict=True):
        made.append(Bar(state=state, count=count, x=round(x, 2), width=round(width * scale, 2)))
        x += width * scale
    return made


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value that this share of the list does not exceed; None for an empty list."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


_DASHBOARD = (Page(path="/dashboard", show=dashboard),)


async def run(context: PageContext, request: Request) -> Response:
    found = await context.service.store.get(request.path_params["run_id"])
    skills = await context.service.pools.skills.run(context.service.skills.names)
    input_ = await context.service.shown_input(found)
    return context.show(
        request,
        "run.html",
        run=found,
        first=plain(wire.Run.of(found, queue_reason=context.service.queue_reason(found), input_=input_)),
        files=await files.listed(context, found.id),
        runs_again=found.skill.id in skills and not found.skill.uploaded,
    )


_RUN = (Page(path="/runs/{run_id}", show=run),)


async def inbox(context: PageContext, request: Request) -> Response:
    page = await context.service.inbox(limit=200)
    first = plain(wire.Inbox.of(page.items, page.next_cursor, page.count.total))
    return context.show(request, "inbox.html", first=first)


_INBOX = (Page(path="/", show=inbox, scopes=(READ, ANSWER)),)


async def engines(context: PageContext, request: Request) -> Response:
    return context.show(request, "engines.html", engines=await usable_first(context))


async def usable_first(context: PageContext) -> list[dict[str, Any]]:
    """All engines with their `condition`: `ready`, `signed_out` or `missing`, in this order."""
    found = [plain(engine) | {"condition": _condition(engine)} for engine in await context.service.engines.views()]
    order = ("ready", "signed_out", "missing")
    return sorted(found, key=lambda view: order.index(view["condition"]))


def _condition(engine: Engine) -> str:
    if not engine.found:
        return "missing"
    return "signed_out" if engine.signed_in is False else "ready"


_ENGINES = (Page(path="/engines", show=engines),)


PATH = "/answers/{link}"


async def answer(context: PageContext, request: Request) -> Response:
    link = request.scope["grant"].link
    run = await context.service.store.get(link.run_id)
    asked = run.pending_interaction
    pending = asked is not None and asked.interaction_id == link.interaction_id
    first = plain(wire.PendingQuestion.in_run(run)) if pending else None
    here = f"/answers/{request.path_params['link']}"
    return context.show(request, "answer.html", first=first, here=here)


_ANSWER = (Page(path=PATH, show=answer, by_link=True),)


async def sessions(context: PageContext, request: Request) -> Response:
    return context.show(request, "sessions.html")


_SESSIONS = (Page(path="/sessions", show=sessions, scopes=(READ, ANSWER, SUBMIT)),)

PAGES = (*_INBOX, *_RUN_LIST, *_RUN, *_DASHBOARD, *_ENGINES, *_SESSIONS, *_ANSWER)
