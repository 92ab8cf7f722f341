"""Tokens: the server's own, made on first start, and further ones with fewer rights. Only digests of those are kept."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from askback.core.errors import Invalid, NotFound, RefusalCode, Unavailable
from askback.http.auth import AccessScope, Grant, digest

log = logging.getLogger(__name__)

_SHORTEST_SECRET = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A further token, as it is kept."""

    name: str
    digest: str
    scopes: tuple[AccessScope, ...]
    created_at: datetime
    expires_at: datetime | None = None


class Tokens:
    """The further tokens of one data folder; a change is seen by a running server at its next request."""

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self._path = path
        self._clock = clock
        self._read_at: tuple[int, int] | None = None
        self._by_digest: dict[str, Token] = {}

    def find(self, token_digest: str) -> Grant | None:
        """Whom it belongs to, unless it has expired."""
        try:
            self._refresh()
        except Unavailable as error:
            # Nobody is let in by a file that cannot be read; the server's own token is not in it.
            log.error("the further tokens cannot be used: %s", error.message)
            return None
        token = self._by_digest.get(token_digest)
        if token is None or (token.expires_at is not None and token.expires_at <= self._clock()):
            return None
        return Grant(name=token.name, scopes=frozenset(token.scopes))

    def all(self) -> list[Token]:
        self._refresh()
        return sorted(self._by_digest.values(), key=lambda token: token.created_at)

    def make(self, name: str, scopes: tuple[AccessScope, ...], expires_at: datetime | None) -> str:
        """A new token; it is shown this once."""
        text = f"askback_{secrets.token_urlsafe(32)}"
        with self._locked():
            tokens = self.all()
            if name == "main" or any(token.name == name for token in tokens):
                raise Invalid(
                    RefusalCode.INPUT_INVALID, f"there is a token {name!r} already; revoke it or name this one else"
                )
            made = Token(name=name, digest=digest(text), scopes=scopes, created_at=self._clock(), expires_at=expires_at)
            self._write([*tokens, made])
        return text

    def revoke(self, name: str) -> None:
        with self._locked():
            tokens = self.all()
            kept = [token for token in tokens if token.name != name]
            if len(kept) == len(tokens):
                known = ", ".join(token.name for token in tokens) or "none"
                raise NotFound(RefusalCode.TOKEN_NOT_FOUND, f"there is no token {name!r}; there are: {known}")
            self._write(kept)

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
            read_at = (status.st_mtime_ns, status.st_ino)
            if read_at == self._read_at:
                return
            tokens = msgspec.json.decode(self._path.read_bytes(), type=list[Token])
        except FileNotFoundError:
            read_at, tokens = None, []
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
            message = f"{self._path} cannot be read: {error}; mend it, or remove it with all its tokens"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
        self._by_digest = {token.digest: token for token in tokens}
        self._read_at = read_at

    def _write(self, tokens: list[Token]) -> None:
        write_private(self._path, msgspec.json.encode([asdict(token) for token in tokens]))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def kept_secret(path: Path) -> str:
    """A secret of 256 bits in a file that only the user can read; made when it is not there."""
    with suppress(FileNotFoundError):
        return _read_secret(path)
    fresh = _write_beside(path, f"{secrets.token_urlsafe(32)}\n".encode())
    # Of two programs that start at once, both go on with the secret of the first.
    with suppress(FileExistsError):
        os.link(fresh, path)
    fresh.unlink()
    return _read_secret(path)


def _read_secret(path: Path) -> str:
    secret = path.read_text().strip()
    if len(secret) < _SHORTEST_SECRET:
        message = f"{path} holds no secret, or a short one; remove it, and a new one is made at the next start"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
    return secret


def write_private(path: Path, content: bytes) -> None:
    _write_beside(path, content).replace(path)


def _write_beside(path: Path, content: bytes) -> Path:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    return partial
