"""How a call becomes what httpx sends: what the two clients have in common. Knows files and httpx's words, no connection."""

from __future__ import annotations

import ipaddress
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from askback import __version__
from askback.client.calls import Call
from askback.client.errors import ServerUnreachable
from askback.client.following import SILENCE_SEC

TIMEOUT_SEC = 60.0


def connection(url: str, token: str | None, timeout_sec: float) -> dict[str, Any]:
    """What a client of httpx is made with."""
    headers = {"User-Agent": f"askback/{__version__}"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return {
        "base_url": url,
        "headers": headers,
        "timeout": timeout_sec,
        # A proxy of the environment cannot reach a server on this machine.
        "trust_env": not _is_local(url),
    }


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
        raise ServerUnreachable(url, str(error) or type(error).__name__) from None


@contextmanager
def packed(source: Path) -> Iterator[Path]:
    """A skill as a zip: a folder is packed, without following links out of it."""
    if not source.is_dir():
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="askback-skill-") as folder:
        target = Path(folder) / f"{source.resolve().name}.zip"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(source.rglob("*")):
                if path.is_symlink():
                    raise ValueError(f"{path} is a link; put the file itself there")
                if path.is_file():
                    archive.write(path, path.relative_to(source).as_posix())
        yield target


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
