"""The engines: what was found on this machine, and what to do about what is missing."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.web.desk import Desk, Page


async def engines(desk: Desk, request: Request) -> Response:
    return desk.show(request, "engines.html", engines=await usable_first(desk))


async def usable_first(desk: Desk) -> list[dict[str, Any]]:
    """Each engine with its `condition`: `ready`, `signed_out` or `missing`; those that can be used come first."""
    found = [view | {"condition": _condition(view)} for view in await desk.service.engines.views()]
    order = ("ready", "signed_out", "missing")
    return sorted(found, key=lambda view: order.index(view["condition"]))


def _condition(view: dict[str, Any]) -> str:
    if not view["found"]:
        return "missing"
    return "signed_out" if view["signed_in"] is False else "ready"


PAGES = (Page(path="/engines", show=engines),)
