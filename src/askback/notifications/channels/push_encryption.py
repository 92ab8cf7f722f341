"""The cryptography of web push: messages that only one browser can read, and the server's signature for push services.

RFC 8291 is the encryption (with the content encoding of RFC 8188), RFC 8292 the signature, called VAPID.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

MAX_BYTES = 3993
"""Of a message: push services accept 4096 bytes, which include the header, the padding mark and the tag."""
_RECORD_BYTES = 4096
_POINT_BYTES, _AUTH_BYTES, _SALT_BYTES, _HALF_BYTES = 65, 16, 16, 32
_LAST_RECORD = b"\x02"
_VALID = timedelta(hours=12)
"""Of a signature. A push service refuses more than 24 hours."""
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)
_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the group of the curve P-256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """The keys of a subscription, as the browser made them."""

    point: bytes
    auth: bytes = field(repr=False)

    @classmethod
    def of(cls, p256dh: str, auth: str) -> Recipient:
        """Raises `ValueError`, which says what is wrong."""
        point, secret = _decoded(p256dh, "p256dh", _POINT_BYTES), _decoded(auth, "auth", _AUTH_BYTES)
        try:
            ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, point)
        except ValueError:
            raise ValueError("p256dh: must be a point of the curve P-256") from None
        return cls(point=point, auth=secret)


def encrypted(
    message: bytes, recipient: Recipient, *, key: ec.EllipticCurvePrivateKey | None = None, salt: bytes | None = None
) -> bytes:
    """The body of a push. `key` and `salt` are fresh for every message, except in the example of the RFC."""
    key, salt = key or ec.generate_private_key(_CURVE), salt or os.urandom(_SALT_BYTES)
    sender = _point(key)
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, recipient.point)
    shared = key.exchange(ec.ECDH(), theirs)
    secret = _derived(shared, recipient.auth, b"WebPush: info\0" + recipient.point + sender, 32)
    content_key = _derived(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(secret, salt, b"Content-Encoding: nonce\0", 12)
    header = salt + _RECORD_BYTES.to_bytes(4, "big") + len(sender).to_bytes(1, "big") + sender
    return header + AESGCM(content_key).encrypt(nonce, message + _LAST_RECORD, None)


@dataclass(frozen=True, kw_only=True)
class ServerKey:
    """The key that identifies this server to push services. A browser binds its subscription to the public half."""

    secret: str = field(repr=False)
    contact: str
    """Whom the operator of a push service can reach."""

    @cached_property
    def public(self) -> str:
        return encoded(_point(self._private))

    def authorization(self, endpoint: str, now: datetime) -> str:
        parts = urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int((now + _VALID).timestamp()),
            "sub": self.contact,
        }
        signed = ".".join(encoded(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ES256"}, claims))
        halves = decode_dss_signature(self._private.sign(signed.encode(), ec.ECDSA(SHA256())))
        signature = b"".join(half.to_bytes(_HALF_BYTES, "big") for half in halves)
        return f"vapid t={signed}.{encoded(signature)}, k={self.public}"

    @cached_property
    def _private(self) -> ec.EllipticCurvePrivateKey:
        # Longer than the order of the group, so that every key is equally likely.
        number = int.from_bytes(_derived(self.secret.encode(), b"", b"askback push key", 48), "big")
        return ec.derive_private_key(number % (_ORDER - 1) + 1, _CURVE)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str, name: str, size: int) -> bytes:
    plain = text.rstrip("=")
    try:
        data = base64.urlsafe_b64decode(plain + "=" * (-len(plain) % 4)) if _BASE64URL.fullmatch(plain) else None
    except binascii.Error:
        data = None
    if data is None:
        raise ValueError(f"{name}: must be base64url")
    if len(data) != size:
        raise ValueError(f"{name}: must be {size} bytes, is {len(data)}")
    return data


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)
