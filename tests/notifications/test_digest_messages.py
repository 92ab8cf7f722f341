"""The formats of digests: within the limits of their services, whatever engines and skills write."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from html.parser import HTMLParser
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.webhooks import Webhook, WebhookKind
from askback.notifications.channels import DeliveryPolicy, ntfy, open_channels, slack
from askback.notifications.channels.base import Refused
from askback.notifications.channels.email import Mail, digest_mail
from askback.notifications.channels.webhook import HttpRequest
from askback.notifications.notice import Digest, DigestEntry
from support.asking import HOSTILE, LINK, NOW, TEXTS, asking
from support.ntfy import request_problems
from support.slack import incoming_problems

LONG_LINK = LINK + "x" * 300
ENTRIES = st.lists(
    st.builds(
        lambda prompt, skill, url: DigestEntry.of(asking(prompt, [], skill), answer_url=url, run_url=None),
        TEXTS,
        TEXTS,
        st.sampled_from((None, LINK, LONG_LINK)),
    ),
    min_size=1,
    max_size=10,
)


def entry(prompt: str = "Which colour?", skill: str = "tested", url: str | None = LINK) -> DigestEntry:
    return DigestEntry.of(asking(prompt, ["red"], skill), answer_url=url, run_url="https://pages.example/run")


def digest(*entries: DigestEntry, more: int = 0) -> Digest:
    return Digest(entries=entries, total=len(entries) + more, at=NOW + timedelta(hours=3))


NTFY = Webhook(url="https://ntfy.example/my-topic", kind=WebhookKind.NTFY)
SLACK = Webhook(url="https://hooks.slack.example/services/T/B/x", kind=WebhookKind.SLACK)
EMAIL = Webhook(url="mailto:anna@example.org", kind=WebhookKind.EMAIL)


async def send(webhook: Webhook, listed: Digest) -> None:
    """With the channels of settings that name no mail server."""
    async with open_channels(DeliveryPolicy()) as channels:
        await channels[webhook.kind].send_digest(webhook, listed, "digest_1")


def ntfy_body(listed: Digest) -> dict[str, Any]:
    sent: HttpRequest = ntfy.digest_request(NTFY, listed)
    assert list(request_problems("/", sent.body)) == []
    body: dict[str, Any] = json.loads(sent.body)
    return body


def slack_body(listed: Digest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(slack.digest_request(SLACK, listed).body)
    assert list(incoming_problems(body)) == []
    return body


def mail_message(listed: Digest) -> EmailMessage:
    sent: Mail = digest_mail(EMAIL, listed, "digest_1", "Askback <askback@example.org>")
    assert sent.content.isascii()
    assert max(map(len, sent.content.split(b"\r\n"))) <= 998
    return cast(EmailMessage, message_from_bytes(sent.content, policy=default))


def part(message: EmailMessage, kind: str) -> str:
    found = message.get_body((kind,))
    assert found is not None
    return str(found.get_content())


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


@pytest.mark.contract("N-4")
def test_a_phone_shows_the_list_and_opens_the_oldest_question() -> None:
    body = ntfy_body(digest(entry(), entry("When?\nmore lines", "other", None), more=7))
    assert body["title"] == "9 questions are waiting"
    assert body["click"] == LINK
    assert body["message"].splitlines() == [
        "1. tested: Which colour?",
        "(asked 3 hours ago, answer by 2026-03-01 14:00 UTC)",
        LINK,
        "",
        "2. other: When?",
        "(asked 3 hours ago, answer by 2026-03-01 14:00 UTC)",
        "https://pages.example/run",
        "",
        "and 7 more",
    ]


def test_nothing_of_a_question_is_active_in_the_text_of_a_digest() -> None:
    text = slack_body(digest(entry("@all [x](https://evil.example)", "@here", url=None)))["text"]
    assert "@\u200ball [x]\u200b(https:\u200b//evil.example)" in text
    assert "@\u200bhere" in text


@pytest.mark.contract("N-4")
def test_slack_shows_a_button_for_each_question() -> None:
    body = slack_body(digest(entry(), entry("When?", "other"), more=1))
    title, *questions, rest = body["blocks"]
    assert title["text"]["text"] == "*3 questions are waiting*"
    assert [each["accessory"]["url"] for each in questions] == [LINK, LINK]
    assert "Which colour?" in questions[0]["text"]["text"]
    assert rest["text"]["text"] == "and 1 more"
    assert body["text"].count(LINK) == 2


@pytest.mark.contract("N-4")
def test_a_mail_has_the_list_as_text_and_as_a_page() -> None:
    message = mail_message(digest(entry()))
    assert message["Subject"] == "1 question is waiting"
    assert message["Message-ID"] == "<digest_1@example.org>"
    assert message["References"] is None
    assert LINK in part(message, "plain")
    assert "do not forward" in part(message, "plain")
    assert Tags(part(message, "html")).links == [LINK]


def test_without_links_nothing_says_that_there_are_some() -> None:
    listed = digest(DigestEntry.of(asking("When?", []), answer_url=None, run_url=None))
    assert "click" not in ntfy_body(listed)
    assert "blocks" not in slack_body(listed)
    message = mail_message(listed)
    assert "forward" not in part(message, "plain") + part(message, "html")


@pytest.mark.contract("N-4")
@given(entries=ENTRIES, more=st.integers(0, 1_000_000))
def test_hostile_texts_stay_texts_within_the_limits(entries: list[DigestEntry], more: int) -> None:
    listed = digest(*entries, more=more)
    body = ntfy_body(listed)
    assert body["title"].startswith(f"{listed.total:,} ")
    shown = sum(line[:1].isdigit() for line in body["message"].splitlines())
    assert shown == len(entries) or f"and {listed.total - shown:,} more" in body["message"]
    slack_body(listed)
    message = mail_message(listed)
    assert len(message.keys()) == len(set(message.keys())) == 9
    page = Tags(part(message, "html"))
    assert page.found <= {"html", "head", "meta", "body", "h2", "p", "b", "br", "span", "a"}
    assert set(page.links) <= {LINK, LONG_LINK}


@pytest.mark.parametrize("text", HOSTILE)
def test_every_question_has_a_line(text: str) -> None:
    made_of = entry(text, text)
    assert made_of.question
    assert made_of.about
    assert "\n" not in made_of.question + made_of.about


@pytest.mark.parametrize(
    ("age_sec", "words"),
    [
        (-5, "0 minutes"),
        (60, "1 minute"),
        (3600, "60 minutes"),
        (7200, "2 hours"),
        (86_400, "24 hours"),
        (400_000, "5 days"),
    ],
)
def test_ages_are_in_the_largest_fitting_unit(age_sec: float, words: str) -> None:
    listed = Digest(entries=(entry(),), total=1, at=NOW + timedelta(seconds=age_sec))
    assert listed.when(listed.entries[0]).startswith(f"asked {words} ago")


def test_entries_name_the_summary_and_the_time_zone() -> None:
    asked = asking("When?", [], summary="Lisbon · 3")
    made_of = DigestEntry.of(asked, answer_url=LINK, run_url=None)
    listed = Digest(entries=(made_of,), total=1, at=NOW, zone=ZoneInfo("Europe/Berlin"))
    for text in (ntfy_body(listed)["message"], slack_body(listed)["text"], part(mail_message(listed), "plain")):
        assert "tested (Lisbon · 3): When?" in text
        assert "2026-03-01 15:00 CET (Europe/Berlin)" in text


@pytest.mark.parametrize("kind", [WebhookKind.STANDARD, WebhookKind.TELEGRAM, WebhookKind.PUSH])
def test_other_kinds_get_no_digest(kind: WebhookKind) -> None:
    with pytest.raises(Refused):
        asyncio.run(send(Webhook(url="https://one.example/", kind=kind), digest(entry())))


def test_a_mail_needs_a_sender() -> None:
    with pytest.raises(Refused, match=r"notifications\.email\.sender"):
        asyncio.run(send(EMAIL, digest(entry())))
