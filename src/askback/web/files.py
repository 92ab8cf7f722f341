"""A run's files as a list, which stands on the run's page and is fetched anew while the run goes on."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from askback.web.desk import Desk, Page
from askback.web.figures import size_text

MOST_LISTED = 500
"""More are only in the zip: nobody reads a list that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    path: str
    size: int

    @property
    def size_text(self) -> str:
        return size_text(self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """The files that are listed, and how many more there are."""

    shown: tuple[ListedFile, ...]
    more: int


async def files(desk: Desk, request: Request) -> Response:
    run = await desk.service.get(request.path_params["run_id"])
    return desk.show(request, "files.html", run=run, files=await listed(desk, run.id))


async def listed(desk: Desk, run_id: str) -> FileList:
    found = await desk.service.artifacts(run_id)
    shown = tuple(ListedFile(path=each.path, size=each.size) for each in found[:MOST_LISTED])
    return FileList(shown=shown, more=len(found) - len(shown))


PAGES = (Page(path="/runs/{run_id}/files", show=files),)
