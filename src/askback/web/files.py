"""A run's files: the list, which the run's page updates while the run continues, and previews."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import BinaryIO

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from askback.background.pools import Pool
from askback.core.errors import NotFound, RefusalCode, Unavailable
from askback.http.routes.files import chunks
from askback.text.formatting import size
from askback.text.json_text import indented
from askback.web.page_context import PageContext, rendered

MAX_LISTED = 500
"""More files are only in the zip file."""
MAX_NAMES = 100_000
"""Characters of the paths that are shown. Each is on the page several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    path: str
    size: int
    turn: int | None
    comparable: bool
    """Whether two versions of it can be compared."""

    @property
    def size_text(self) -> str:
        return size(self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """The listed files, and whether there are further ones. `unavailable`: they are in a store that cannot be used now."""

    shown: tuple[ListedFile, ...] = ()
    more: bool = False
    unavailable: bool = False


async def files(context: PageContext, request: Request) -> Response:
    run = await context.service.store.get(request.path_params["run_id"])
    return context.show(request, "files.html", run=run, files=await listed(context, run.id))


async def listed(context: PageContext, run_id: str) -> FileList:
    """List the files of a run. If they are unavailable, the page is shown without them."""
    try:
        found = await context.service.artifact_page(run_id, 0, MAX_LISTED, MAX_NAMES)
    except Unavailable as error:
        if error.code is not RefusalCode.FILES_UNAVAILABLE:
            raise
        return FileList(unavailable=True)
    shown = tuple(
        ListedFile(path=each.path, size=each.size, turn=each.turn, comparable=each.comparable) for each in found.items
    )
    return FileList(shown=shown, more=found.end is not None)


MAX_TEXT = 512 * 1024
MAX_PICTURE = 20 * 1024 * 1024
_PICTURES: dict[str, Callable[[bytes], bool]] = {
    "image/png": lambda head: head.startswith(b"\x89PNG\r\n\x1a\n"),
    "image/jpeg": lambda head: head.startswith(b"\xff\xd8\xff"),
    "image/gif": lambda head: head.startswith((b"GIF87a", b"GIF89a")),
    "image/webp": lambda head: head[:4] == b"RIFF" and head[8:12] == b"WEBP",
}
_MARKDOWN = (".md", ".markdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What can be shown of a file: text, HTML, an image, or nothing."""

    text: str | None = None
    html: Markup | None = None
    is_picture: bool = False
    is_cut: bool = False


async def preview(context: PageContext, request: Request) -> Response:
    run_id, path = _named(request)
    found = await context.service.store.get(run_id)
    with await context.service.open_artifact(run_id, path) as file:
        content = await context.service.pools.files.run(file.read, MAX_TEXT + 1)
    look = await context.service.pools.previews.run(preview_of, path, content)
    return context.show(request, "preview.html", run=found, path=path, look=look)


async def picture(context: PageContext, request: Request) -> Response:
    """The bytes of an image. The content decides, so that a browser never has to guess."""
    run_id, path = _named(request)
    pool = context.service.pools.files
    file = await context.service.open_artifact(run_id, path)
    try:
        head, is_large = await pool.run(_look_at, file)
        kind = picture_kind(head)
        if kind is None or is_large:
            raise NotFound(RefusalCode.ARTIFACT_NOT_FOUND, "the file is not an image that can be shown")
    except BaseException:
        pool.post(file.close)
        raise
    headers = {"Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}
    return StreamingResponse(_picture(head, file, pool), HTTPStatus.OK, headers, kind)


async def _picture(head: bytes, file: BinaryIO, pool: Pool) -> AsyncGenerator[bytes]:
    async with aclosing(chunks(file, pool, MAX_PICTURE - len(head))) as rest:
        yield head
        async for chunk in rest:
            yield chunk


def preview_of(path: str, content: bytes) -> Preview:
    """Choose a preview by the content, then by the file name's suffix."""
    if picture_kind(content) is not None:
        return Preview(is_picture=True)
    cut, suffix = len(content) > MAX_TEXT, PurePosixPath(path).suffix.lower()
    text = _text(content[:MAX_TEXT], cut=cut)
    if text is None:
        return Preview()
    if suffix in _MARKDOWN and not cut:
        return Preview(html=rendered(text))
    return Preview(text=_indented(text) if suffix == ".json" and not cut else text, is_cut=cut)


def picture_kind(content: bytes) -> str | None:
    return next((kind for kind, fits in _PICTURES.items() if fits(content[:16])), None)


def _look_at(file: BinaryIO) -> tuple[bytes, bool]:
    """The beginning of the file, and whether it is too large to be shown. A file of a store is cut instead."""
    is_large = file.seekable() and file.seek(0, os.SEEK_END) > MAX_PICTURE
    if file.seekable():
        file.seek(0)
    return file.read(16), is_large


def _text(content: bytes, *, cut: bool) -> str | None:
    """None if the content is not text. If it was cut, the last character may be incomplete."""
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8", "ignore" if cut else "strict")
    except UnicodeDecodeError:
        return None


def _indented(text: str) -> str:
    try:
        return indented(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["run_id"], request.query_params.get("path", "")


NOW = "now"
_KINDS = {"+": "added", "-": "removed", "@": "place", "\\": "note"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
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
        from_turn = versions[-2].turn if len(versions) > 1 else 0
        found = await context.service.diff(run_id, path, from_turn, to_turn)
    return context.show(
        request,
        "changes.html",
        run=run,
        path=path,
        turns=turns,
        from_turn=from_turn,
        to_turn=to_turn,
        lines=None if found is None else [Line(kind=_KINDS.get(each[0], "same"), text=each) for each in found.lines],
        cut=found is not None and found.cut,
    )


def _chosen(request: Request, name: str, turns: Sequence[int], otherwise: int) -> int:
    """The turn of the query, if it is one of the choices."""
    return next((turn for turn in turns if str(turn) == request.query_params.get(name)), otherwise)
