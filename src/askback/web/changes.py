"""The page of the changes in one file of a run: two turns, and the difference between their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from askback.web.page_context import Page, PageContext
from askback.workspace.versions import Version

NOW = "now"
_KINDS = {"+": "added", "-": "removed", "@": "place", "\\": "note"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a diff, with its sign."""

    kind: str
    text: str


async def changes(context: PageContext, request: Request) -> Response:
    run_id, path = request.path_params["run_id"], request.query_params.get("path", "")
    run = await context.service.store.get(run_id)
    versions = await context.service.versions(run_id, path)
    turns = [0, *(each.turn for each in versions if each.turn)]
    to_turn = None if request.query_params.get("to", NOW) == NOW else _chosen(request, "to", turns, turns[-1])
    from_turn = _chosen(request, "from", turns, turns[-1])
    found = await context.service.diff(run_id, path, from_turn, to_turn)
    if found is not None and not found.lines and "from" not in request.query_params:
        # Unchanged since the last version: the last change is the one before it.
        from_turn = _before_last(versions)
        found = await context.service.diff(run_id, path, from_turn, to_turn)
    return context.show(
        request,
        "changes.html",
        run=run,
        path=path,
        turns=turns,
        from_turn=from_turn,
        to_turn=to_turn,
        lines=None if found is None else [_line(each) for each in found.lines],
        cut=found is not None and found.cut,
    )


def _chosen(request: Request, name: str, turns: Sequence[int], otherwise: int) -> int:
    """The turn of the query, if it is one of the choices."""
    return next((turn for turn in turns if str(turn) == request.query_params.get(name)), otherwise)


def _before_last(versions: Sequence[Version]) -> int:
    """The turn of the last version but one, or 0: what was there before the last change."""
    return versions[-2].turn if len(versions) > 1 else 0


def _line(text: str) -> Line:
    return Line(kind=_KINDS.get(text[0], "same"), text=text)


PAGES = (Page(path="/runs/{run_id}/changes", show=changes),)
