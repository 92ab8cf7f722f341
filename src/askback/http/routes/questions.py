"""Questions: the pending one, its answer, all questions of a run, the inbox, and links to one question."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from askback.core.access import AccessScope, Action
from askback.core.errors import AskbackError, Conflict, Forbidden, Invalid, NotFound, RefusalCode
from askback.core.interactions import APPROVAL, Interaction
from askback.core.labels import is_one_line
from askback.core.runs import Run
from askback.http.auth import actor_of, headers_of, host_of
from askback.http.context import Context, changed
from askback.http.routes.files import FORM_WITH_FILE, store_upload
from askback.http.routing import ANSWER, READ, Access, Router
from askback.http.streams import EventStream, one_by_one, wants_stream
from askback.runs.links import ANSWER_PAGE, ANSWERS, Link, StoredLink
from askback.store.pages import InboxFilter
from askback.wire import questions as question_wire
from askback.wire import runs as wire
from askback.wire.requests import InboxQuery, LabelledPageQuery, LinkCreate, LinkedReply, Reply

router = Router("questions")

_INBOX_STREAM = {
    "text/event-stream": {
        "schema": {"type": "string", "description": "Server-sent events `inbox`. `data` is the current first page."},
        "example": 'event: inbox\ndata: {"items":[],"next_cursor":null,"total":0,"skills":{},"engines":{}}\n\n',
    }
}


@router.add(
    "GET /v1/runs/{run_id}/interaction",
    "Get the pending question",
    READ,
    ANSWER,
    description="The question.",
    refusals=(RefusalCode.INTERACTION_NOT_FOUND,),
)
async def get_question(request: Request, context: Context, *, run_id: str) -> question_wire.Interaction:
    """The pending question. 404 if there is none."""
    return question_wire.Interaction.of(_pending(await context.service.store.get(run_id)))


@router.add("GET /v1/runs/{run_id}/interaction/background", "Get what led to the pending question", READ, ANSWER)
async def background(request: Request, context: Context, *, run_id: str) -> question_wire.Background:
    """The engine's last messages, the files that its turn has changed, and the earlier answers. Empty if no question is pending."""
    return question_wire.Background.of(await context.service.background(run_id))


@router.add(
    "POST /v1/runs/{run_id}/interaction/reply",
    "Answer the pending question",
    ANSWER,
    action=Action.INTERACTION_REPLY,
    status=HTTPStatus.ACCEPTED,
    description="The run, which continues.",
    refusals=(RefusalCode.UPLOAD_NOT_FOUND, RefusalCode.INTERACTION_NOT_PENDING, RefusalCode.REPLY_INVALID),
)
async def reply(request: Request, context: Context, *, run_id: str, body: Reply) -> wire.Run:
    """Answer the question. The run changes from `waiting_user` to `queued`, or to `running` if its process was kept.

    409 if the question is not pending. 422 if the answer is invalid: the run continues to wait.
    """
    _, files = await context.files_of({"answer": body.response})
    if "answer" in files:
        run = await context.service.reply_with_file(run_id, files["answer"], body.interaction_id, by=actor_of(request))
        await context.record_use(files.values(), run)
    else:
        run = await context.service.reply(run_id, body.response, body.interaction_id, by=actor_of(request))
    return context.run(run)


@router.add("GET /v1/runs/{run_id}/interactions", "List the questions of a run", READ)
async def list_questions(request: Request, context: Context, *, run_id: str) -> question_wire.InteractionList:
    """All questions of the run with their outcomes, in the order in which they were asked."""
    asked = await context.service.store.interactions(run_id)
    return question_wire.InteractionList.of(items=asked)


@router.add("GET /v1/inbox", "List all pending questions", READ, ANSWER, content=_INBOX_STREAM)
async def inbox(request: Request, context: Context, *, query: InboxQuery) -> Response | wire.Inbox:
    """The pending questions of all runs.

    With `Accept: text/event-stream`, the 200 oldest questions are sent at once, and again whenever any question is asked
    or closed. Of the query parameters, only `label` applies to the stream.
    """
    if wants_stream(request.headers.get("accept", "")):
        pages = one_by_one(context.labelled(query.label).follow_pending())
        return EventStream(context.streams, pages, request.scope["grant"].name, context.streams.encoded_inbox)
    where = InboxFilter(skill=query.skill, engine=query.engine, words=query.q or "")
    page = await context.labelled(query.label).inbox(query.cursor, query.limit, where, query.order)
    return page.shown()


@router.add("GET /v1/interactions", "List the closed questions of all runs", READ)
async def closed_questions(request: Request, context: Context, *, query: LabelledPageQuery) -> wire.ClosedQuestionPage:
    """The questions that were answered or closed in another way, the last closed first. The inbox has the others."""
    page = await context.labelled(query.label).store.closed_questions(query.cursor, query.limit)
    return wire.ClosedQuestionPage.of(page)


# Links: created and revoked with a token.


@router.add(
    "POST /v1/runs/{run_id}/interaction/link",
    "Create a link to the pending question",
    ANSWER,
    action=Action.LINK_CREATE,
    status=HTTPStatus.CREATED,
    refusals=(RefusalCode.INTERACTION_NOT_FOUND, RefusalCode.INPUT_INVALID, RefusalCode.STATE_UNSUITABLE),
)
async def make_link(request: Request, context: Context, *, run_id: str, body: LinkCreate) -> question_wire.Link:
    """A link that lets its holder read and answer the pending question, and nothing else.

    It ends when it expires or is revoked, when the question is closed, and when the token that created it is revoked.
    """
    if body.recipient is not None and not (body.recipient.strip() and is_one_line(body.recipient)):
        raise Invalid(RefusalCode.INPUT_INVALID, "the recipient of a link is one line without control characters")
    pending = _pending(await context.service.store.get(run_id))
    if pending.kind == APPROVAL and not request.scope["grant"].allows(AccessScope.APPROVE):
        raise Forbidden(RefusalCode.SCOPE_MISSING, "a link to an approval needs a token with the scope 'approve'")
    expires = (context.links.clock() + timedelta(seconds=body.expires_in_sec)).replace(microsecond=0)
    link = Link(run_id=run_id, interaction_id=pending.interaction_id, expires_at=expires, holder=body.recipient or "")
    grant = request.scope["grant"]
    text, stored = await asyncio.to_thread(context.links.make, link, token=grant.name, token_digest=grant.token_digest)
    changed(request, stored.id, run_id=run_id, interaction_id=pending.interaction_id)
    url = context.addresses.base_url(host_of(headers_of(request.scope))) + ANSWERS + text
    return question_wire.Link(id=stored.id, url=url, expires_at=expires)


@router.add("GET /v1/runs/{run_id}/interaction/links", "List the links to the pending question", ANSWER)
async def list_links(request: Request, context: Context, *, run_id: str) -> question_wire.LinkList:
    """The valid links, oldest first. Empty if no question is pending."""
    return question_wire.LinkList.of(items=await _links(request, context, run_id))


@router.add(
    "DELETE /v1/runs/{run_id}/interaction/links",
    "Revoke all links to the pending question",
    ANSWER,
    action=Action.LINK_REVOKE,
    refusals=(RefusalCode.LINK_NOT_FOUND,),
)
async def revoke_links(request: Request, context: Context, *, run_id: str) -> None:
    """Revoke every link to the pending question. Takes effect at once."""
    await _revoke(request, context, run_id, [each.id for each in await _links(request, context, run_id)])


@router.add(
    "DELETE /v1/runs/{run_id}/interaction/links/{link_id}",
    "Revoke a link",
    ANSWER,
    action=Action.LINK_REVOKE,
)
async def revoke_link(request: Request, context: Context, *, run_id: str, link_id: str) -> None:
    """Revoke one link to the pending question. Takes effect at once."""
    if link_id not in [each.id for each in await _links(request, context, run_id)]:
        raise NotFound(RefusalCode.LINK_NOT_FOUND, f"the question has no link {link_id!r}")
    await _revoke(request, context, run_id, [link_id])


async def _links(request: Request, context: Context, run_id: str) -> list[StoredLink]:
    """The links that the caller may see and revoke. A token that is restricted to labels has its own alone."""
    pending = (await context.service.store.get(run_id)).pending_interaction
    if pending is None:
        return []
    found = await asyncio.to_thread(context.links.all, run_id, pending.interaction_id)
    grant = request.scope["grant"]
    return [each for each in found if not grant.labels or each.token_digest == grant.token_digest]


async def _revoke(request: Request, context: Context, run_id: str, ids: list[str]) -> None:
    if ids:
        await asyncio.to_thread(context.links.revoke, run_id, ids)
        changed(request, ", ".join(ids), run_id=run_id)


# Links: used without a token.


@router.add("GET /v1/answers/{link}", "Get the question of a link", access=Access.LINK, description="The question.")
async def linked_question(request: Request, context: Context, *, link: str) -> Response | question_wire.Interaction:
    """The question of the link. Requires no token. 401 if the link is expired, revoked or forged.

    A browser is redirected to a page where the question can be answered.
    """
    if "text/html" in request.headers.get("accept", ""):
        query = request.url.query
        return RedirectResponse(f"{ANSWER_PAGE}{link}{'?' if query else ''}{query}", HTTPStatus.SEE_OTHER)
    held: Link = request.scope["grant"].link
    return question_wire.Interaction.of(await _linked(context, held))


@router.add(
    "POST /v1/answers/{link}",
    "Answer the question of a link",
    action=Action.INTERACTION_REPLY,
    access=Access.LINK,
    status=HTTPStatus.ACCEPTED,
    description="The question with its answer.",
    refusals=(RefusalCode.REPLY_INVALID,),
)
async def linked_reply(
    request: Request, context: Context, *, link: str, body: LinkedReply
) -> question_wire.Interaction:
    """Answer the question of the link. Requires no token. 401 if the link is expired, revoked or forged."""
    held: Link = request.scope["grant"].link
    await _linked(context, held)
    await context.service.reply(held.run_id, body.response, held.interaction_id, by=actor_of(request))
    return await _answered(context, held)


@router.add(
    "POST /v1/answers/{link}/file",
    "Answer the question of a link with a file",
    action=Action.INTERACTION_REPLY,
    access=Access.LINK,
    raw_body=FORM_WITH_FILE,
    status=HTTPStatus.ACCEPTED,
    description="The question with its answer.",
    refusals=(RefusalCode.REPLY_INVALID,),
)
async def linked_file(request: Request, context: Context, *, link: str) -> question_wire.Interaction:
    """Answer the question of the link with a file. Requires no token. The limits are those of an upload."""
    held: Link = request.scope["grant"].link
    # Before the file is received.
    await _linked(context, held)
    uploaded = await store_upload(request, context)
    file = await context.pools.files.run(context.uploads.path, uploaded.upload_id)
    try:
        run = await context.service.reply_with_file(held.run_id, file, held.interaction_id, by=actor_of(request))
    except AskbackError:
        await context.pools.files.run(context.uploads.discard, uploaded.upload_id, admitted=True)
        raise
    await context.record_use([file], run)
    return await _answered(context, held)


async def _answered(context: Context, held: Link) -> question_wire.Interaction:
    asked = await context.service.store.interactions(held.run_id)
    answered = next(each for each in asked if each.interaction_id == held.interaction_id)
    return question_wire.Interaction.of(answered)


async def _linked(context: Context, link: Link) -> Interaction:
    pending = (await context.service.store.get(link.run_id)).pending_interaction
    if pending is None or pending.interaction_id != link.interaction_id:
        closed = await context.service.already_closed(link.run_id, link.interaction_id)
        raise closed or Conflict(RefusalCode.INTERACTION_NOT_PENDING, "the question is no longer pending")
    return pending


def _pending(run: Run) -> Interaction:
    if run.pending_interaction is None:
        raise NotFound(
            RefusalCode.INTERACTION_NOT_FOUND, f"run {run.id} has no pending question; its state is {run.state}"
        )
    return run.pending_interaction
