"""Digests: one message that lists open questions. All texts in it are without control characters, and short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from html import escape
from typing import Any, assert_never

import msgspec

from askback.core.runs import Run
from askback.core.webhooks import Webhook, WebhookKind
from askback.notifications.messages.http_request import HttpRequest, json_request
from askback.notifications.messages.mail import Mail, MailContent, composed, link, page
from askback.notifications.messages.notice import subject
from askback.notifications.messages.ntfy import HIGH, REQUEST_BYTES, published
from askback.notifications.messages.slack import URL_CHARS, button, date, escaped, inactive, mrkdwn
from askback.notifications.sender import Refused
from askback.text.formatting import count, moment, one_line

_SUBJECT_CHARS = 80
_QUESTION_CHARS = 150
_NTFY_BYTES = 4000
"""An ntfy server with default settings makes a file of a message with more than 4,096 bytes."""
_ESCAPED_CHARS = 300
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_FORWARD = (
    "The links lead to these questions only, without a sign-in. Everybody who has one can answer: do not forward them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestEntry:
    """One open question."""

    about: str
    """The skill and the summary of the run."""
    question: str
    asked_at: datetime
    deadline: datetime | None
    answer_url: str | None = None
    """The page of the question, for its recipient alone."""
    run_url: str | None = None
    """The page of the run, from `notifications.link`."""

    @classmethod
    def of(cls, run: Run, *, answer_url: str | None, run_url: str | None) -> DigestEntry:
        asked = run.pending_interaction
        assert asked is not None, "only open questions are listed"
        lines = [one_line(line, _QUESTION_CHARS) for line in asked.heading.splitlines()]
        return cls(
            about=subject(run, _SUBJECT_CHARS),
            question=next(filter(None, lines), "a question without text"),
            asked_at=asked.asked_at,
            deadline=run.wait_deadline_at,
            answer_url=answer_url,
            run_url=run_url,
        )

    @property
    def url(self) -> str | None:
        return self.answer_url or self.run_url

    @property
    def url_label(self) -> str:
        return "Open the run" if self.answer_url is None else "Answer…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """`entries` are the oldest questions of `total`."""

    entries: tuple[DigestEntry, ...]
    total: int
    at: datetime
    zone: tzinfo = UTC
    """In which deadlines are shown."""

    @property
    def title(self) -> str:
        return f"{count(self.total, 'question')} {'is' if self.total == 1 else 'are'} waiting"

    @property
    def rest(self) -> str | None:
        """How many are not listed."""
        missing = self.total - len(self.entries)
        return f"and {missing:,} more" if missing > 0 else None

    def when(self, entry: DigestEntry, deadline: str | None = None) -> str:
        """How old the question is, and until when it can be answered; `deadline`: in the words of a service."""
        age = f"asked {_age((self.at - entry.asked_at).total_seconds())} ago"
        if entry.deadline is None:
            return age
        return f"{age}, answer by {deadline or moment(entry.deadline, self.zone)}"


def digest_message(webhook: Webhook, digest: Digest, message_id: str, sender: str | None) -> HttpRequest | Mail:
    """`message_id` is the same for every attempt. Raises `Refused`."""
    match webhook.kind:
        case WebhookKind.NTFY:
            return _ntfy(webhook, digest)
        case WebhookKind.SLACK:
            return _slack(webhook, digest)
        case WebhookKind.EMAIL:
            if sender is None:
                raise Refused("the settings have no notifications.email.sender")
            content = MailContent(subject=digest.title, plain=_plain(digest), html=_html(digest))
            return composed(webhook, content, message_id, sender, digest.at)
        case WebhookKind.STANDARD | WebhookKind.TELEGRAM | WebhookKind.PUSH:
            raise Refused(f"there is no digest for the kind {webhook.kind}")
        case kind:
            assert_never(kind)


def _age(seconds: float) -> str:
    """In the largest unit that tells it well."""
    if seconds < 1.5 * _HOUR:
        return count(max(round(seconds / _MINUTE), 0), "minute")
    if seconds < 1.5 * _DAY:
        return count(round(seconds / _HOUR), "hour")
    return count(round(seconds / _DAY), "day")


# ntfy.


def _ntfy(webhook: Webhook, digest: Digest) -> HttpRequest:
    """As many questions as fit. A tap opens the oldest one."""
    while True:
        text = _plain_list(digest)
        message = {"title": digest.title, "message": text, "priority": HIGH, "tags": ["question"]}
        if digest.entries and (url := digest.entries[0].url) is not None:
            message["click"] = url
        fits = len(text.encode()) <= _NTFY_BYTES and len(msgspec.json.encode(message)) < REQUEST_BYTES
        if fits or not digest.entries:
            return published(webhook, message)
        digest = replace(digest, entries=digest.entries[:-1])


def _plain_list(digest: Digest) -> str:
    return "\n\n".join((*_plain_entries(digest), *_rest(digest)))


def _plain_entries(digest: Digest) -> Iterator[str]:
    for number, entry in enumerate(digest.entries, 1):
        lines = [f"{number}. {entry.about}: {entry.question}", f"({digest.when(entry)})"]
        yield "\n".join(lines if entry.url is None else [*lines, entry.url])


def _rest(digest: Digest) -> tuple[str, ...]:
    return () if digest.rest is None else (digest.rest,)


# Slack.


def _slack(webhook: Webhook, digest: Digest) -> HttpRequest:
    """Services that know no blocks show the text."""
    listed = [_mrkdwn(digest, entry) for entry in digest.entries]
    inert = [replace(each, about=inactive(each.about), question=inactive(each.question)) for each in digest.entries]
    urls = ["" if entry.url is None else f"\n<{entry.url}>" for entry in digest.entries]
    title = f"*{escaped(digest.title, _ESCAPED_CHARS)}*"
    shown = [_mrkdwn(digest, entry) + url for entry, url in zip(inert, urls, strict=True)]
    document: dict[str, Any] = {"text": "\n".join((title, *shown, *_rest(digest)))}
    if any(entry.answer_url for entry in digest.entries):
        sections = [
            _section(text, entry, f"open-{place}")
            for place, (text, entry) in enumerate(zip(listed, digest.entries, strict=True))
        ]
        document["blocks"] = [_section(title), *sections, *map(_section, _rest(digest))]
    return json_request(webhook.url, document)


def _mrkdwn(digest: Digest, entry: DigestEntry) -> str:
    deadline = None if entry.deadline is None else date(entry.deadline, digest.zone)
    about, question = (escaped(text, _ESCAPED_CHARS) for text in (entry.about, entry.question))
    return f"• {about}: {question} ({digest.when(entry, deadline)})"


def _section(text: str, entry: DigestEntry | None = None, action_id: str = "") -> dict[str, Any]:
    section: dict[str, Any] = {"type": "section", "text": mrkdwn(text)}
    if entry is not None and entry.url is not None and len(entry.url) <= URL_CHARS:
        section["accessory"] = button(action_id, entry.url_label, entry.url)
    return section


# E-mail.


def _plain(digest: Digest) -> str:
    parts = [digest.title, _plain_list(digest)]
    if any(entry.answer_url for entry in digest.entries):
        parts.append(f"-- \n{_FORWARD}")
    return "\n\n".join(parts) + "\n"


def _html(digest: Digest) -> str:
    body = [f"<h2 style='font-size:18px'>{escape(digest.title)}</h2>"]
    for entry in digest.entries:
        opening = "" if entry.url is None else f"<br>{link(entry.url, entry.url_label)}"
        about = f"<span style='color:#666'>{escape(digest.when(entry))}</span>"
        body.append(f"<p><b>{escape(entry.about)}</b>: {escape(entry.question)}<br>{about}{opening}</p>")
    body += [f"<p>{escape(text)}</p>" for text in _rest(digest)]
    if any(entry.answer_url for entry in digest.entries):
        body.append(f"<p style='color:#666;font-size:12px'>{escape(_FORWARD)}</p>")
    return page("".join(body))
