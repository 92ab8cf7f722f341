"""Questions: the pending one, answering it, all of a run's, the inbox, and links to one question."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Request
from starlette.responses import RedirectResponse, Response

from askback.core.errors import Conflict, NotFound, RefusalCode
from askback.core.interactions import Interaction
from askback.core.runs import Run
from askback.core.views import inbox_page_view, interaction_view
from askback.http import inputs, models, openapi
from askback.http.auth import ANSWER_PAGE, ANSWERS, AccessScope, headers_of, host_of
from askback.http.bodies import StrictRoute
from askback.http.context import (
    Answering,
    Context,
    Cursor,
    HeldLink,
    Limit,
    Reading,
    ReadingQuestions,
    RunPath,
    answer,
)
from askback.http.links import KeptLink, Link
from askback.http.problems import RequestCode
from askback.http.streams import EventStream, one_by_one, wants_stream

router = APIRouter(prefix="/v1", tags=["questions"], route_class=StrictRoute)

LinkPath = Annotated[str, Path(description="The last part of the link.", examples=["WyIxbTdnZWtmc2tzcmdrNzdzIl0.c2ln"])]
LinkIdPath = Annotated[str, Path(description="The link's id, as the list has it.", examples=["9f2c01ab"])]
MaybeLinkIn = Annotated[inputs.LinkIn, Body(default_factory=inputs.LinkIn)]
_ASKING = (AccessScope.READ, AccessScope.ANSWER)
_STREAM = {
    "text/event-stream": {
        "schema": {"type": "string", "description": "Server-sent events `inbox`: `data` is the page as it is now."},
        "example": 'event: inbox\ndata: {"items":[],"next_cursor":null,"total":0}\n\n',
    }
}


@router.get(
    "/runs/{run_id}/interaction",
    summary="Get the pending question",
    **openapi.call(
        *_ASKING,
        answer=models.InteractionOut,
        says="The question.",
        refusals=[RefusalCode.RUN_NOT_FOUND, RefusalCode.INTERACTION_NOT_FOUND],
    ),
)
async def get_question(here: ReadingQuestions, run_id: RunPath) -> Response:
    """The pending question, or 404."""
    return answer(interaction_view(_pending(await here.service.get(run_id))))


@router.post(
    "/runs/{run_id}/interaction/reply",
    summary="Answer the pending question",
    **openapi.call(
        AccessScope.ANSWER,
        answer=models.RunOut,
        status=HTTPStatus.ACCEPTED,
        says="The run, which goes on.",
        refusals=[
            *openapi.JSON_BODY,
            RefusalCode.RUN_NOT_FOUND,
            RefusalCode.UPLOAD_NOT_FOUND,
            RefusalCode.INTERACTION_NOT_PENDING,
            RefusalCode.REPLY_INVALID,
        ],
    ),
)
async def reply(here: Answering, run_id: RunPath, body: inputs.ReplyIn) -> Response:
    """Answer the question: the run goes from `waiting_user` to `queued`, or to `running` where its process has waited.

    409 when the question is not, or no longer, pending; 422 when the answer does not fit, and the run waits on.
    """
    return answer(here.run(await _reply(here, run_id, body.interaction_id, body.response)), HTTPStatus.ACCEPTED)


@router.get(
    "/runs/{run_id}/interactions",
    summary="List a run's questions",
    **openapi.call(
        AccessScope.READ, answer=models.InteractionsOut, says="All of them.", refusals=[RefusalCode.RUN_NOT_FOUND]
    ),
)
async def list_questions(here: Reading, run_id: RunPath) -> Response:
    """All questions of the run with how each ended, in the order they were asked."""
    items = [interaction_view(each) for each in await here.service.interactions(run_id)]
    return answer({"items": items, "next_cursor": None})


@router.get(
    "/inbox",
    summary="List all pending questions",
    **openapi.call(
        *_ASKING,
        answer=models.InboxOut,
        says="One page, or a stream.",
        content=_STREAM,
        refusals=[RequestCode.REQUEST_INVALID, RefusalCode.INPUT_INVALID, RequestCode.TOO_MANY_STREAMS],
    ),
)
async def inbox(request: Request, here: ReadingQuestions, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """Every pending question, the oldest first.

    With `Accept: text/event-stream` the 200 oldest are sent at once, and again whenever a run begins or ends to wait,
    be it one behind those.
    """
    if wants_stream(request.headers.get("accept", "")):
        followed = one_by_one(here.service.follow_pending())
        return EventStream(here.streams, followed, request.scope["grant"].name, here.streams.encoded_inbox)
    page = await here.service.inbox(cursor, limit)
    return answer(inbox_page_view(page.items, page.next_cursor, page.count.total))


@router.post(
    "/runs/{run_id}/interaction/link",
    summary="Make a link to the pending question",
    **openapi.call(
        AccessScope.ANSWER,
        answer=models.LinkOut,
        status=HTTPStatus.CREATED,
        says="The link.",
        refusals=[
            *openapi.JSON_BODY,
            RefusalCode.RUN_NOT_FOUND,
            RefusalCode.INTERACTION_NOT_FOUND,
            RefusalCode.STATE_UNSUITABLE,
        ],
    ),
)
async def make_link(request: Request, here: Answering, run_id: RunPath, body: MaybeLinkIn) -> Response:
    """A link that lets its holder read and answer the pending question, and nothing else.

    It ends when it expires or is revoked, with the question, and with the token that it was made with.
    """
    pending = _pending(await here.service.get(run_id))
    expires = (here.links.clock() + timedelta(seconds=body.expires_in_sec)).replace(microsecond=0)
    link = Link(run_id=run_id, interaction_id=pending.interaction_id, expires_at=expires)
    grant = request.scope["grant"]
    text, kept = await asyncio.to_thread(here.links.make, link, token=grant.name, token_digest=grant.token_digest)
    url = here.addresses.base_url(host_of(headers_of(request.scope))) + ANSWERS + text
    return answer({"id": kept.id, "url": url, "expires_at": expires}, HTTPStatus.CREATED)


@router.get(
    "/runs/{run_id}/interaction/links",
    summary="List the links to the pending question",
    **openapi.call(
        AccessScope.ANSWER, answer=models.LinksOut, says="All of them.", refusals=[RefusalCode.RUN_NOT_FOUND]
    ),
)
async def list_links(here: Answering, run_id: RunPath) -> Response:
    """The links that can still be used, the oldest first; none when nothing is asked."""
    items = [_link_view(each) for each in await _links(here, run_id)]
    return answer({"items": items, "next_cursor": None})


@router.delete(
    "/runs/{run_id}/interaction/links",
    summary="Revoke all links to the pending question",
    **openapi.call(
        AccessScope.ANSWER,
        status=HTTPStatus.NO_CONTENT,
        says="They are revoked.",
        refusals=[RefusalCode.RUN_NOT_FOUND, RefusalCode.LINK_NOT_FOUND],
    ),
)
async def revoke_links(here: Answering, run_id: RunPath) -> Response:
    """Revoke every link to the pending question, at once."""
    return await _revoke(here, run_id, [each.id for each in await _links(here, run_id)])


@router.delete(
    "/runs/{run_id}/interaction/links/{link_id}",
    summary="Revoke a link",
    **openapi.call(
        AccessScope.ANSWER,
        status=HTTPStatus.NO_CONTENT,
        says="It is revoked.",
        refusals=[RefusalCode.RUN_NOT_FOUND, RefusalCode.LINK_NOT_FOUND],
    ),
)
async def revoke_link(here: Answering, run_id: RunPath, link_id: LinkIdPath) -> Response:
    """Revoke one link to the pending question, at once."""
    if link_id not in [each.id for each in await _links(here, run_id)]:
        raise NotFound(RefusalCode.LINK_NOT_FOUND, f"the question has no link {link_id!r}")
    return await _revoke(here, run_id, [link_id])


@router.get(
    "/answers/{link}",
    summary="Get the question of a link",
    **openapi.call(
        answer=models.InteractionOut,
        says="The question.",
        by_link=True,
        refusals=[
            RefusalCode.INTERACTION_NOT_PENDING,
            RefusalCode.INTERACTION_NOT_FOUND,
            RefusalCode.RUN_NOT_FOUND,
        ],
    ),
)
async def linked_question(request: Request, held: HeldLink, link: LinkPath) -> Response:
    """The question that the link is for. Needs no token; an expired, revoked or forged link is 401.

    A browser is led to a page where it can be answered.
    """
    here: Context = request.app.state.context
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(ANSWER_PAGE + link, HTTPStatus.SEE_OTHER)
    return answer(interaction_view(_held(await here.service.get(held.run_id), held)))


@router.post(
    "/answers/{link}",
    summary="Answer the question of a link",
    **openapi.call(
        answer=models.InteractionOut,
        status=HTTPStatus.ACCEPTED,
        says="The question with its answer.",
        by_link=True,
        refusals=[
            *openapi.JSON_BODY,
            RefusalCode.INTERACTION_NOT_PENDING,
            RefusalCode.INTERACTION_NOT_FOUND,
            RefusalCode.RUN_NOT_FOUND,
            RefusalCode.REPLY_INVALID,
        ],
    ),
)
async def linked_reply(request: Request, held: HeldLink, link: LinkPath, body: inputs.LinkedReplyIn) -> Response:
    """Answer the question that the link is for. Needs no token; an expired, revoked or forged link is 401."""
    here: Context = request.app.state.context
    _held(await here.service.get(held.run_id), held)
    await here.service.reply(held.run_id, body.response, held.interaction_id)
    asked = await here.service.interactions(held.run_id)
    settled = next(each for each in asked if each.interaction_id == held.interaction_id)
    return answer(interaction_view(settled), HTTPStatus.ACCEPTED)


async def _links(here: Context, run_id: str) -> list[KeptLink]:
    pending = (await here.service.get(run_id)).pending_interaction
    return [] if pending is None else here.links.all(run_id, pending.interaction_id)


async def _revoke(here: Context, run_id: str, ids: list[str]) -> Response:
    if ids:
        await asyncio.to_thread(here.links.revoke, run_id, ids)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _link_view(link: KeptLink) -> dict[str, Any]:
    return {
        "id": link.id,
        "interaction_id": link.interaction_id,
        "token": link.token,
        "created_at": link.created_at,
        "expires_at": link.expires_at,
    }


async def _reply(here: Context, run_id: str, interaction_id: str, response: Any) -> Run:
    """A file as an answer is put into the run's workspace; the engine is told where."""
    _, files = here.files_of({"answer": response})
    if "answer" in files:
        return await here.service.reply_with_file(run_id, files["answer"], interaction_id)
    return await here.service.reply(run_id, response, interaction_id)


def _pending(run: Run) -> Interaction:
    if run.pending_interaction is None:
        raise NotFound(RefusalCode.INTERACTION_NOT_FOUND, f"run {run.id} is {run.state}: it asks nothing at the moment")
    return run.pending_interaction


def _held(run: Run, link: Link) -> Interaction:
    pending = run.pending_interaction
    if pending is None or pending.interaction_id != link.interaction_id:
        raise Conflict(RefusalCode.INTERACTION_NOT_PENDING, "that question has been settled already")
    return pending
