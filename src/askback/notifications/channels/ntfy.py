"""Messages for ntfy, published as JSON, which takes every character in titles and labels.

The limits are those of an ntfy server with default settings. A longer message becomes an attached file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from askback.core.webhooks import Webhook, is_ntfy_topic
from askback.notifications.channels.base import Message, Refused
from askback.notifications.channels.webhook import HttpRequest, json_request
from askback.notifications.notice import Choice, Digest, Notice
from askback.runs.links import ANSWER_PAGE, ANSWERS
from askback.text.formatting import cut_bytes, one_line

_MAX_ACTIONS = 3
_TEXT_BYTES = 1500
_OPTIONS_BYTES = 600
_CONTEXT_BYTES = (1000, 500, 250, 0)
"""The first that leaves room for everything else."""
_LABEL_CHARS = 40
_REPLY_BYTES = 300
_REQUEST_BYTES = 8000
"""ntfy reads twice the size of a message, 4,096 bytes, as JSON."""
_DIGEST_BYTES = 4000
"""A server with default settings makes a file of a message with more than 4,096 bytes."""
_HIGH, _DEFAULT = 4, 3


def request(message: Message, *, answer_buttons: bool) -> HttpRequest:
    """`answer_buttons`: buttons answer at once, with a request whose content the ntfy server sees."""
    notice = message.notice
    content: dict[str, Any] = {
        "title": notice.title,
        "message": _text(notice, ""),
        "priority": _HIGH if notice.is_question else _DEFAULT,
    }
    if notice.tag is not None:
        content["tags"] = [notice.tag]
    if notice.url is not None:
        content["click"] = notice.url
    actions = [_action(each, answer=answer_buttons) for each in notice.choices[:_MAX_ACTIONS]]
    while actions and len(msgspec.json.encode({**content, "actions": actions})) > _REQUEST_BYTES:
        actions = actions[:-1]
    if actions:
        content["actions"] = actions
    if notice.context:
        _add_context(content, notice)
    return _published(message.webhook, content)


def digest_request(webhook: Webhook, digest: Digest) -> HttpRequest:
    """As many questions as fit. A tap opens the oldest one."""
    while True:
        text = digest.plain_list
        content = {"title": digest.title, "message": text, "priority": _HIGH, "tags": ["question"]}
        if digest.entries and (url := digest.entries[0].url) is not None:
            content["click"] = url
        fits = len(text.encode()) <= _DIGEST_BYTES and len(msgspec.json.encode(content)) < _REQUEST_BYTES
        if fits or not digest.entries:
            return _published(webhook, content)
        digest = replace(digest, entries=digest.entries[:-1])


def _published(webhook: Webhook, message: Mapping[str, Any]) -> HttpRequest:
    parts = urlsplit(webhook.url)
    folder, _, topic = parts.path.rpartition("/")
    if not is_ntfy_topic(topic):
        raise Refused("the URL does not end with an ntfy topic")
    root = urlunsplit(parts._replace(path=f"{folder}/"))
    authorization = {} if webhook.secret is None else {"Authorization": f"Bearer {webhook.secret}"}
    return json_request(root, {"topic": topic, **message}, authorization)


def _text(notice: Notice, context: str) -> str:
    parts = [cut_bytes(notice.text, _TEXT_BYTES), *([context] if context else [])]
    if len(notice.labels) > _MAX_ACTIONS or (notice.labels and notice.answer_url is None):
        listed = "\n".join(f"• {label}" for label in notice.labels)
        parts.append(cut_bytes(listed, _OPTIONS_BYTES))
    if notice.deadline_text is not None:
        parts.append(f"Answer by {notice.deadline_text}")
    return "\n\n".join(parts)


def _action(choice: Choice, *, answer: bool) -> dict[str, Any]:
    label = one_line(choice.label, _LABEL_CHARS)
    reply = json.dumps({"response": choice.value})
    if not answer or len(reply) > _REPLY_BYTES:
        return {"action": "view", "label": label, "url": choice.url, "clear": True}
    page, _, _ = choice.url.partition("?")
    return {
        "action": "http",
        "label": label,
        "url": page.replace(ANSWER_PAGE, ANSWERS, 1),
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": reply,
        "clear": True,
    }


def _add_context(message: dict[str, Any], notice: Notice) -> None:
    for most in _CONTEXT_BYTES:
        context = cut_bytes(notice.context, most) if most else ""
        message["message"] = _text(notice, context)
        if len(msgspec.json.encode(message)) <= _REQUEST_BYTES:
            return
