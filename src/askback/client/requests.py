"""How a call becomes what httpx sends: what the two clients have in common. Knows files and httpx's words, no connection."""

from __future__ import annotations

import ipaddress
import re
import socket
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from askback import __version__
from askback.client.calls import Call
from askback.client.errors import ServerUnreachable, TokenUnusable
from askback.client.following import SILENCE_SEC

TIMEOUT_SEC = 60.0
_LEFT_OUT = frozenset({"__pycache__", ".ds_store", ".git"})
"""What a folder holds beside its skill; a zip with it in it is refused."""
_USER = re.compile(r"//[^/?#]*@")


def connection(url: str, token: str | None, timeout_sec: float) -> dict[str, Any]:
    """What a client of httpx is made with."""
    headers = {"User-Agent": f"askback/{__version__}"}
    if token and token.strip():
        headers["Authorization"] = f"Bearer {_sendable(token)}"
    return {
        "base_url": url,
        "headers": headers,
        "timeout": timeout_sec,
        # A proxy of the environment cannot reach a server on this machine.
        "trust_env": not _is_local(url),
    }


def _sendable(token: str) -> str:
    """Without the line's end that a file has. What no header can hold would be told by httpx, token and all."""
    text = token.strip()
    if not text.isascii() or not text.isprintable():
        raise TokenUnusable
    return text


def stream_timeout(timeout_sec: float) -> httpx.Timeout:
    return httpx.Timeout(timeout_sec, read=SILENCE_SEC)


@contextmanager
def sent(call: Call[Any]) -> Iterator[dict[str, Any]]:
    """What a request of httpx is made with; a file is open for as long as it is sent."""
    words: dict[str, Any] = {"params": dict(call.params), "headers": dict(call.headers), "content": call.body}
    if call.file is None:
        yield words
        return
    with call.file.open("rb") as file:
        yield {**words, "files": {"file": (call.file.name, file)}}


@contextmanager
def telling(url: str) -> Iterator[None]:
    """Trouble on the way, told as a server that cannot be reached."""
    try:
        yield
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise ServerUnreachable(_USER.sub("//…@", url), str(error) or type(error).__name__) from None


@contextmanager
def cut_off(response: httpx.Response, after_sec: float | None) -> Iterator[None]:
    """After so many seconds the response breaks off. httpx bounds every read, but not all of them together."""
    if after_sec is None:
        yield
        return
    timer = threading.Timer(after_sec, _shut, (response.extensions["network_stream"].get_extra_info("socket"),))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut(connection: socket.socket) -> None:
    """By the plain socket's own way: TLS would want to say goodbye first."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


@contextmanager
def packed(source: Path) -> Iterator[Path]:
    """A skill as a zip: a folder is packed, without following links out of it."""
    if not source.is_dir():
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="askback-skill-") as folder:
        target = Path(folder) / f"{source.resolve().name}.zip"
        # A file's time may lie before 1980, where that of a zip begins.
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path in sorted(source.rglob("*")):
                _pack(archive, path, path.relative_to(source))
        yield target


def _pack(archive: zipfile.ZipFile, path: Path, name: Path) -> None:
    if any(part.casefold() in _LEFT_OUT for part in name.parts):
        return
    if path.is_symlink():
        raise ValueError(f"{path} is a link; put the file itself there")
    if path.is_file():
        archive.write(path, name.as_posix())


@contextmanager
def written(target: Path) -> Iterator[Any]:
    """A file that is there only once it is whole."""
    partial = target.with_name(f".{target.name}.part")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _is_local(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
