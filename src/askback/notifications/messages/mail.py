"""E-mails, with a plain text and an HTML part. No part loads anything from elsewhere.

A header says what is written here. `EmailMessage` would decode an encoded word of RFC 2047 in a text that an engine wrote,
with the line breaks in it, so it makes only the parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from html import escape

from askback.core.webhooks import Webhook
from askback.notifications.messages.notice import Notice
from askback.text.formatting import one_line

_POLICY = SMTP.clone(cte_type="7bit", raise_on_defect=False)
"""Every mail server takes 7-bit content."""
_SUBJECT_CHARS = 80
_HEADER_CHARS = 400
_LINE_CHARS = 76
_PLAIN = re.compile(r"[ -~]*")
_WORDS = re.compile(r"[A-Za-z0-9]+( [A-Za-z0-9]+)*")
_BUTTON = (
    "display:inline-block;padding:8px 14px;margin:0 0 6px;border:1px solid #3355bb;border-radius:6px;"
    "color:#3355bb;text-decoration:none"
)
_ALONE = (
    "The links lead to this question only, without a sign-in. Everybody who has one can answer: do not forward them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    sender: str
    recipient: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MailContent:
    subject: str
    plain: str
    html: str
    conversation: str | None = None
    """The id of what the mail is about, for mails that belong together."""


def mail(webhook: Webhook, notice: Notice, message_id: str, sender: str, now: datetime) -> Mail:
    """`message_id` is the same for every attempt, so that a mail server can drop a duplicate."""
    # Mail programs show the messages of a run as one conversation.
    conversation = f"run_{notice.run_id}" if notice.run_id else None
    content = MailContent(subject=_subject(notice), plain=_plain(notice), html=_html(notice), conversation=conversation)
    return composed(webhook, content, message_id, sender, now)


def composed(webhook: Webhook, content: MailContent, message_id: str, sender: str, now: datetime) -> Mail:
    name, address = parseaddr(sender)
    domain = address.rpartition("@")[2]
    headers = {
        "Subject": _header("Subject", content.subject),
        "From": f"{_display_name(name or 'Askback')} <{address}>",
        "To": webhook.address,
        "Date": format_datetime(now),
        "Message-ID": f"<{message_id}@{domain}>",
    }
    if content.conversation is not None:
        headers["References"] = f"<{content.conversation}@{domain}>"
    headers |= {"List-Id": f"Askback <askback.{domain}>", "Auto-Submitted": "auto-generated"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return Mail(sender=address, recipient=webhook.address, content=head.encode("ascii") + _parts(content))


def _parts(content: MailContent) -> bytes:
    """The body, with the headers that describe it."""
    message = EmailMessage(_POLICY)
    message.set_content(content.plain)
    message.add_alternative(content.html, subtype="html")
    return message.as_bytes()


def _header(name: str, text: str) -> str:
    """The value of a header that a mail program shows as this text, even if it looks like an encoded word."""
    text = one_line(text, _HEADER_CHARS)
    return _folded(name, text, "us-ascii" if _PLAIN.fullmatch(text) and "=?" not in text else "utf-8")


def _display_name(name: str) -> str:
    return name if _WORDS.fullmatch(name) else _folded("From", one_line(name, _HEADER_CHARS), "utf-8")


def _folded(name: str, text: str, charset: str) -> str:
    """With `utf-8`, encoded words whose characters are safe in every header."""
    return Header(text, charset, maxlinelen=_LINE_CHARS, header_name=name).encode(linesep="\r\n")


def _subject(notice: Notice) -> str:
    if not notice.is_question:
        return notice.title
    return f"{notice.title}: {one_line(notice.text, _SUBJECT_CHARS)}"


def _plain(notice: Notice) -> str:
    parts = [notice.title, notice.text, *([notice.context] if notice.context else [])]
    if notice.choices:
        parts += [f"{each.label}\n{each.url}" for each in notice.choices]
    else:
        parts += [f"- {label}" for label in notice.labels]
    if notice.answer_url is not None:
        parts.append(f"{notice.how}:\n{notice.answer_url}")
    elif notice.run_url is not None:
        parts.append(notice.run_url)
    if notice.deadline_text is not None:
        parts.append(f"Answer by {notice.deadline_text}")
    if notice.run_id:
        parts.append(f"-- \nRun {notice.run_id}" + (f"\n{_ALONE}" if notice.answer_url else ""))
    return "\n\n".join(parts) + "\n"


def _html(notice: Notice) -> str:
    body = [f"<h2 style='font-size:18px'>{escape(notice.title)}</h2>"]
    body.append(f"<p style='white-space:pre-wrap'>{escape(notice.text)}</p>")
    if notice.context:
        body.append(f"<p style='white-space:pre-wrap;color:#444'>{escape(notice.context)}</p>")
    if notice.choices:
        body += [f"<div>{link(each.url, each.label)}</div>" for each in notice.choices]
    elif notice.labels:
        body.append(f"<ul>{''.join(f'<li>{escape(label)}</li>' for label in notice.labels)}</ul>")
    if notice.answer_url is not None:
        body.append(f"<p>{escape(notice.how)}:</p><div>{link(notice.answer_url, 'Answer…')}</div>")
    elif notice.run_url is not None:
        body.append(f"<div>{link(notice.run_url, 'Open the run')}</div>")
    if notice.deadline_text is not None:
        body.append(f"<p>Answer by {escape(notice.deadline_text)}</p>")
    if notice.run_id:
        alone = f"<br>{escape(_ALONE)}" if notice.answer_url else ""
        body.append(f"<p style='color:#666;font-size:12px'>Run {escape(notice.run_id)}{alone}</p>")
    return page("".join(body))


def page(body: str) -> str:
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'></head>"
        f"<body style='font-family:sans-serif'>{body}</body></html>\n"
    )


def link(url: str, label: str) -> str:
    return f"<a href='{escape(url)}' style='{_BUTTON}'>{escape(label)}</a>"
