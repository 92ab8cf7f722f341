"""Messages for incoming webhooks of Slack and compatible services.

Services that know no blocks show the text, as Markdown: Mattermost does. Slack has no escapes for that, so invisible spaces
in the text keep mentions, links and pictures of an engine from working in either.
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from typing import Any

from askback.core.webhooks import Webhook
from askback.notifications.messages.http_request import HttpRequest, json_request
from askback.notifications.messages.notice import Notice, shortened
from askback.text.formatting import moment

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ACTIVE = re.compile(r"[@#~`\]:]|www(?=\.)", re.IGNORECASE)
"""After these a mention, a link or a picture would begin or continue."""
_INVISIBLE_SPACE = "\u200b"
_TEXT_CHARS = 500
SECTION_CHARS = 3000
_OPTIONS_CHARS = 1000
_CONTEXT_CHARS = 700
_BUTTON_CHARS = 75
URL_CHARS = 3000
_MAX_BUTTONS = 5


def slack(webhook: Webhook, notice: Notice) -> HttpRequest:
    document: dict[str, Any] = {"text": _text(notice)}
    if notice.answer_url is not None:
        document["blocks"] = _blocks(notice, notice.answer_url)
    return json_request(webhook.url, document)


def _text(notice: Notice) -> str:
    """What a notification of Slack shows, and the message of services that know no blocks."""
    title = escaped(inactive(notice.title), _TEXT_CHARS)
    parts = [notice.text, *([notice.context] if notice.context else [])]
    said = (escaped(inactive(shortened(part, _TEXT_CHARS)), SECTION_CHARS) for part in parts)
    text = f"*{title}*\n" + "\n\n".join(said)
    return text if notice.url is None else f"{text}\n<{notice.url}>"


def _blocks(notice: Notice, answer_url: str) -> list[dict[str, Any]]:
    about = [mrkdwn(escaped(notice.skill, SECTION_CHARS)), mrkdwn(f"Run {notice.run_id}")]
    if notice.deadline is not None:
        about.append(mrkdwn(f"Answer by {date(notice.deadline, notice.zone)}"))
    buttons = [
        button(f"choose-{place}", each.label, each.url) for place, each in enumerate(notice.choices[:_MAX_BUTTONS])
    ]
    buttons.append(button("answer", "Answer…", answer_url))
    fitting = [each for each in buttons if len(each["url"]) <= URL_CHARS]
    return [
        {"type": "section", "text": mrkdwn(_question(notice))},
        {"type": "context", "elements": about},
        *([{"type": "actions", "elements": fitting}] if fitting else []),
    ]


def _question(notice: Notice) -> str:
    options = ""
    if len(notice.labels) > _MAX_BUTTONS:
        listed = "\n".join(f"• {label}" for label in notice.labels)
        options = "\n" + escaped(listed, _OPTIONS_CHARS)
    context = "\n\n" + escaped(notice.context, _CONTEXT_CHARS) if notice.context else ""
    title = f"*{escaped(notice.title, _TEXT_CHARS)}*\n"
    rest = context + options
    return title + escaped(notice.text, SECTION_CHARS - len(title) - len(rest)) + rest


def date(at: datetime, zone: tzinfo) -> str:
    """Shown in the time zone of the reader; by other programs than Slack, in `zone`."""
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}}, {{time}}|{moment(at, zone)}>"


def button(action_id: str, label: str, url: str) -> dict[str, Any]:
    text = {"type": "plain_text", "text": shortened(label, _BUTTON_CHARS), "emoji": False}
    return {"type": "button", "action_id": action_id, "text": text, "url": url}


def mrkdwn(text: str) -> dict[str, Any]:
    """`verbatim`: names and addresses in the text do not become links or mentions."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def inactive(text: str) -> str:
    """Shown as it is, also by a service that reads it as Markdown."""
    return _ACTIVE.sub(lambda found: found[0] + _INVISIBLE_SPACE, text)


def escaped(text: str, most: int) -> str:
    """At most `most` characters, never half of an escape sequence."""
    escaped = [_ESCAPES.get(letter, letter) for letter in text]
    if sum(map(len, escaped)) <= most:
        return "".join(escaped)
    room = most - 1
    for place, each in enumerate(escaped):
        if (room := room - len(each)) < 0:
            return "".join(escaped[:place]) + "…"
    return "".join(escaped)
