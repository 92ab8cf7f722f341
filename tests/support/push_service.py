"""A push service on this machine, and a browser that subscribed there.

It checks what real services check, after RFC 8030 (the request), RFC 8292 (the server's signature) and RFC 8291 with
RFC 8188 (the encryption), which it undoes with the browser's keys. It shares no code with what it checks.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from support.receiver import Came, Receiver, receiving

_DAY_SEC = 24 * 3600
_AUTH = bytes(range(16))


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def bytes_of(text: str) -> bytes:
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text), "not base64url without padding"
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One push that arrived and was right."""

    path: str
    ttl_sec: int
    topic: str
    urgency: str
    contact: str
    server_key: str
    content: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PushService:
    """`receiver.answers` are the statuses of the first answers; then 201."""

    receiver: Receiver
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def subscription(self, name: str = "phone") -> dict[str, Any]:
        """What the browser's `PushSubscription.toJSON()` returns, without the time at which it expires."""
        keys = {"p256dh": text_of(_point(self.key)), "auth": text_of(_AUTH)}
        return {"endpoint": f"http://127.0.0.1:{self.receiver.port}/{name}", "keys": keys}

    @property
    def pushes(self) -> list[Push]:
        """All that arrived; fails unless a real service and browser had taken them."""
        return [self._checked(came) for came in list(self.receiver.came)]

    def _checked(self, came: Came) -> Push:
        claims, server_key = signed_claims(came.headers["authorization"])
        assert claims["aud"] == f"http://127.0.0.1:{self.receiver.port}"
        assert 0 < claims["exp"] - time.time() <= _DAY_SEC
        assert re.match(r"mailto:|https:", claims["sub"])
        assert came.headers["content-encoding"] == "aes128gcm"
        assert re.fullmatch(r"\d+", came.headers["ttl"]), "RFC 8030, 5.2: without it the service answers 400"
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,32}", came.headers["topic"])
        assert came.headers["urgency"] in ("very-low", "low", "normal", "high")
        assert len(came.body) <= 4096, "RFC 8030, 7.2: the service answers 413 beyond this"
        return Push(
            path=came.path,
            ttl_sec=int(came.headers["ttl"]),
            topic=came.headers["topic"],
            urgency=came.headers["urgency"],
            contact=claims["sub"],
            server_key=server_key,
            content=json.loads(decrypted(came.body, self.key, _AUTH)),
        )


@contextmanager
def push_service(**how: Any) -> Iterator[PushService]:
    with receiving(Receiver(**how)) as receiver:
        yield PushService(receiver=receiver)


def signed_claims(authorization: str) -> tuple[dict[str, Any], str]:
    """The claims and the public key of the server; RFC 8292, sections 2 and 3."""
    found = re.fullmatch(r"vapid t=([^,\s]+), k=([^,\s]+)", authorization)
    assert found is not None
    token, key = found.groups()
    head, body, signature = token.split(".")
    assert json.loads(bytes_of(head)) == {"typ": "JWT", "alg": "ES256"}
    raw = bytes_of(signature)
    assert len(raw) == 64
    halves = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), bytes_of(key))
    public.verify(halves, f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
    return json.loads(bytes_of(body)), key


def decrypted(body: bytes, key: ec.EllipticCurvePrivateKey, auth: bytes) -> bytes:
    """RFC 8188, section 2, and RFC 8291, section 3; by the formulas, one after the other."""
    salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
    sender, record = body[21 : 21 + length], body[21 + length :]
    assert length == 65
    assert len(record) <= size, "a push is one record"
    shared = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
    secret = _hmac(_hmac(auth, shared), b"WebPush: info\0" + _point(key) + sender + b"\1")
    seed = _hmac(salt, secret)
    content_key = _hmac(seed, b"Content-Encoding: aes128gcm\0\1")[:16]
    nonce = _hmac(seed, b"Content-Encoding: nonce\0\1")[:12]
    opened = Cipher(algorithms.AES(content_key), modes.GCM(nonce, record[-16:])).decryptor()
    padded = opened.update(record[:-16]) + opened.finalize()
    content = padded.rstrip(b"\0")
    assert content.endswith(b"\2"), "the mark of the last record"
    return content[:-1]


def _hmac(key: bytes, data: bytes) -> bytes:
    made = hmac.HMAC(key, hashes.SHA256())
    made.update(data)
    return made.finalize()


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
