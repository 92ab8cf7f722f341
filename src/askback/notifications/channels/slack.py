"""Messages for incoming webhooks of Slack and compatible services.

Services that know no blocks show the text, as Markdown: Mattermost does. Slack has no escapes for that, so invisible spaces
in the text keep mentions, links and pictures of an engine from working in either.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import Any

from askback.core.webhooks import Webhook
from askback.notifications.channels.base import Message
from askback.notifications.channels.webhook import HttpRequest, json_request
from askback.notifications.notice import Digest, DigestEntry, Notice
from askback.text.formatting import cut, moment

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ACTIVE = re.compile(r"[@#~`\]:]|www(?=\.)", re.IGNORECASE)
"""After these a mention, a link or a picture would begin or continue."""
_INVISIBLE_SPACE = "\u200b"
_TEXT_CHARS = 500
_SECTION_CHARS = 3000
_OPTIONS_CHARS = 1000
_CONTEXT_CHARS = 700
_BUTTON_CHARS = 75
_URL_CHARS = 3000
_ENTRY_CHARS = 300
_MAX_BUTTONS = 5


def request(message: Message) -> HttpRequest:
    notice = message.notice
    document: dict[str, Any] = {"text": _text(notice)}
    if notice.answer_url is not None:
        document["blocks"] = _blocks(notice, notice.answer_url)
    return json_request(message.webhook.url, document)


def digest_request(webhook: Webhook, digest: Digest) -> HttpRequest:
    listed = [_listed(digest, entry) for entry in digest.entries]
    inert = [replace(each, about=_inactive(each.about), question=_inactive(each.question)) for each in digest.entries]
    urls = ["" if entry.url is None else f"\n<{entry.url}>" for entry in digest.entries]
    title = f"*{_escaped(digest.title, _ENTRY_CHARS)}*"
    shown = [_listed(digest, entry) + url for entry, url in zip(inert, urls, strict=True)]
    document: dict[str, Any] = {"text": "\n".join((title, *shown, *digest.rest))}
    if any(entry.answer_url for entry in digest.entries):
        sections = [
            _section(text, entry, f"open-{place}")
            for place, (text, entry) in enumerate(zip(listed, digest.entries, strict=True))
        ]
        document["blocks"] = [_section(title), *sections, *map(_section, digest.rest)]
    return json_request(webhook.url, document)


def _listed(digest: Digest, entry: DigestEntry) -> str:
    deadline = None if entry.deadline is None else _date(entry.deadline, digest.zone)
    about, question = (_escaped(text, _ENTRY_CHARS) for text in (entry.about, entry.question))
    return f"• {about}: {question} ({digest.when(entry, deadline)})"


def _section(text: str, entry: DigestEntry | None = None, action_id: str = "") -> dict[str, Any]:
    section: dict[str, Any] = {"type": "section", "text": _mrkdwn(text)}
    if entry is not None and entry.url is not None and len(entry.url) <= _URL_CHARS:
        section["accessory"] = _button(action_id, entry.url_label, entry.url)
    return section


def _text(notice: Notice) -> str:
    """What a notification of Slack shows, and the message of services that know no blocks."""
    title = _escaped(_inactive(notice.title), _TEXT_CHARS)
    parts = [notice.text, *([notice.context] if notice.context else [])]
    said = (_escaped(_inactive(cut(part, _TEXT_CHARS)), _SECTION_CHARS) for part in parts)
    text = f"*{title}*\n" + "\n\n".join(said)
    return text if notice.url is None else f"{text}\n<{notice.url}>"


def _blocks(notice: Notice, answer_url: str) -> list[dict[str, Any]]:
    about = [_mrkdwn(_escaped(notice.skill, _SECTION_CHARS)), _mrkdwn(f"Run {notice.run_id}")]
    if notice.deadline is not None:
        about.append(_mrkdwn(f"Answer by {_date(notice.deadline, notice.zone)}"))
    buttons = [
        _button(f"choose-{place}", each.label, each.url) for place, each in enumerate(notice.choices[:_MAX_BUTTONS])
    ]
    buttons.append(_button("answer", "Answer…", answer_url))
    fitting = [each for each in buttons if len(each["url"]) <= _URL_CHARS]
    return [
        {"type": "section", "text": _mrkdwn(_question(notice))},
        {"type": "context", "elements": about},
        *([{"type": "actions", "elements": fitting}] if fitting else []),
    ]


def _question(notice: Notice) -> str:
    options = ""
    if len(notice.labels) > _MAX_BUTTONS:
        listed = "\n".join(f"• {label}" for label in notice.labels)
        options = "\n" + _escaped(listed, _OPTIONS_CHARS)
    context = "\n\n" + _escaped(notice.context, _CONTEXT_CHARS) if notice.context else ""
    title = f"*{_escaped(notice.title, _TEXT_CHARS)}*\n"
    rest = context + options
    return title + _escaped(notice.text, _SECTION_CHARS - len(title) - len(rest)) + rest


def _date(at: datetime, zone: tzinfo) -> str:
    """Shown in the time zone of the reader; by other programs than Slack, in `zone`."""
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}}, {{time}}|{moment(at, zone)}>"


def _button(action_id: str, label: str, url: str) -> dict[str, Any]:
    text = {"type": "plain_text", "text": cut(label, _BUTTON_CHARS), "emoji": False}
    return {"type": "button", "action_id": action_id, "text": text, "url": url}


def _mrkdwn(text: str) -> dict[str, Any]:
    """`verbatim`: names and addresses in the text do not become links or mentions."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _inactive(text: str) -> str:
    """Shown as it is, also by a service that reads it as Markdown."""
    return _ACTIVE.sub(lambda found: found[0] + _INVISIBLE_SPACE, text)


def _escaped(text: str, most: int) -> str:
    """At most `most` characters, never half of an escape sequence."""
    escaped = [_ESCAPES.get(letter, letter) for letter in text]
    if sum(map(len, escaped)) <= most:
        return "".join(escaped)
    room = most - 1
    for place, each in enumerate(escaped):
        if (room := room - len(each)) < 0:
            return "".join(escaped[:place]) + "…"
    return "".join(escaped)
