"""The formats of messages: within the limits of their services, whatever an engine, a skill or an option is called."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from html.parser import HTMLParser
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from askback.core.forms import FormField
from askback.core.interactions import Json
from askback.core.runs import Run, RunState
from askback.core.webhooks import Webhook, WebhookKind
from askback.webhooks.messages import MessageStyle, message
from askback.webhooks.messages.http_request import HttpRequest
from askback.webhooks.messages.mail import Mail
from askback.webhooks.messages.notice import Notice
from support.asking import LINK, NOW, TEXTS, asking
from support.ntfy import request_problems
from support.slack import incoming_problems

OPTIONS = st.one_of(
    TEXTS,
    st.builds(lambda label, value: {"label": label, "value": value}, TEXTS, TEXTS),
    st.integers(),
    st.booleans(),
)


def made(kind: WebhookKind, run: Run, *, link: str | None = LINK, buttons: bool = False) -> Any:
    url = {
        WebhookKind.NTFY: "https://ntfy.example/my-topic",
        WebhookKind.SLACK: "https://hooks.slack.example/services/T/B/x",
        WebhookKind.EMAIL: "mailto:anna@example.org",
    }[kind]
    notice = Notice.of(run, run.state, answer_url=link)
    style = MessageStyle(answer_buttons=buttons, sender="Askback <askback@example.org>")
    return message(Webhook(url=url, kind=kind), "msg_1", NOW, document=None, notice=notice, style=style)


def ntfy_body(run: Run, *, link: str | None = LINK, buttons: bool = False) -> dict[str, Any]:
    sent: HttpRequest = made(WebhookKind.NTFY, run, link=link, buttons=buttons)
    assert sent.url == "https://ntfy.example/"
    assert list(request_problems("/", sent.body)) == []
    body: dict[str, Any] = json.loads(sent.body)
    return body


def slack_body(run: Run, *, link: str | None = LINK) -> dict[str, Any]:
    sent: HttpRequest = made(WebhookKind.SLACK, run, link=link)
    body: dict[str, Any] = json.loads(sent.body)
    assert list(incoming_problems(body)) == []
    return body


def mail_message(run: Run, *, link: str | None = LINK) -> EmailMessage:
    sent: Mail = made(WebhookKind.EMAIL, run, link=link)
    assert (sent.sender, sent.recipient) == ("askback@example.org", "anna@example.org")
    assert sent.content.isascii()
    assert max(map(len, sent.content.split(b"\r\n"))) <= 998
    assert b"\n" not in sent.content.replace(b"\r\n", b"")
    return cast(EmailMessage, message_from_bytes(sent.content, policy=default))


class Page(HTMLParser):
    """The elements of an HTML text, and what is visible of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def html_of(mail: EmailMessage) -> Page:
    part = mail.get_body(("html",))
    assert part is not None
    return Page(part.get_content())


def plain_of(mail: EmailMessage) -> str:
    part = mail.get_body(("plain",))
    assert part is not None
    return str(part.get_content())


# Every message, whatever it says.


@pytest.mark.contract("N-3")
@given(prompt=TEXTS, skill=TEXTS, options=st.lists(OPTIONS, max_size=30), buttons=st.booleans())
@example(prompt='"' * 32_000, skill="\\" * 400, options=['"' * 200] * 30, buttons=True)
def test_ntfy_takes_whatever_is_asked(prompt: str, skill: str, options: list[Json], buttons: bool) -> None:
    body = ntfy_body(asking(prompt, options, skill), buttons=buttons)
    assert body["click"] == LINK
    assert len(body.get("actions", [])) == min(len(options), 3)
    assert "2026-03-01 14:00 UTC" in body["message"]
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", body["message"] + body["title"]) is None


@pytest.mark.contract("N-3")
@given(prompt=TEXTS, skill=TEXTS, options=st.lists(OPTIONS, max_size=30))
@example(prompt="<&>" * 10_000, skill="&" * 400, options=["<" * 200] * 30)
def test_slack_takes_whatever_is_asked(prompt: str, skill: str, options: list[Json]) -> None:
    body = slack_body(asking(prompt, options, skill))
    buttons = body["blocks"][-1]["elements"]
    assert [each["url"] for each in buttons] == [f"{LINK}?choose={n}" for n in range(min(len(options), 5))] + [LINK]
    assert f"<{LINK}>" in body["text"]


@pytest.mark.contract("N-3")
@given(prompt=TEXTS, skill=TEXTS, options=st.lists(OPTIONS, max_size=30))
def test_an_e_mail_has_no_header_link_or_element_but_its_own(prompt: str, skill: str, options: list[Json]) -> None:
    mail = mail_message(asking(prompt, options, skill))
    headers = ["Subject", "From", "To", "Date", "Message-ID", "References", "List-Id", "Auto-Submitted"]
    assert list(mail.keys()) == [*headers, "MIME-Version", "Content-Type"]
    assert (mail["To"], mail["From"]) == ("anna@example.org", "Askback <askback@example.org>")
    assert len(str(mail["Subject"])) <= 220
    page = html_of(mail)
    assert {tag for tag, _ in page.tags} <= {"html", "head", "meta", "body", "h2", "p", "div", "a", "br"}
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == [f"{LINK}?choose={n}" for n in range(len(options))] + [LINK]
    assert all(attributes.keys() <= {"style", "href", "lang", "charset"} for _, attributes in page.tags)


# What the messages say.


def test_options_of_ntfy_open_the_question_with_the_option_chosen() -> None:
    body = ntfy_body(asking("Which colour?", ["red", {"label": "Deep blue", "value": "blue"}]))
    assert body == {
        "topic": "my-topic",
        "title": "tested has a question",
        "message": "Which colour?\n\nAnswer by 2026-03-01 14:00 UTC",
        "priority": 4,
        "tags": ["question"],
        "click": LINK,
        "actions": [
            {"action": "view", "label": "red", "url": f"{LINK}?choose=0", "clear": True},
            {"action": "view", "label": "Deep blue", "url": f"{LINK}?choose=1", "clear": True},
        ],
    }


@pytest.mark.contract("N-3")
def test_options_of_ntfy_answer_at_once_only_if_the_settings_allow_it() -> None:
    run = asking("Which colour?", ["red", {"label": "Deep blue", "value": {"rgb": [0, 0, 255]}}, "x" * 400])
    assert {each["action"] for each in ntfy_body(run)["actions"]} == {"view"}
    first, second, third = ntfy_body(run, buttons=True)["actions"]
    assert first == {
        "action": "http",
        "label": "red",
        "url": LINK.replace("/answers/", "/v1/answers/"),
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": '{"response": "red"}',
        "clear": True,
    }
    assert json.loads(second["body"]) == {"response": {"rgb": [0, 0, 255]}}
    assert third["action"] == "view"


def test_more_options_than_buttons_are_listed() -> None:
    run = asking("Which?", [f"option {number}" for number in range(8)])
    assert "• option 7" in ntfy_body(run)["message"]
    assert "• option 7" in slack_body(run)["blocks"][0]["text"]["text"]


def test_titles_keep_characters_of_every_language() -> None:
    run = asking("哪种颜色？", [], skill="résumé-旅行")
    assert ntfy_body(run)["title"] == "résumé-旅行 has a question"
    assert mail_message(run)["Subject"] == "résumé-旅行 has a question: 哪种颜色？"


def test_slack_shows_the_deadline_in_the_time_of_the_reader() -> None:
    elements = slack_body(asking("Which?", ["red"]))["blocks"][1]["elements"]
    texts = [each["text"] for each in elements]
    assert texts[:2] == ["tested", "Run 1m7gekfsksrgk77s"]
    at = int((NOW + timedelta(hours=2)).timestamp())
    assert texts[2] == f"Answer by <!date^{at}^{{date_short_pretty}}, {{time}}|2026-03-01 14:00 UTC>"


def test_an_e_mail_says_the_same_in_both_parts() -> None:
    mail = mail_message(asking("Which colour?\nTake your time.", ["red", "blue & green"]))
    plain, page = plain_of(mail), html_of(mail)
    for text in ("Which colour?", "Take your time.", "red", "blue & green", "Answer by 2026-03-01 14:00 UTC"):
        assert text in plain
        assert text in page.text
    assert f"{LINK}?choose=1" in plain
    assert mail["Message-ID"] == "<msg_1@example.org>"
    assert mail["List-Id"] == "Askback <askback.example.org>"
    assert mail["Subject"] == "tested has a question: Which colour? Take your time."


def test_a_form_is_listed_question_by_question() -> None:
    run = asking("Before we start:", [])
    assert run.pending_interaction is not None
    fields = (
        FormField(id="colour", prompt="Which colour?", options=("red", {"label": "Deep blue", "value": "blue"})),
        FormField(id="size", prompt="Which\nsize?"),
        FormField(id="pin", prompt="The PIN?", kind="secret", options=("1234",)),
    )
    run = run.evolve(pending_interaction=replace(run.pending_interaction, questions=fields))
    expected = "Before we start: (3 questions)\n1. Which colour? (red / Deep blue)\n2. Which size?\n3. The PIN?"
    assert ntfy_body(run)["message"].startswith(expected)
    assert expected in slack_body(run)["blocks"][0]["text"]["text"]
    assert expected in plain_of(mail_message(run)).replace("\r\n", "\n")


def test_a_secret_has_no_buttons() -> None:
    run = asking("The password?", ["hunter2"], kind="secret")
    assert "actions" not in ntfy_body(run)
    assert [each["action_id"] for each in slack_body(run)["blocks"][-1]["elements"]] == ["answer"]


def test_without_a_public_url_the_options_are_listed_and_nothing_is_linked() -> None:
    run = asking("Which colour?", ["red", "blue"])
    assert ntfy_body(run, link=None).keys() == {"topic", "title", "message", "priority", "tags"}
    assert slack_body(run, link=None) == {"text": "*tested has a question*\nWhich colour?"}
    mail = mail_message(run, link=None)
    assert "http" not in plain_of(mail)
    assert "- blue" in plain_of(mail)


def test_the_end_of_a_run_has_no_buttons_and_is_not_urgent() -> None:
    run = asking("", []).evolve(state=RunState.SUCCEEDED, pending_interaction=None, wait_deadline_at=None)
    body = ntfy_body(run, link=None)
    assert (body["title"], body["message"], body["priority"]) == ("tested succeeded", "Run 1m7gekfsksrgk77s", 3)
    assert mail_message(run, link=None)["Subject"] == "tested succeeded"
