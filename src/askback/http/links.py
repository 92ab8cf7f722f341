"""Signed links: whoever holds one may answer that one question until it expires, and do nothing else."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    run_id: str
    interaction_id: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Makes and reads links. Nothing is stored: the signature is the proof."""

    key: bytes
    clock: Callable[[], datetime]

    def make(self, link: Link) -> str:
        fields = [link.run_id, link.interaction_id, int(link.expires_at.timestamp())]
        body = json.dumps(fields, separators=(",", ":")).encode()
        return f"{_encoded(body)}.{_encoded(self._sign(body))}"

    def read(self, text: str) -> Link | None:
        """The link, or None when it is not ours or has expired."""
        body_text, _, signature = text.partition(".")
        try:
            body = _decoded(body_text)
            if not hmac.compare_digest(self._sign(body), _decoded(signature)):
                return None
            run_id, interaction_id, expires = json.loads(body)
        except (binascii.Error, ValueError):
            return None
        link = Link(run_id=run_id, interaction_id=interaction_id, expires_at=datetime.fromtimestamp(expires, UTC))
        return link if self.clock() < link.expires_at else None

    def _sign(self, body: bytes) -> bytes:
        return hmac.new(self.key, b"askback answer link\0" + body, hashlib.sha256).digest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
