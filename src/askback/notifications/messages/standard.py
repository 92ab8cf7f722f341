"""Requests as Standard Webhooks describes them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import datetime
from typing import Any

import msgspec

from askback.core.webhooks import Webhook, secret_key
from askback.notifications.messages.http_request import HttpRequest, json_request


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The signature of the id, the time of the attempt and the body."""
    key = secret_key(secret)
    assert key is not None, "secrets are validated before they are stored"
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def standard(webhook: Webhook, message_id: str, now: datetime, document: Any) -> HttpRequest:
    body = msgspec.json.encode(document)
    timestamp = str(int(now.timestamp()))
    headers = {"webhook-id": message_id, "webhook-timestamp": timestamp}
    if webhook.secret is not None:
        headers["webhook-signature"] = signature(webhook.secret, message_id, timestamp, body)
    return json_request(webhook.url, body, headers)
