"""The pages for runs and questions, for the people who use the server, and the answer page of a link."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.core.access import Action
from askback.core.actors import Channel
from askback.core.interactions import InboxOrder, option_label, option_value
from askback.core.labels import NAME_PATTERN, read_labels
from askback.core.runs import Run, RunState
from askback.runs.links import AFTERWARDS
from askback.runs.service import Service
from askback.skills.field_values import choices, introduced
from askback.store.pages import AuditFilter, InboxFilter, Page, RunFilter
from askback.text.formatting import MAX_SEARCH_CHARACTERS, folded, has_all, one_line, words_in
from askback.web import files
from askback.web.new_run import actions_of, source_of
from askback.web.page_context import PageContext, address
from askback.web.sign_in import SignInPages
from askback.web.translations import Translations
from askback.wire import questions as question_wire
from askback.wire import runs as wire
from askback.wire.access import AuditEntry
from askback.wire.base import Actor, plain

PAGE_SIZE = 50
MAX_SEARCHED = 1000
"""How many runs one search examines; the next page continues from there."""
MAX_COUNTED = 999
"""How far the runs of each state are counted."""
_SCAN = 200
_MAX_FILTER = 200
_MAX_NAME = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    state: RunState | None
    skill: str | None
    engine: str | None
    words: str
    labels: tuple[str, ...]
    """As `name:value`."""

    @classmethod
    def of(cls, request: Request) -> Query:
        given = request.query_params
        known = [state for state in RunState if state == given.get("state")]
        return cls(
            state=known[0] if known else None,
            skill=given.get("skill") or None,
            engine=given.get("engine") or None,
            words=given.get("q", "")[:MAX_SEARCH_CHARACTERS].strip(),
            labels=labels_in(request),
        )

    @property
    def is_filtered(self) -> bool:
        return self != Query(state=None, skill=None, engine=None, words="", labels=())

    @property
    def filter(self) -> RunFilter:
        labels = frozenset(read_labels(self.labels, ":", "label").items())
        return RunFilter(state=self.state, skill=self.skill, engine=self.engine, labels=labels)

    @property
    def stream(self) -> str:
        """The stream of the runs that may be in this list."""
        return address("/v1/runs", {"skill": self.skill, "engine": self.engine, "label": self.labels})

    @property
    def without_label(self) -> dict[str, str]:
        """For each label, the address of the list without it."""
        return {text: self.address(label=tuple(each for each in self.labels if each != text)) for text in self.labels}

    def address(self, **changes: str | Sequence[str] | None) -> str:
        given = {"state": self.state, "skill": self.skill, "engine": self.engine, "q": self.words}
        return address("/runs", {**given, "label": self.labels, **changes})


def labels_in(request: Request) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip() for text in request.query_params.getlist("label") if text.strip()))


async def runs(context: PageContext, request: Request) -> Response:
    query, cursor = Query.of(request), request.query_params.get("cursor") or None
    page = await _page(context.service, query, cursor)
    skills = await context.service.pools.skills.run(context.service.skills.names)
    return context.show(
        request,
        "runs.html",
        query=query,
        label_pattern=f"{NAME_PATTERN}:.+".replace("._-", "._\\-"),
        counts=await _counts(context.service, query),
        runs=page.items,
        states=list(RunState),
        skills=sorted({*skills, *([query.skill] if query.skill else [])}),
        engines=sorted({*context.service.engines.names, *([query.engine] if query.engine else [])}),
        first=cursor is None,
        further=query.address(cursor=page.next_cursor) if page.next_cursor else None,
    )


async def _counts(service: Service, query: Query) -> Mapping[str, str] | None:
    """How many runs each state has, as text; `all` is their sum. None while words are searched: they are not counted."""
    if query.words:
        return None
    found = await service.store.count_by_state(replace(query.filter, state=None), MAX_COUNTED + 1)
    shown = {state.value: str(count) if count <= MAX_COUNTED else f"{MAX_COUNTED}+" for state, count in found.items()}
    total = sum(min(count, MAX_COUNTED) for count in found.values())
    more = any(count > MAX_COUNTED for count in found.values())
    return shown | {"all": f"{total}+" if more else str(total)}


async def _page(service: Service, query: Query, cursor: str | None) -> Page[Run]:
    if not query.words:
        return await service.store.list_runs(query.filter, cursor, PAGE_SIZE)
    found: list[Run] = []
    words = words_in(query.words)

    def matching(runs: Sequence[Run]) -> list[Run]:
        return [run for run in runs if has_all(folded(_texts(run)), words)]

    for _ in range(MAX_SEARCHED // _SCAN):
        page = await service.store.list_runs(query.filter, cursor, _SCAN)
        cursor = page.next_cursor
        found += await service.pools.parsing.run(matching, page.items)
        if cursor is None or len(found) >= PAGE_SIZE:
            break
    return Page(items=tuple(found), next_cursor=cursor)


def _texts(run: Run) -> Iterator[str | None]:
    yield from (run.id, run.skill.id, run.engine, *run.labels.values(), run.summary)
    if run.pending_interaction is not None:
        yield run.pending_interaction.prompt
    if run.error is not None:
        yield from (run.error.code, run.error.message)


async def run(context: PageContext, request: Request) -> Response:
    found = await context.service.store.get(request.path_params["run_id"])
    input_ = await context.service.shown_input(found)
    return context.show(
        request,
        "run.html",
        run=found,
        first=plain(wire.Run.of(found, queue_reason=context.service.queue_reason(found), input=input_)),
        files=await files.listed(context, found.id),
        actions=await actions_of(context.service, found),
        source=await source_of(context.service, found),
    )


async def inbox(context: PageContext, request: Request) -> Response:
    given = request.query_params
    where = InboxFilter(skill=given.get("skill") or None, engine=given.get("engine") or None, words=given.get("q", ""))
    service = context.service.restricted_to(read_labels(labels_in(request), ":", "label"))
    page = await service.inbox(limit=200, where=where, order=InboxOrder.DEADLINE)
    asked_before = bool((await context.service.store.closed_questions(limit=1)).items)
    return context.show(request, "inbox.html", first=plain(page.shown()), asked_before=asked_before)


async def answered(context: PageContext, request: Request) -> Response:
    cursor = request.query_params.get("cursor") or None
    labels = labels_in(request)
    wanted = frozenset(read_labels(labels, ":", "label").items())
    page = await context.service.store.closed_questions(cursor, PAGE_SIZE, wanted)
    texts = context.translations_for(request)
    shown = [wire.ClosedQuestion.of(each) for each in page.items]
    return context.show(
        request,
        "answered.html",
        questions=[
            plain(each)
            | {
                "answer": answer_text(each, texts),
                "outcome_text": outcome_text(each, texts),
                "answered_at": each.answered_at,
            }
            for each in shown
        ],
        first=cursor is None,
        labels=labels,
        without_label={
            text: address("/answered", {"label": [each for each in labels if each != text]}) for text in labels
        },
        newest=address("/answered", {"label": labels}),
        further=address("/answered", {"cursor": page.next_cursor, "label": labels}) if page.next_cursor else None,
    )


PATH = "/answers/{link}"


async def answer(context: PageContext, request: Request) -> Response:
    link = request.scope["grant"].link
    run = await context.service.store.get(link.run_id)
    asked = run.pending_interaction
    pending = asked is not None and asked.interaction_id == link.interaction_id
    first = _linked(run) if pending else None
    closed = None if pending else await _closed(context, run.id, link.interaction_id)
    if not pending and closed is None:
        return SignInPages(context).invalid_link_page(request.scope, HTTPStatus.UNAUTHORIZED)
    here = f"/answers/{request.path_params['link']}"
    return context.show(request, "answer.html", first=first, closed=closed, skill=run.skill.id, here=here)


def _linked(run: Run) -> dict[str, Any]:
    """What the holder of a link gets: the question as in the API, and what the page shows about the deadline."""
    whole = plain(wire.PendingQuestion.of(run))
    shown = {name: whole[name] for name in ("reply_required", "wait_deadline_at") if name in whole}
    assert run.pending_interaction is not None
    question: dict[str, Any] = plain(question_wire.Interaction.of(run.pending_interaction))
    return question | shown | {"interactive_profile": {"kind": whole["interactive_profile"]["kind"]}}


async def _closed(context: PageContext, run_id: str, interaction_id: str) -> Any:
    """How the question ended and with whom. None some time after that: then the link is no longer valid."""
    asked = await context.service.store.interactions(run_id)
    found = next((each for each in asked if each.interaction_id == interaction_id), None)
    if found is None or found.answered_at is None or context.clock() >= found.answered_at + AFTERWARDS:
        return None
    return plain(question_wire.Interaction.of(found))


async def people(context: PageContext, request: Request) -> Response:
    return context.show(request, "people.html", device=context.device)


async def sessions(context: PageContext, request: Request) -> Response:
    return context.show(request, "sessions.html")


async def audit(context: PageContext, request: Request) -> Response:
    given = request.query_params
    texts = context.translations_for(request)
    filters = {name: given.get(name, "").strip()[:_MAX_FILTER] for name in ("actor", "action", "run_id")}
    actor, action, run_id = (filters[name] or None for name in ("actor", "action", "run_id"))
    where = AuditFilter(actor=actor, action=action, run_id=run_id)
    cursor = given.get("cursor") or None
    page = await context.audit.audit_entries(where, cursor, PAGE_SIZE)
    entries = [AuditEntry.of(each) for each in page.items]
    return context.show(
        request,
        "audit.html",
        entries=[(each, who_text(each.actor, texts)) for each in entries],
        filters=filters,
        actions=list(Action),
        first=cursor is None,
        newest=address("/audit", filters),
        further=address("/audit", filters | {"cursor": page.next_cursor}) if page.next_cursor else None,
    )


def outcome_text(closed: question_wire.Interaction, texts: Translations) -> str:
    """How the question was closed; by whom, if that is a person."""
    named = None
    if closed.answered_with is not None and closed.answered_with.via != Channel.ASKBACK:
        named = texts.find(f"answered.outcome.{closed.outcome}.by")
    if named is None or closed.answered_with is None:
        return texts(f"answered.outcome.{closed.outcome}")
    return named.replace("{who}", who_text(closed.answered_with, texts))


def answer_text(closed: question_wire.Interaction, texts: Translations) -> str | None:
    """The answer in words; None if there is none or if it is secret."""
    match closed.response:
        case None:
            return texts("answered.secret") if closed.secrecy.any and closed.outcome == "answered" else None
        case Mapping() as fields:
            return _form_text(closed, fields, texts)
        case "yes" | "no" as word if closed.kind == "confirm" and not closed.options:
            return texts(f"form.{word}")
        case value:
            chosen = [option_label(each) for each in closed.options if _same(option_value(each), value)]
            return chosen[0] if chosen else _in_words(value, closed.response_schema, texts)


def _form_text(closed: question_wire.Interaction, answers: Mapping[str, Any], texts: Translations) -> str:
    prompts = {field.id: field.prompt for field in closed.questions}
    schemas = (closed.response_schema or {}).get("properties") or {}
    hidden = closed.secrecy.fields
    shown = {
        name: texts("answered.secret") if name in hidden else _in_words(value, schemas.get(name), texts)
        for name, value in answers.items()
    }
    return " · ".join(f"{introduced(prompts.get(name, name))} {value}" for name, value in shown.items())


def _in_words(value: Any, schema: Any, texts: Translations) -> str:
    """A value of this schema: by the title of the choice, if it is one."""
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(value, list) and not any(isinstance(each, list | Mapping) for each in value):
        return ", ".join(_in_words(each, schema.get("items"), texts) for each in value)
    titles = [title for each, title in choices(schema) if _same(each, value)]
    if titles:
        return titles[0]
    if isinstance(value, bool):
        return texts("form.yes" if value else "form.no")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _same(one: Any, other: Any) -> bool:
    """Compare as JSON: in Python, true equals 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def who_text(actor: Actor, texts: Translations) -> str:
    """`anna, by link`. A newer version may have other channels."""
    name = one_line(actor.name, _MAX_NAME)
    if actor.via == Channel.ASKBACK:
        return name
    return texts("frame.who", way=texts.find(f"frame.via.{actor.via}") or actor.via, who=name)
