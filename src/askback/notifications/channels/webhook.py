"""Webhooks: requests to programs, as Standard Webhooks describes them."""

from __future__ import annotations

import base64
import hashlib
import hmac

import msgspec

from askback.core.webhooks import secret_key
from askback.notifications.channels.base import Message
from askback.notifications.channels.sender import HttpRequest, json_request


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The signature of the id, the time of the attempt and the body."""
    key = secret_key(secret)
    assert key is not None, "secrets are validated before they are stored"
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def request(message: Message) -> HttpRequest:
    webhook, body = message.webhook, msgspec.json.encode(message.document)
    timestamp = str(int(message.at.timestamp()))
    headers = {"webhook-id": message.id, "webhook-timestamp": timestamp}
    if webhook.secret is not None:
        headers["webhook-signature"] = signature(webhook.secret, message.id, timestamp, body)
    return json_request(webhook.url, body, headers)
