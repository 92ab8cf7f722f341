"""The page's own files: styles, scripts and the icon. Read once at the start; a browser that has one asks only whether it changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    content: bytes
    media_type: str
    etag: str

    def answer(self, request: Request) -> Response:
        headers = {"ETag": self.etag, "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == self.etag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(self.content, HTTPStatus.OK, headers, self.media_type)


def load() -> Mapping[str, StaticFile]:
    """Every file there is, by its name."""
    return {path.name: _read(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return StaticFile(content=content, media_type=_TYPES[path.suffix], etag=etag)
