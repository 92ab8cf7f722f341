"""Runs: create, list, look at, cancel, follow, and what they ended with."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response

from askback.core.errors import Invalid, RefusalCode
from askback.core.runs import Run, RunState
from askback.core.views import delivery_view, event_view, result_view
from askback.http import inputs, models, openapi
from askback.http.auth import AccessScope
from askback.http.bodies import StrictRoute
from askback.http.context import Context, Cursor, Limit, Reading, RunPath, Submitting, answer
from askback.http.problems import RequestCode
from askback.http.streams import EventStream, wants_stream
from askback.store.base import DeliveryPage, RunFilter

router = APIRouter(prefix="/v1", tags=["runs"], route_class=StrictRoute)

_SEQ = 2**53
_STREAM = {
    "text/event-stream": {
        "schema": {"type": "string", "description": "Server-sent events: `id` is the `seq`, `data` the whole event."},
        "example": 'id: 2\nevent: run.state\ndata: {"seq":2,"run_id":"1m7gekfsksrgk77s","type":"run.state",'
        '"at":"2026-03-01T09:30:00.123456Z","data":{"from":"queued","to":"running"}}\n\n',
    }
}
_MOVEMENTS = {
    "text/event-stream": {
        "schema": {"type": "string", "description": "Server-sent events `run`: `data` is the run as it is now."},
        "example": 'event: run\ndata: {"id":"1m7gekfsksrgk77s","state":"running","skill":"trip-planner"}\n\n',
    }
}
_CREATING = (
    RefusalCode.INPUT_INVALID,
    RefusalCode.SKILL_INVALID,
    RefusalCode.SKILL_NOT_FOUND,
    RefusalCode.UPLOAD_NOT_FOUND,
    RefusalCode.ENGINE_UNKNOWN,
    RefusalCode.ENGINE_NOT_FOUND,
    RefusalCode.ENGINE_UNSUITABLE,
    RefusalCode.PROFILE_UNAVAILABLE,
    RefusalCode.IDEMPOTENCY_KEY_REUSED,
)


@router.post(
    "/runs",
    summary="Create a run",
    **openapi.call(
        AccessScope.SUBMIT,
        answer=models.RunOut,
        status=HTTPStatus.CREATED,
        says="The run, queued.",
        headers={"Location": "The run's address."},
        refusals=(*openapi.JSON_BODY, *_CREATING),
    ),
)
async def create_run(
    request: Request,
    here: Submitting,
    body: inputs.RunCreate,
    idempotency_key: Annotated[
        str | SkipJsonSchema[None],
        Header(
            min_length=1,
            max_length=200,
            description="The same key and body again get the same run; another body is 422.",
            examples=["order-4711"],
        ),
    ] = None,
) -> Response:
    """Check everything that can be checked, then queue a run of the skill."""
    run = await here.service.submit(await here.submission(body, idempotency_key, request.scope["grant"]))
    return answer(here.run(run), HTTPStatus.CREATED, {"Location": f"/v1/runs/{run.id}"})


@router.get(
    "/runs",
    summary="List runs",
    **openapi.call(
        AccessScope.READ,
        answer=models.RunPageOut,
        says="One page, or a stream.",
        content=_MOVEMENTS,
        refusals=(RequestCode.REQUEST_INVALID, RefusalCode.INPUT_INVALID, RequestCode.TOO_MANY_STREAMS),
    ),
)
async def list_runs(
    request: Request,
    here: Reading,
    state: Annotated[RunState | SkipJsonSchema[None], Query(description="Only runs in this state.")] = None,
    skill: Annotated[str | SkipJsonSchema[None], Query(max_length=200, description="Only runs of this skill.")] = None,
    engine: Annotated[
        str | SkipJsonSchema[None], Query(max_length=200, description="Only runs on this engine.")
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """Runs, newest first.

    With `Accept: text/event-stream` every run of that skill and engine is sent when it is created and whenever its state
    changes, from the answer's first byte on. A stream that ends has told all it knows: read the list anew.
    """
    if wants_stream(request.headers.get("accept", "")):
        return await _movements(request, here, skill, engine)
    page = await here.service.store.list_runs(RunFilter(state=state, skill=skill, engine=engine), cursor, limit)
    return answer({"items": [here.run(run) for run in page.items], "next_cursor": page.next_cursor})


@router.get(
    "/runs/{run_id}",
    summary="Get a run",
    **openapi.call(AccessScope.READ, answer=models.RunOut, says="The run.", refusals=[RefusalCode.RUN_NOT_FOUND]),
)
async def get_run(here: Reading, run_id: RunPath) -> Response:
    """The run: its state, why it is queued, what it waits for and until when, how it ended."""
    return answer(here.run(await here.service.store.get(run_id)))


@router.post(
    "/runs/{run_id}/cancel",
    summary="Cancel a run",
    **openapi.call(
        AccessScope.SUBMIT,
        answer=models.RunOut,
        status=HTTPStatus.ACCEPTED,
        says="The run, which is canceled or will be.",
        refusals=[RefusalCode.RUN_NOT_FOUND, RefusalCode.RUN_FINAL, RequestCode.BODY_TOO_LARGE],
    ),
)
async def cancel_run(here: Submitting, run_id: RunPath) -> Response:
    """Ask the run to end. It is `canceled` once nothing of its engine lives; 409 when it is final already."""
    return answer(here.run(await here.service.cancel(run_id)), HTTPStatus.ACCEPTED)


@router.get(
    "/runs/{run_id}/result",
    summary="Get the result",
    **openapi.call(
        AccessScope.READ,
        answer=models.ResultOut,
        says="The result.",
        refusals=[RefusalCode.RUN_NOT_FOUND, RefusalCode.RUN_NOT_FINAL],
    ),
)
async def get_result(here: Reading, run_id: RunPath) -> Response:
    """What the run ended with; 409 until it is final."""
    result = await here.service.result(run_id)
    files = [{"path": each.path, "size": each.size} for each in result.artifacts]
    return answer(result_view(result.run, result.data, files))


@router.get(
    "/runs/{run_id}/events",
    summary="Follow a run",
    **openapi.call(
        AccessScope.READ,
        answer=models.EventPageOut,
        says="One page, or a stream.",
        content=_STREAM,
        refusals=[
            RefusalCode.RUN_NOT_FOUND,
            RefusalCode.INPUT_INVALID,
            RequestCode.REQUEST_INVALID,
            RequestCode.TOO_MANY_STREAMS,
        ],
    ),
)
async def get_events(
    request: Request,
    here: Reading,
    run_id: RunPath,
    after: Annotated[int, Query(ge=0, le=_SEQ, description="Only events behind this number.", examples=[0])] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many at the most; a stream has no limit.")] = 1000,
    last_event_id: Annotated[
        str | SkipJsonSchema[None],
        Header(max_length=30, description="Where a broken stream was; goes before `after`.", examples=["2"]),
    ] = None,
) -> Response:
    """The run's events: as JSON, or, with `Accept: text/event-stream`, history first and then live, until the run ends.

    A stream stays open across waits and has a comment as a heartbeat. Whoever lost one goes on with `Last-Event-ID`.
    """
    await here.service.store.get(run_id)
    if not wants_stream(request.headers.get("accept", "")):
        return answer(await _page(here, run_id, after, limit))
    if last_event_id is not None:
        after = _number(last_event_id)
    followed = here.service.follow_many(run_id, after)
    return EventStream(here.streams, followed, request.scope["grant"].name, here.streams.encoded)


async def _movements(request: Request, here: Context, skill: str | None, engine: str | None) -> Response:
    async def fitting() -> AsyncGenerator[Sequence[Run]]:
        async with aclosing(here.service.follow_runs()) as followed:
            async for runs in followed:
                yield [run for run in runs if skill in (None, run.skill.id) and engine in (None, run.engine)]

    batches = fitting()
    await anext(batches)
    encoded = functools.partial(here.streams.encoded_run, view=here.run)
    return EventStream(here.streams, batches, request.scope["grant"].name, encoded)


async def _page(here: Context, run_id: str, after: int, limit: int) -> dict[str, Any]:
    events = await here.service.store.events(run_id, after, limit)
    more = str(events[-1].seq) if events.more else None
    return {"items": [event_view(event) for event in events], "next_cursor": more}


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > _SEQ:
        raise Invalid(RefusalCode.INPUT_INVALID, "Last-Event-ID is not the number of an event")
    return int(text)


deliveries_router = APIRouter(prefix="/v1", tags=["notifications"], route_class=StrictRoute)


@deliveries_router.get(
    "/deliveries",
    summary="List what webhooks were told",
    **openapi.call(
        AccessScope.READ,
        answer=models.DeliveriesOut,
        says="One page.",
        refusals=[RequestCode.REQUEST_INVALID, RefusalCode.INPUT_INVALID],
    ),
)
async def list_deliveries(here: Reading, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """What webhooks were told, or are still to be told; newest first."""
    return _answer(await here.service.store.deliveries(None, cursor, limit))


@deliveries_router.get(
    "/runs/{run_id}/deliveries",
    summary="List what webhooks were told of a run",
    **openapi.call(
        AccessScope.READ,
        answer=models.DeliveriesOut,
        says="One page.",
        refusals=[RequestCode.REQUEST_INVALID, RefusalCode.INPUT_INVALID, RefusalCode.RUN_NOT_FOUND],
    ),
)
async def list_run_deliveries(here: Reading, run_id: RunPath, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """The same, of one run."""
    return _answer(await here.service.store.deliveries(run_id, cursor, limit))


def _answer(page: DeliveryPage) -> Response:
    return answer({"items": [delivery_view(each) for each in page.items], "next_cursor": page.next_cursor})
