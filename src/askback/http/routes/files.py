"""Files: uploads for runs, and the artifacts that runs produce."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncGenerator
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal
from urllib.parse import quote

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from askback.access.grants import Grant
from askback.background.pools import Pool
from askback.core.access import Action
from askback.core.errors import RefusalCode
from askback.http.bodies import FORM, declared_length, form_file, while_connected
from askback.http.context import Context, changed
from askback.http.routing import ANSWER, READ, SUBMIT, Router
from askback.wire import artifacts as artifact_wire
from askback.wire.base import encode
from askback.wire.requests import ArtifactQuery, DiffQuery, VersionQuery
from askback.wire.server import Upload
from askback.workspace import uploads
from askback.workspace.artifacts import ArtifactPage

router = Router("files")

_CHUNK = 1 << 18
_MANY = 1_000
_LINK_UPLOADS = 2
_ANY = "application/octet-stream"
BINARY = {"schema": {"type": "string", "format": "binary"}}
FORM_WITH_FILE = {
    FORM: {
        "schema": {
            "type": "object",
            "required": ["file"],
            "properties": {"file": {"type": "string", "format": "binary", "description": "The file."}},
        }
    }
}
ATTACHMENT = {"Content-Disposition": "Always `attachment`: a browser never shows the file as a page of this server."}


@router.add(
    "POST /v1/uploads",
    "Upload a file",
    SUBMIT,
    ANSWER,
    action=Action.UPLOAD_CREATE,
    raw_body=FORM_WITH_FILE,
    status=HTTPStatus.CREATED,
)
async def upload(request: Request, context: Context) -> Upload:
    """Upload a file. Use it in the `input` of a run, or in a reply, as `{"upload_id": "…"}`."""
    stored = await store_upload(request, context)
    changed(request, stored.upload_id)
    return Upload.of(stored)


async def store_upload(request: Request, context: Context) -> uploads.Upload:
    """Store the file of the form, within the caller's quota."""
    grant = request.scope["grant"]
    expected = declared_length(request.scope) or context.bodies.upload_bytes
    limit = _upload_quota(grant, context)
    await context.pools.files.run(context.uploads.survey, grant.owner)
    with context.uploads.room(grant.owner, expected, limit):
        async with form_file(request) as file:
            name = file.filename or "file"
            return await context.pools.files.run(context.uploads.store, name, file.file, grant.owner, limit)


def _upload_quota(grant: Grant, context: Context) -> int | None:
    """The limits of the caller. A link may upload one file, and retry once."""
    usual = context.quotas.of(grant).upload_bytes
    if grant.link is None:
        return usual
    few = _LINK_UPLOADS * context.bodies.upload_bytes
    return few if usual is None else min(few, usual)


@router.add("GET /v1/runs/{run_id}/artifacts", "List the artifacts of a run", READ)
async def list_artifacts(
    request: Request, context: Context, *, run_id: str, query: ArtifactQuery
) -> Response | artifact_wire.ArtifactList:
    """The files that the run has produced so far, at most 100,000, with paths of 16 million characters in all."""
    page = await while_connected(request, context.service.artifact_page(run_id, int(query.cursor or 0), query.limit))
    text = await context.pools.files.run(_listed, page) if len(page.items) > _MANY else _listed(page)
    return Response(text, media_type="application/json")


@router.add(
    "GET /v1/runs/{run_id}/versions",
    "List the versions of an artifact",
    READ,
    refusals=(RefusalCode.ARTIFACT_NOT_FOUND,),
)
async def list_versions(
    request: Request, context: Context, *, run_id: str, query: VersionQuery
) -> artifact_wire.VersionList:
    """The file as it was at the end of each turn that changed it."""
    found = await context.service.versions(run_id, query.path)
    return artifact_wire.VersionList.of(items=found)


@router.add(
    "GET /v1/runs/{run_id}/diff",
    "Compare two versions of an artifact",
    READ,
    refusals=(RefusalCode.ARTIFACT_NOT_FOUND, RefusalCode.INPUT_INVALID),
)
async def get_diff(request: Request, context: Context, *, run_id: str, query: DiffQuery) -> artifact_wire.ArtifactDiff:
    """What has changed in a text file between the ends of two turns, or until now."""
    found = await context.service.diff(run_id, query.path, query.from_, query.to_turn)
    text = None if found is None else "".join(f"{line}\n" for line in found.lines)
    cut = found is not None and found.cut
    to: int | Literal["now"] = "now" if query.to_turn is None else query.to_turn
    return artifact_wire.ArtifactDiff(path=query.path, from_=query.from_, to=to, diff=text, cut=cut)


class _AnyPath(PathConvertor):
    """A path that may contain line breaks, which Starlette's own converter does not match."""

    regex = "(?s:.*)"


register_url_convertor("any_path", _AnyPath())


@router.add(
    "GET /v1/runs/{run_id}/artifacts/{path:any_path}",
    "Download an artifact",
    READ,
    description="The file. The media type depends on its extension.",
    content={"*/*": BINARY},
    response_headers=ATTACHMENT,
    refusals=(RefusalCode.ARTIFACT_NOT_FOUND,),
)
async def get_artifact(request: Request, context: Context, *, run_id: str, path: str) -> Response:
    """One file, as a download."""
    opened = await context.service.open_artifact(run_id, path)
    return download(opened, path, context.pools.files)


@router.add(
    "GET /v1/runs/{run_id}/bundle",
    "Download all artifacts",
    READ,
    description="A zip file.",
    content={"application/zip": BINARY},
    response_headers=ATTACHMENT,
    refusals=(RefusalCode.BUNDLE_TOO_LARGE,),
)
async def get_bundle(request: Request, context: Context, *, run_id: str) -> Response:
    """All files that the run has produced so far, as a zip file. At most `limits.bundle` and 50,000 files."""
    bundle = await while_connected(request, context.service.bundle(run_id, context.bundle_bytes))
    return StreamingResponse(bundle, media_type="application/zip", headers=_attachment(f"{run_id}.zip"))


def download(file: BinaryIO, path: str, pool: Pool) -> StreamingResponse:
    """A file as a download, which closes it."""
    name = PurePosixPath(path).name
    return StreamingResponse(chunks(file, pool), media_type=_media_type(name), headers=_attachment(name))


async def chunks(file: BinaryIO, pool: Pool, limit: int | None = None) -> AsyncGenerator[bytes]:
    """The content, up to the limit. Holds one chunk and no thread while a slow client reads."""
    left = limit
    try:
        while chunk := await pool.run(file.read, _CHUNK if left is None else min(_CHUNK, left), admitted=True):
            left = None if left is None else left - len(chunk)
            yield chunk
    finally:
        pool.post(file.close)


def _listed(page: ArtifactPage) -> bytes:
    return encode(artifact_wire.ArtifactList.of(page, next_cursor=None if page.end is None else str(page.end)))


def _media_type(name: str) -> str:
    """From the extension alone: `guess_type` takes names such as `data:…` for URLs."""
    mimetypes.init()
    return mimetypes.types_map.get(PurePosixPath(name).suffix.lower(), _ANY)


def _attachment(name: str) -> dict[str, Any]:
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='', errors='replace')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
