"""The requests for each kind of webhook. Pure: every attempt of a delivery has the same body."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

import msgspec

from askback import __version__
from askback.core.runs import Run, RunState
from askback.core.webhooks import DueDelivery, WebhookKind, secret_key
from askback.wire.runs import Notification

_LONGEST_TEXT = 500
_TAGS = {
    RunState.WAITING_USER: "question",
    RunState.SUCCEEDED: "white_check_mark",
    RunState.FAILED: "x",
    RunState.CANCELED: "no_entry_sign",
}
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def message(due: DueDelivery, now: datetime, link: str | None) -> Message:
    """`link` is the URL of a run for people, with `{run}` for its id."""
    run_url = None if link is None else link.replace("{run}", due.run.id)
    match due.delivery.webhook.kind:
        case WebhookKind.STANDARD:
            return _standard(due, now)
        case WebhookKind.NTFY:
            return _ntfy(due, run_url)
        case WebhookKind.SLACK:
            return _slack(due, run_url)
        case kind:
            assert_never(kind)


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """As Standard Webhooks defines it: of the id, the time of the attempt and the body."""
    key = secret_key(secret)
    assert key is not None, "secrets are validated before they are stored"
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _standard(due: DueDelivery, now: datetime) -> Message:
    delivery = due.delivery
    body = msgspec.json.encode(Notification.of(due))
    timestamp = str(int(now.timestamp()))
    headers = _headers("application/json") | {"webhook-id": delivery.id, "webhook-timestamp": timestamp}
    if (secret := delivery.webhook.secret) is not None:
        headers["webhook-signature"] = signature(secret, delivery.id, timestamp, body)
    return Message(headers=headers, body=body)


def _ntfy(due: DueDelivery, link: str | None) -> Message:
    headers = _headers("text/plain; charset=utf-8") | {"Title": _ascii(_title(due.run, due.delivery.new))}
    headers["Priority"] = "high" if due.delivery.new is RunState.WAITING_USER else "default"
    if (tag := _TAGS.get(due.delivery.new)) is not None:
        headers["Tags"] = tag
    if link is not None:
        headers["Click"] = _ascii(link)
    if (token := due.delivery.webhook.secret) is not None:
        headers["Authorization"] = f"Bearer {token}"
    return Message(headers=headers, body=_text(due.run, due.delivery.new).encode(errors="replace"))


def _slack(due: DueDelivery, link: str | None) -> Message:
    title = _title(due.run, due.delivery.new).translate(_ESCAPED)
    text = f"*{title}*\n{_text(due.run, due.delivery.new).translate(_ESCAPED)}"
    if link is not None:
        text += f"\n<{link}>"
    return Message(headers=_headers("application/json"), body=msgspec.json.encode({"text": text}))


def _headers(media_type: str) -> dict[str, str]:
    return {"Content-Type": media_type, "User-Agent": f"askback/{__version__}"}


def _title(run: Run, state: RunState) -> str:
    words = {RunState.WAITING_USER: "has a question"}
    return f"{run.skill.id} {words.get(state, f'is {state}' if not state.final else state)}"


def _text(run: Run, state: RunState) -> str:
    """A short text for a small screen."""
    if state is RunState.WAITING_USER and run.pending_interaction is not None:
        return _short(run.pending_interaction.prompt)
    if state is RunState.FAILED and run.error is not None:
        return _short(f"{run.error.code}: {run.error.message}")
    return f"Run {run.id}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _ascii(text: str) -> str:
    """Headers only allow printable ASCII."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)
