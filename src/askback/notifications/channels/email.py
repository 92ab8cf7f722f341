"""E-mails, with a plain text and an HTML part. No part loads anything from elsewhere.

A header says what is written here. `EmailMessage` would decode an encoded word of RFC 2047 in a text that an engine wrote,
with the line breaks in it, so it makes only the parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from html import escape

from askback.core.webhooks import Webhook
from askback.notifications.channels.base import Channel, Message, Refused, Response
from askback.notifications.channels.smtp import Mail, MailSender
from askback.notifications.notice import Digest, Notice
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
_FORWARD = "The links lead to {} only, without a sign-in. Everybody who has one can answer: do not forward them."
_ALONE, _LISTED = _FORWARD.format("this question"), _FORWARD.format("these questions")


class EmailChannel(Channel):
    """`sender` and `address` are None if the settings have no mail server, or no address to send from."""

    def __init__(self, sender: MailSender | None, address: str | None) -> None:
        self._sender = sender
        self._address = address

    async def send(self, message: Message) -> Response:
        return await self._sent(notice_mail(message, self._own_address))

    async def send_digest(self, webhook: Webhook, digest: Digest, message_id: str) -> Response:
        return await self._sent(digest_mail(webhook, digest, message_id, self._own_address))

    @property
    def _own_address(self) -> str:
        if self._address is None:
            raise Refused("the settings have no notifications.email.sender")
        return self._address

    async def _sent(self, mail: Mail) -> Response:
        if self._sender is None:
            raise Refused("the settings have no notifications.email.url")
        return await self._sender.send(mail)


def notice_mail(message: Message, sender: str) -> Mail:
    notice = message.notice
    subject = f"{notice.title}: {one_line(notice.text, _SUBJECT_CHARS)}" if notice.is_question else notice.title
    headers = _headers(subject, message.webhook, message.at, message.id, sender, conversation=notice.run_id)
    return _mail(headers, _plain(notice), _html(notice), message.webhook, sender)


def digest_mail(webhook: Webhook, digest: Digest, message_id: str, sender: str) -> Mail:
    headers = _headers(digest.title, webhook, digest.at, message_id, sender)
    return _mail(headers, _plain_digest(digest), _html_digest(digest), webhook, sender)


def _headers(
    subject: str, webhook: Webhook, at: datetime, message_id: str, sender: str, *, conversation: str = ""
) -> dict[str, str]:
    """`message_id` is the same for every attempt, so that a mail server can drop a duplicate."""
    name, address = parseaddr(sender)
    domain, name = address.rpartition("@")[2], name or "Askback"
    shown = name if _WORDS.fullmatch(name) else _folded("From", one_line(name, _HEADER_CHARS), "utf-8")
    # A mail program shows the subject as it is, even if it looks like an encoded word.
    subject = one_line(subject, _HEADER_CHARS)
    charset = "us-ascii" if _PLAIN.fullmatch(subject) and "=?" not in subject else "utf-8"
    headers = {
        "Subject": _folded("Subject", subject, charset),
        "From": f"{shown} <{address}>",
        "To": webhook.address,
        "Date": format_datetime(at),
        "Message-ID": f"<{message_id}@{domain}>",
    }
    if conversation:
        # Mail programs show the messages of a run as one conversation.
        headers["References"] = f"<run_{conversation}@{domain}>"
    return headers | {"List-Id": f"Askback <askback.{domain}>", "Auto-Submitted": "auto-generated"}


def _mail(headers: Mapping[str, str], plain: str, html: str, webhook: Webhook, sender: str) -> Mail:
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    body = EmailMessage(_POLICY)
    body.set_content(plain)
    body.add_alternative(html, subtype="html")
    return Mail(sender=parseaddr(sender)[1], recipient=webhook.address, content=head.encode("ascii") + body.as_bytes())


def _folded(name: str, text: str, charset: str) -> str:
    """With `utf-8`, encoded words whose characters are safe in every header."""
    return Header(text, charset, maxlinelen=_LINE_CHARS, header_name=name).encode(linesep="\r\n")


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
        body += [f"<div>{_link(each.url, each.label)}</div>" for each in notice.choices]
    elif notice.labels:
        body.append(f"<ul>{''.join(f'<li>{escape(label)}</li>' for label in notice.labels)}</ul>")
    if notice.answer_url is not None:
        body.append(f"<p>{escape(notice.how)}:</p><div>{_link(notice.answer_url, 'Answer…')}</div>")
    elif notice.run_url is not None:
        body.append(f"<div>{_link(notice.run_url, 'Open the run')}</div>")
    if notice.deadline_text is not None:
        body.append(f"<p>Answer by {escape(notice.deadline_text)}</p>")
    if notice.run_id:
        alone = f"<br>{escape(_ALONE)}" if notice.answer_url else ""
        body.append(f"<p style='color:#666;font-size:12px'>Run {escape(notice.run_id)}{alone}</p>")
    return _page("".join(body))


def _plain_digest(digest: Digest) -> str:
    parts = [digest.title, digest.plain_list]
    if any(entry.answer_url for entry in digest.entries):
        parts.append(f"-- \n{_LISTED}")
    return "\n\n".join(parts) + "\n"


def _html_digest(digest: Digest) -> str:
    body = [f"<h2 style='font-size:18px'>{escape(digest.title)}</h2>"]
    for entry in digest.entries:
        opening = "" if entry.url is None else f"<br>{_link(entry.url, entry.url_label)}"
        about = f"<span style='color:#666'>{escape(digest.when(entry))}</span>"
        body.append(f"<p><b>{escape(entry.about)}</b>: {escape(entry.question)}<br>{about}{opening}</p>")
    body += [f"<p>{escape(text)}</p>" for text in digest.rest]
    if any(entry.answer_url for entry in digest.entries):
        body.append(f"<p style='color:#666;font-size:12px'>{escape(_LISTED)}</p>")
    return _page("".join(body))


def _page(body: str) -> str:
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'></head>"
        f"<body style='font-family:sans-serif'>{body}</body></html>\n"
    )


def _link(url: str, label: str) -> str:
    return f"<a href='{escape(url)}' style='{_BUTTON}'>{escape(label)}</a>"
