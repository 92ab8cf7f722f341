"""Files: uploads that a run takes in, and the artifacts that it leaves."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Path, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from askback.core.errors import RefusalCode
from askback.http import models, openapi
from askback.http.auth import AccessScope
from askback.http.bodies import FORM, StrictRoute, form_file, said_length, while_connected
from askback.http.context import Reading, RunPath, Uploading, answer
from askback.http.problems import RequestCode, as_json
from askback.process.pools import Pool
from askback.process.workspace import Artifact

router = APIRouter(prefix="/v1", tags=["files"], route_class=StrictRoute)

_CHUNK = 1 << 18
_MANY = 1_000
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
    **openapi.call(
        AccessScope.SUBMIT,
        AccessScope.ANSWER,
        answer=models.UploadOut,
        status=HTTPStatus.CREATED,
        says="The upload.",
        refusals=[*openapi.BODY, RequestCode.REQUEST_INVALID],
        body=FORM_WITH_FILE,
    ),
)
async def upload(request: Request, here: Uploading) -> Response:
    """Take in a file; a run's `input`, or a reply, then names it as `{"upload_id": …}`."""
    grant = request.scope["grant"]
    expected = said_length(request.scope) or here.bodies.upload_bytes
    await here.pools.files.run(here.uploads.survey)
    with here.uploads.room(grant.name, expected, here.quotas.of(grant).upload_bytes):
        async with form_file(request) as file:
            kept = await here.pools.files.run(here.uploads.keep, file.filename or "file", file.file, grant.name)
    return answer({"upload_id": kept.upload_id, "name": kept.name, "size": kept.size}, HTTPStatus.CREATED)


@router.get(
    "/runs/{run_id}/artifacts",
    summary="List a run's files",
    **openapi.call(
        AccessScope.READ, answer=models.ArtifactsOut, says="All of them.", refusals=[RefusalCode.RUN_NOT_FOUND]
    ),
)
async def list_artifacts(request: Request, here: Reading, run_id: RunPath) -> Response:
    """The files that the run has left so far; at most 100,000 of them."""
    found = await while_connected(request, here.service.artifacts(run_id))
    text = await here.pools.files.run(_listed, found) if len(found) > _MANY else _listed(found)
    return Response(text, media_type="application/json")


class _AnyPath(PathConvertor):
    """A file's name may hold a line's end, where the usual one stops reading."""

    regex = "(?s:.*)"


register_url_convertor("any_path", _AnyPath())


@router.get(
    "/runs/{run_id}/artifacts/{path:any_path}",
    summary="Get one of a run's files",
    **openapi.call(
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
    chunks = _chunks(opened, here.pools.files)
    return StreamingResponse(chunks, media_type=_media_type(name), headers=_attachment(name))


@router.get(
    "/runs/{run_id}/bundle",
    summary="Get all of a run's files",
    **openapi.call(
        AccessScope.READ,
        says="A zip.",
        content={"application/zip": _BYTES},
        headers=_SAVED,
        refusals=[RefusalCode.RUN_NOT_FOUND, RefusalCode.BUNDLE_TOO_LARGE],
    ),
)
async def get_bundle(request: Request, here: Reading, run_id: RunPath) -> Response:
    """All files that the run has left so far as one zip, up to `limits.bundle` and 50,000 files."""
    bundle = await while_connected(request, here.service.bundle(run_id, here.bundle_bytes))
    return StreamingResponse(bundle, media_type="application/zip", headers=_attachment(f"{run_id}.zip"))


async def _chunks(file: BinaryIO, pool: Pool) -> AsyncIterator[bytes]:
    """No thread is held between two chunks: a client that reads slowly, or has left, costs none."""
    try:
        while chunk := await pool.run(file.read, _CHUNK, admitted=True):
            yield chunk
    finally:
        pool.post(file.close)


def _listed(found: Sequence[Artifact]) -> bytes:
    return as_json({"items": [{"path": each.path, "size": each.size} for each in found], "next_cursor": None})


def _media_type(name: str) -> str:
    """By the ending alone: `guess_type` reads a name as an address, and `data:` ones say their type themselves."""
    mimetypes.init()
    return mimetypes.types_map.get(PurePosixPath(name).suffix.lower(), _ANY)


def _attachment(name: str) -> dict[str, Any]:
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='', errors='replace')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
