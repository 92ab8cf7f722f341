"""Runs: create, list, read, cancel, delete and follow them, and read their results and the deliveries to their webhooks."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from askback.core.access import Action
from askback.core.errors import Invalid, RefusalCode
from askback.core.runs import Run
from askback.http.auth import actor_of
from askback.http.bodies import while_connected
from askback.http.context import Context, json_response
from askback.http.problems import RequestCode
from askback.http.routing import READ, SUBMIT, Router
from askback.http.streams import EventStream, wants_stream
from askback.store.pages import RunFilter
from askback.wire import deliveries as delivery_wire
from askback.wire import requests as given
from askback.wire import runs as wire
from askback.wire.base import encode

router = Router("runs")
deliveries_router = Router("notifications")

_EVENT_STREAM = {
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": "Server-sent events. `id` is the `seq` of the event, `data` is the event.",
        },
        "example": 'id: 2\nevent: run.state\ndata: {"seq":2,"run_id":"1m7gekfsksrgk77s","type":"run.state",'
        '"at":"2026-03-01T09:30:00.123456Z","data":{"from":"queued","to":"running"}}\n\n',
    }
}
_RUN_STREAM = {
    "text/event-stream": {
        "schema": {"type": "string", "description": "Server-sent events `run`. `data` is the current run."},
        "example": 'event: run\ndata: {"id":"1m7gekfsksrgk77s","state":"running","skill":"trip-planner"}\n\n',
    }
}


@router.add(
    "POST /v1/runs",
    "Create a run",
    SUBMIT,
    action=Action.RUN_SUBMIT,
    status=HTTPStatus.CREATED,
    description="The queued run.",
    response_headers={"Location": "The path of the run."},
    refusals=(
        RefusalCode.INPUT_INVALID,
        RefusalCode.SKILL_INVALID,
        RefusalCode.SKILL_NOT_FOUND,
        RefusalCode.UPLOAD_NOT_FOUND,
        RefusalCode.ENGINE_UNKNOWN,
        RefusalCode.ENGINE_NOT_FOUND,
        RefusalCode.ENGINE_UNSUITABLE,
        RefusalCode.PROFILE_UNAVAILABLE,
        RefusalCode.IDEMPOTENCY_KEY_REUSED,
        RefusalCode.RUN_NOT_FOUND,
        RefusalCode.INTERACTION_NOT_FOUND,
        RefusalCode.STATE_UNSUITABLE,
        RefusalCode.REPLY_INVALID,
        RefusalCode.WORKDIR_NOT_ALLOWED,
        RefusalCode.WORKDIR_IN_USE,
    ),
)
async def create_run(
    request: Request, context: Context, *, headers: given.RunCreateHeaders, body: given.RunCreate
) -> Response | wire.Run:
    """Validate the request and queue a run of the skill."""
    submission = await context.submission(body, headers, request.scope["grant"], actor_of(request))
    run = await context.service.submit(submission)
    await context.record_use(submission.uploaded, run)
    return json_response(context.run(run), HTTPStatus.CREATED, {"Location": f"/v1/runs/{run.id}"})


@router.add("GET /v1/runs", "List runs", READ, content=_RUN_STREAM)
async def list_runs(request: Request, context: Context, *, query: given.RunQuery) -> Response | wire.RunPage:
    """Runs, newest first.

    With `Accept: text/event-stream`, every run of that skill and engine, and with those labels, is sent when it is created and whenever its
    state changes. After the stream has ended, read the list again.
    """
    if query.mine and not query.label:
        # A list by creator alone would read every run.
        raise Invalid(RefusalCode.INPUT_INVALID, "mine: also give a label")
    creator = request.scope["grant"].name if query.mine else None
    wanted = RunFilter(state=query.state, skill=query.skill, engine=query.engine, creator=creator)
    if wants_stream(request.headers.get("accept", "")):
        return await _changes(request, context, query, wanted)
    page = await context.labelled(query.label).store.list_runs(wanted, query.cursor, query.limit)
    items = tuple(context.run(run) for run in page.items)
    return wire.RunPage(items=items, next_cursor=page.next_cursor)


@router.add(
    "GET /v1/runs/{run_id}",
    "Get a run",
    READ,
    description="The run.",
    empty_statuses={HTTPStatus.NOT_MODIFIED: "The run is still as in `If-None-Match`."},
    response_headers={"ETag": "Changes with the run."},
    refusals=(RequestCode.TOO_MANY_STREAMS,),
)
async def get_run(
    request: Request, context: Context, *, run_id: str, query: given.RunWait, headers: given.RunHeaders
) -> Response | wire.Run:
    """The run: its state, its input, its pending question, its deadline, its error.

    With `wait` the response is delayed until the run has changed, for clients that do not read event streams. A request
    that waits counts as an open stream.
    """
    run = await context.service.store.get(run_id)
    seen = _versions(headers.if_none_match)
    if query.wait and "*" not in seen and not run.state.final:
        await _until_changed(request, context, run, seen, query.wait)
        run = await context.service.store.get(run_id)
    tag = {"ETag": f'W/"{run.version}"'}
    if not seen.isdisjoint((str(run.version), "*")):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=tag)
    return json_response(context.run(run, await context.service.shown_input(run)), headers=tag)


async def _until_changed(request: Request, context: Context, run: Run, seen: frozenset[str], seconds: float) -> None:
    """Returns when the run has changed, the time is up, or the server stops."""
    if seen and str(run.version) not in seen:
        return
    with context.streams.reserve(request.scope["grant"].name), suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            changed = context.service.changed(run.id, run.version if seen else None)
            await while_connected(request, context.streams.until_closing(changed))
    if not request.scope["still_valid"]():
        raise HTTPException(HTTPStatus.UNAUTHORIZED, "the token or session has ended")


def _versions(if_none_match: str | None) -> frozenset[str]:
    """The opaque parts of the tags: the comparison is weak."""
    tags = (tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(","))
    return frozenset(tag.strip('"') for tag in tags if tag)


@router.add(
    "POST /v1/runs/{run_id}/cancel",
    "Cancel a run",
    SUBMIT,
    action=Action.RUN_CANCEL,
    status=HTTPStatus.ACCEPTED,
    description="The run, which is or will be canceled.",
    refusals=(RefusalCode.RUN_FINAL, RequestCode.BODY_TOO_LARGE),
)
async def cancel_run(request: Request, context: Context, *, run_id: str) -> wire.Run:
    """Cancel the run. It becomes `canceled` when all processes of its engine have ended. 409 if it is already final."""
    return context.run(await context.service.cancel(run_id, by=actor_of(request)))


@router.add(
    "POST /v1/runs/{run_id}/resume",
    "Resume a parked run",
    SUBMIT,
    action=Action.RUN_RESUME,
    status=HTTPStatus.ACCEPTED,
    description="The run, which is queued.",
    refusals=(RefusalCode.STATE_UNSUITABLE, RequestCode.BODY_TOO_LARGE),
)
async def resume_run(request: Request, context: Context, *, run_id: str) -> wire.Run:
    """Execute a run now that is parked for a limit of the model provider. 409 if it is not parked."""
    return context.run(await context.service.resume(run_id, by=actor_of(request)))


@router.add(
    "DELETE /v1/runs/{run_id}",
    "Delete a run",
    SUBMIT,
    action=Action.RUN_DELETE,
    refusals=(RefusalCode.RUN_NOT_FINAL, RefusalCode.FILES_UNREMOVABLE, RequestCode.BODY_TOO_LARGE),
)
async def delete_run(request: Request, context: Context, *, run_id: str) -> None:
    """Delete the run with everything that belongs to it: its files, events, questions, links, the notifications that were
    not sent yet, and the uploads that no other run has used. 409 until it is final.
    """
    await context.service.delete(run_id, by=actor_of(request))


@router.add(
    "GET /v1/runs/{run_id}/result",
    "Get the result",
    READ,
    refusals=(RefusalCode.RUN_NOT_FINAL,),
)
async def get_result(request: Request, context: Context, *, run_id: str) -> Response | wire.Result:
    """The result of the run. 409 until it is final."""
    result = await context.service.result(run_id)
    text = await context.pools.files.run(lambda: encode(wire.Result.of(result)))
    return Response(text, media_type="application/json")


@router.add(
    "GET /v1/runs/{run_id}/events", "Follow a run", READ, content=_EVENT_STREAM, refusals=(RefusalCode.INPUT_INVALID,)
)
async def get_events(
    request: Request, context: Context, *, run_id: str, query: given.EventQuery, headers: given.EventHeaders
) -> Response | wire.EventPage:
    """The events of the run, as a page of JSON.

    With `Accept: text/event-stream`, they are a stream: first the past events, then new ones until the run is final. The
    stream stays open while the run waits, with comments as heartbeats. To resume a stream, send `Last-Event-ID`.
    """
    await context.service.store.get(run_id)
    if not wants_stream(request.headers.get("accept", "")):
        events = await context.service.store.events(run_id, query.after, query.limit)
        return wire.EventPage.of(items=events, next_cursor=str(events[-1].seq) if events.more else None)
    after, last = query.after, headers.last_event_id
    if last is not None:
        if not last.isascii() or not last.isdecimal() or int(last) > given.MAX_SEQ:
            raise Invalid(RefusalCode.INPUT_INVALID, "Last-Event-ID is not the number of an event")
        after = int(last)
    events_after = context.service.follow_many(run_id, after)
    return EventStream(context.streams, events_after, request.scope["grant"].name, context.streams.encoded)


async def _changes(request: Request, context: Context, query: given.RunQuery, wanted: RunFilter) -> Response:
    def is_wanted(run: Run) -> bool:
        pairs = ((wanted.skill, run.skill.id), (wanted.engine, run.engine), (wanted.creator, run.created_by))
        return all(value in (None, own) for value, own in pairs)

    async def matching() -> AsyncGenerator[Sequence[Run]]:
        async with aclosing(context.labelled(query.label).follow_runs()) as changed:
            async for runs in changed:
                yield [run for run in runs if is_wanted(run)]

    batches = matching()
    await anext(batches)
    encoded = functools.partial(context.streams.encoded_run, view=context.run)
    return EventStream(context.streams, batches, request.scope["grant"].name, encoded)


@deliveries_router.add("GET /v1/deliveries", "List deliveries", READ)
async def list_deliveries(
    request: Request, context: Context, *, query: given.LabelledPageQuery
) -> delivery_wire.DeliveryPage:
    """Deliveries to webhooks, both done and due, newest first. Devices of other tokens are shown to an admin alone. A token that
    is restricted to labels sees the webhooks that came with its runs.
    """
    store, view = context.labelled(query.label).store, context.deliveries_seen_by(request.scope["grant"])
    return delivery_wire.DeliveryPage.of(await store.deliveries(None, query.cursor, query.limit, view=view))


@deliveries_router.add("GET /v1/runs/{run_id}/deliveries", "List the deliveries of a run", READ)
async def list_run_deliveries(
    request: Request, context: Context, *, run_id: str, query: given.PageQuery
) -> delivery_wire.DeliveryPage:
    """Deliveries to webhooks about one run, both done and due, newest first: those that `GET /v1/deliveries` shows."""
    view = context.deliveries_seen_by(request.scope["grant"])
    page = await context.service.store.deliveries(run_id, query.cursor, query.limit, view=view)
    return delivery_wire.DeliveryPage.of(page)
