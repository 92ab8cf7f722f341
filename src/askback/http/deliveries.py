"""The log of what webhooks were told."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from askback.core.errors import RefusalCode
from askback.core.views import delivery_view
from askback.http import docs, models
from askback.http.auth import AccessScope
from askback.http.bodies import StrictRoute
from askback.http.context import Cursor, Limit, Reading, RunPath, answer
from askback.http.problems import RequestCode
from askback.store.base import DeliveryPage

router = APIRouter(prefix="/v1", tags=["notifications"], route_class=StrictRoute)


@router.get(
    "/deliveries",
    summary="List what webhooks were told",
    **docs.call(
        AccessScope.READ,
        answer=models.DeliveriesOut,
        says="One page.",
        refusals=[RequestCode.REQUEST_INVALID, RefusalCode.INPUT_INVALID],
    ),
)
async def list_deliveries(here: Reading, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """What webhooks were told, or are still to be told; newest first."""
    return _answer(await here.service.deliveries(None, cursor, limit))


@router.get(
    "/runs/{run_id}/deliveries",
    summary="List what webhooks were told of a run",
    **docs.call(
        AccessScope.READ,
        answer=models.DeliveriesOut,
        says="One page.",
        refusals=[RequestCode.REQUEST_INVALID, RefusalCode.INPUT_INVALID, RefusalCode.RUN_NOT_FOUND],
    ),
)
async def list_run_deliveries(here: Reading, run_id: RunPath, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """The same, of one run."""
    return _answer(await here.service.deliveries(run_id, cursor, limit))


def _answer(page: DeliveryPage) -> Response:
    return answer({"items": [delivery_view(each) for each in page.items], "next_cursor": page.next_cursor})
