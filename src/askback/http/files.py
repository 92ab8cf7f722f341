"""Files: uploads that a run takes in, and the artifacts that it leaves."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Path, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from askback.core.errors import RefusalCode
from askback.http import docs, models
from askback.http.auth import AccessScope
from askback.http.bodies import FORM, StrictRoute, form_file
from askback.http.context import Reading, RunPath, Uploading, answer
from askback.http.problems import RequestCode

router = APIRouter(prefix="/v1", tags=["files"], route_class=StrictRoute)

_CHUNK = 1 << 18
_ANY = "application/octet-stream"
_BYTES = {"schema": {"type": "string", "format": "binary"}}
FORM_WITH_FILE = {
    FORM: {
        "schema": {
            "type": "object",
            "required": ["file"],
            "properties": {"file": {"type": "string", "format": "binary", "description": "The file."}},
        }
    }
}
_SAVED = {"Content-Disposition": "Always `attachment`: what an engine wrote is never shown as a page of ours."}


@router.post(
    "/uploads",
    summary="Upload a file",
    **docs.call(
        AccessScope.SUBMIT,
        AccessScope.ANSWER,
        answer=models.UploadOut,
        status=HTTPStatus.CREATED,
        says="The upload.",
        refusals=[*docs.BODY, RequestCode.REQUEST_INVALID],
        body=FORM_WITH_FILE,
    ),
)
async def upload(request: Request, here: Uploading) -> Response:
    """Take in a file; a run's `input`, or a reply, then names it as `{"upload_id": …}`."""
    async with form_file(request) as file:
        kept = await asyncio.to_thread(here.uploads.keep, file.filename or "file", file.file)
    return answer({"upload_id": kept.upload_id, "name": kept.name, "size": kept.size}, HTTPStatus.CREATED)


@router.get(
    "/runs/{run_id}/artifacts",
    summary="List a run's files",
    **docs.call(
        AccessScope.READ, answer=models.ArtifactsOut, says="All of them.", refusals=[RefusalCode.RUN_NOT_FOUND]
    ),
)
async def list_artifacts(here: Reading, run_id: RunPath) -> Response:
    """The files that the run has left so far."""
    found = await here.service.artifacts(run_id)
    return answer({"items": [{"path": each.path, "size": each.size} for each in found], "next_cursor": None})


class _AnyPath(PathConvertor):
    """A file's name may hold a line's end, where the usual one stops reading."""

    regex = "(?s:.*)"


register_url_convertor("any_path", _AnyPath())


@router.get(
    "/runs/{run_id}/artifacts/{path:any_path}",
    summary="Get one of a run's files",
    **docs.call(
        AccessScope.READ,
        says="The file, with the media type that its ending stands for.",
        content={"*/*": _BYTES},
        headers=_SAVED,
        refusals=[RefusalCode.RUN_NOT_FOUND, RefusalCode.ARTIFACT_NOT_FOUND],
    ),
)
async def get_artifact(
    here: Reading,
    run_id: RunPath,
    path: Annotated[str, Path(description="The file's path, with `/` between folders.", examples=["itinerary.md"])],
) -> Response:
    """One file, always as a download."""
    opened = await here.service.open_artifact(run_id, path)
    name = PurePosixPath(path).name
    return StreamingResponse(_chunks(opened), media_type=_media_type(name), headers=_attachment(name))


@router.get(
    "/runs/{run_id}/bundle",
    summary="Get all of a run's files",
    **docs.call(
        AccessScope.READ,
        says="A zip.",
        content={"application/zip": _BYTES},
        headers=_SAVED,
        refusals=[RefusalCode.RUN_NOT_FOUND],
    ),
)
async def get_bundle(here: Reading, run_id: RunPath) -> Response:
    """All files that the run has left so far as one zip."""
    bundle = await here.service.bundle(run_id)
    return StreamingResponse(_chunks(bundle), media_type="application/zip", headers=_attachment(f"{run_id}.zip"))


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk


def _media_type(name: str) -> str:
    """By the ending alone: `guess_type` reads a name as an address, and `data:` ones say their type themselves."""
    mimetypes.init()
    return mimetypes.types_map.get(PurePosixPath(name).suffix.lower(), _ANY)


def _attachment(name: str) -> dict[str, Any]:
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='', errors='replace')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
