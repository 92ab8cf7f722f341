"""The formats of messages: within the limits of their services, whatever an engine, a skill or an option is called."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, timedelta, tzinfo
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from email.utils import parseaddr
from html.parser import HTMLParser
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from askback.core.interactions import FormField, Json
from askback.core.runs import Run, RunState
from askback.core.webhooks import Webhook, WebhookKind
from askback.notifications.channels import ntfy, slack
from askback.notifications.channels.base import Message
from askback.notifications.channels.email import Mail, notice_mail
from askback.notifications.channels.push import question_payload
from askback.notifications.channels.webhook import HttpRequest
from askback.notifications.notice import Notice
from askback.text.formatting import cut, one_line
from support.asking import LINK, NOW, TEXTS, asking
from support.ntfy import request_problems
from support.slack import incoming_problems

MAIL_HEADERS = [
    *("Subject", "From", "To", "Date", "Message-ID", "References", "List-Id", "Auto-Submitted"),
    *("MIME-Version", "Content-Type"),
]
OPTIONS = st.one_of(
    TEXTS,
    st.builds(lambda label, value: {"label": label, "value": value}, TEXTS, TEXTS),
    st.integers(),
    st.booleans(),
)
CONTEXTS = st.one_of(TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3), st.lists(st.integers(), max_size=3), st.none())


def made(kind: WebhookKind, run: Run, *, link: str | None = LINK, buttons: bool = False, zone: tzinfo = UTC) -> Any:
    url = {
        WebhookKind.NTFY: "https://ntfy.example/my-topic",
        WebhookKind.SLACK: "https://hooks.slack.example/services/T/B/x",
        WebhookKind.EMAIL: "mailto:anna@example.org",
    }[kind]
    notice = Notice.of(run, run.state, answer_url=link, zone=zone)
    message = Message(webhook=Webhook(url=url, kind=kind), id="msg_1", at=NOW, notice=notice, document=None)
    match kind:
        case WebhookKind.NTFY:
            return ntfy.request(message, answer_buttons=buttons)
        case WebhookKind.SLACK:
            return slack.request(message)
        case _:
            return notice_mail(message, "Askback <askback@example.org>")


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
@given(prompt=TEXTS, about=TEXTS, context=CONTEXTS, options=st.lists(OPTIONS, max_size=30), buttons=st.booleans())
@example(prompt='"' * 32_000, about="\\" * 400, context='"' * 32_000, options=['"' * 200] * 30, buttons=True)
def test_ntfy_takes_whatever_is_asked(
    prompt: str, about: str, context: Json, options: list[Json], buttons: bool
) -> None:
    body = ntfy_body(asking(prompt, options, about, context=context, summary=about), buttons=buttons)
    assert body["click"] == LINK
    assert len(body.get("actions", [])) == min(len(options), 3)
    assert "2026-03-01 14:00 UTC" in body["message"]
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", body["message"] + body["title"]) is None


@pytest.mark.contract("N-3")
@given(prompt=TEXTS, about=TEXTS, context=CONTEXTS, options=st.lists(OPTIONS, max_size=30))
@example(prompt="<&>" * 10_000, about="&" * 400, context="<&>" * 10_000, options=["<" * 200] * 30)
def test_slack_takes_whatever_is_asked(prompt: str, about: str, context: Json, options: list[Json]) -> None:
    body = slack_body(asking(prompt, options, about, context=context, summary=about))
    buttons = body["blocks"][-1]["elements"]
    assert [each["url"] for each in buttons] == [f"{LINK}?choose={n}" for n in range(min(len(options), 5))] + [LINK]
    assert body["text"].endswith(f"\n<{LINK}>")


ACTIVE = re.compile(r"@\w|[#~]\w|]\(|]\[|]:|```|\w:(//|\w)|www\.|<[^/]", re.IGNORECASE)
"""What Slack or Mattermost would show as a mention, a link or a picture."""


@pytest.mark.contract("N-3")
@given(prompt=TEXTS, about=TEXTS, context=TEXTS, link=st.sampled_from([LINK, None]))
@example(prompt="Which?", about="@all", context="@channel @here ![](https://evil.example/p.png)", link=LINK)
@example(
    prompt="@all @channel @here [x](https://evil.example) ![](https://evil.example/p.png)",
    about="@all",
    context="",
    link=None,
)
@example(
    prompt="[x][1]\n\n[1]: https://evil.example\n~town-square #tag a@evil.example",
    about="[x](y:z)",
    context="[1]: https://evil.example",
    link=LINK,
)
@example(prompt="WWW.evil.example mailto:x tel:1 ```", about="<!channel>", context="```<!here>", link=LINK)
def test_nothing_is_active_in_the_text_for_slack_and_mattermost(
    prompt: str, about: str, context: str, link: str | None
) -> None:
    run = asking(prompt, [], about, context=context, summary=about)
    text = slack_body(run, link=link)["text"].removesuffix(f"\n<{LINK}>")
    assert ACTIVE.search(text) is None
    notice = Notice.of(run, run.state)
    shown = text.replace("\u200b", "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    context = f"\n\n{cut(notice.context, 500)}" if notice.context else ""
    assert shown == f"*{notice.title}*\n{cut(notice.text, 500)}{context}"


@pytest.mark.contract("N-3")
@given(prompt=TEXTS, about=TEXTS, context=CONTEXTS, options=st.lists(OPTIONS, max_size=30))
def test_an_e_mail_has_no_header_link_or_element_but_its_own(
    prompt: str, about: str, context: Json, options: list[Json]
) -> None:
    mail = mail_message(asking(prompt, options, about, context=context, summary=about))
    assert list(mail.keys()) == MAIL_HEADERS
    assert (mail["To"], mail["From"]) == ("anna@example.org", "Askback <askback@example.org>")
    assert len(str(mail["Subject"])) <= 220
    page = html_of(mail)
    assert {tag for tag, _ in page.tags} <= {"html", "head", "meta", "body", "h2", "p", "div", "a", "br"}
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == [f"{LINK}?choose={n}" for n in range(len(options))] + [LINK]
    assert all(attributes.keys() <= {"style", "href", "lang", "charset"} for _, attributes in page.tags)


def encoded_word(content: bytes, encoding: str, charset: str) -> str:
    """An encoded word of RFC 2047."""
    if encoding in "bB":
        return f"=?{charset}?{encoding}?{b64encode(content).decode()}?="
    return f"=?{charset}?{encoding}?{''.join(f'={byte:02X}' for byte in content)}?="


INJECTED = (
    b"\r\nReply-To: e@evil.example\r\nContent-Type: text/html\r\n\r\n<b>X",
    b"x\nBcc: everybody@evil.example\n",
    b"\rBcc: everybody@evil.example",
    "safe \u202egnp.exe".encode(),
    "\u2028Bcc: x\u0085Bcc: y".encode(),
    b"=?utf-8?q?=0D=0ABcc:_x?=",
)
ENCODED = st.builds(
    encoded_word,
    st.one_of(st.sampled_from(INJECTED), st.binary(max_size=60)),
    st.sampled_from(["b", "B", "q", "Q"]),
    st.sampled_from(["utf-8", "UTF-8*en", "us-ascii", "iso-8859-1", "utf-7", "unknown-8bit", "no-charset"]),
)
WRITTEN = st.lists(st.one_of(ENCODED, st.sampled_from([" ", "\t", "\n", "a", "哪", "?=", "=?", '"', ","])), max_size=6)


@pytest.mark.contract("N-3")
@given(prompt=WRITTEN.map("".join), about=WRITTEN.map("".join))
@example(prompt=encoded_word(INJECTED[0], "b", "utf-8"), about="tested")
@example(prompt="x" * 50 + encoded_word(INJECTED[1], "q", "utf-8"), about=encoded_word(INJECTED[3], "q", "utf-8"))
def test_an_encoded_word_in_a_question_is_not_decoded_by_an_e_mail(prompt: str, about: str) -> None:
    run = asking(prompt, [], about, context=about, summary=about)
    mail, notice = mail_message(run), Notice.of(run, run.state, answer_url=LINK)
    assert list(mail.keys()) == MAIL_HEADERS
    assert mail["Subject"] == f"{notice.title}: {one_line(notice.text, 80)}".strip()
    assert mail.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]
    assert plain_of(mail).replace("\r\n", "\n").startswith(f"{notice.title}\n\n{notice.text}\n\n")
    assert html_of(mail).text.replace("\r\n", "\n").startswith(notice.title + notice.text)


@pytest.mark.parametrize(
    "sender",
    [
        encoded_word(b"\nB:y", "b", "utf-8") + " <askback@example.org>",
        '"A \\"quoted\\", name" <askback@example.org>',
        "Équipe <askback@example.org>",
        "Ask back <askback@example.org>",
    ],
)
def test_the_sender_of_an_e_mail_is_called_as_in_the_settings(sender: str) -> None:
    run = asking("Which?", [])
    notice = Notice.of(run, run.state)
    webhook = Webhook(url="mailto:anna@example.org", kind=WebhookKind.EMAIL)
    sent = notice_mail(Message(webhook=webhook, id="msg_1", at=NOW, notice=notice, document=None), sender)
    assert isinstance(sent, Mail)
    mail = cast(EmailMessage, message_from_bytes(sent.content, policy=default))
    assert list(mail.keys()) == MAIL_HEADERS
    (address,) = mail["From"].addresses
    assert (address.display_name, address.addr_spec) == (parseaddr(sender)[0], "askback@example.org")


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


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "string", "format": "password"}, {"type": "null"}]},
        {"properties": {"login": {"properties": {"pin": {"writeOnly": True}}}}},
        {"$ref": "https://schemas.example/unknown.json"},
    ],
)
def test_no_message_offers_an_answer_to_a_question_for_a_declared_secret(schema: dict[str, Any]) -> None:
    run = asking("Which key?", ["key-one", "key-two"])
    assert run.pending_interaction is not None
    asked = replace(run.pending_interaction, response_schema=schema)
    run = replace(run, pending_interaction=asked)
    assert Notice.of(run, run.state, answer_url=LINK).choices == ()
    assert question_payload(run, asked, shows_text=True)["options"] == []
    for sent in (ntfy_body(run, buttons=True), slack_body(run), mail_message(run).as_string()):
        assert "key-one" not in str(sent)
        assert "choose=" not in str(sent)


def test_no_channel_shows_text_in_another_direction_than_it_has() -> None:
    """A bidirectional control could make `exe.jpg` of `gpj.exe`, or yes of no."""
    run = asking("Open \u202egpj.exe\u2066?", ["\u202eon", "no\u200e"], skill="tested")
    assert run.pending_interaction is not None
    pushed = question_payload(run, run.pending_interaction, shows_text=True)
    for sent in (pushed, ntfy_body(run), slack_body(run), mail_message(run).get_body().get_content()):  # type: ignore[union-attr]
        assert not set(str(sent)) & set("\u202e\u2066\u200e")
        assert not {"\\u202e", "\\u2066"} & {str(sent)[at : at + 6] for at in range(len(str(sent)))}


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


CONTEXT = {"mismatched files": ["a.txt", "b & c.txt"], "dry run": True}
IN_WORDS = "a.txt, b & c.txt"


@pytest.mark.contract("N-3")
def test_every_message_has_the_context_of_the_question_and_the_summary_of_the_run() -> None:
    run = asking("Overwrite?", ["yes", "no"], context=CONTEXT, summary="Lisbon · 3")
    title = "tested (Lisbon · 3) has a question"
    ntfy, slack, mail = ntfy_body(run), slack_body(run), mail_message(run)
    assert ntfy["title"] == title
    assert IN_WORDS in ntfy["message"]
    assert mail["Subject"] == f"{title}: Overwrite?"
    assert IN_WORDS in plain_of(mail)
    assert IN_WORDS in html_of(mail).text
    for text in (slack["text"], slack["blocks"][0]["text"]["text"]):
        assert text.startswith(f"*{title}*\nOverwrite?\n\n")
        assert "a.txt, b &amp; c.txt" in text


def test_the_end_of_a_run_names_its_summary() -> None:
    run = asking("", [], summary="Lisbon · 3").evolve(state=RunState.FAILED, pending_interaction=None)
    assert ntfy_body(run, link=None)["title"] == "tested (Lisbon · 3) failed"


def test_a_context_of_any_depth_is_shown() -> None:
    deep: Json = "x"
    for _ in range(600):
        deep = [{"in": deep}]
    assert "Which colour?" in ntfy_body(asking("Which colour?", [], context=deep))["message"]


def test_a_long_context_is_cut_and_leaves_the_question_whole() -> None:
    run = asking("Which colour?", ["red", "blue"], context="x" * 30_000)
    for text in (ntfy_body(run)["message"], slack_body(run)["blocks"][0]["text"]["text"], plain_of(mail_message(run))):
        assert "Which colour?" in text
        assert "xxx…" in text
    assert len(ntfy_body(run)["actions"]) == 2


@pytest.mark.parametrize(
    ("kind", "options", "schema", "how"),
    [
        ("text", [], None, "Answer in your own words:"),
        ("choice", ["red"], None, "Or answer in your own words:"),
        ("text", [], {"type": "integer"}, "Answer here:"),
        ("text", [], {"type": "object", "properties": {"days": {"type": "integer"}}}, "Fill in the form:"),
        ("file", [], None, "Answer with a file:"),
        ("secret", [], None, "The answer is secret: enter it on this page, and never in a message:"),
    ],
)
def test_an_e_mail_says_how_its_question_is_answered(
    kind: str, options: list[Json], schema: dict[str, Any] | None, how: str
) -> None:
    run = asking("What?", options, kind=kind)
    assert run.pending_interaction is not None
    run = run.evolve(pending_interaction=replace(run.pending_interaction, response_schema=schema))
    mail = mail_message(run)
    assert f"\n{how}\n{LINK}\n" in plain_of(mail).replace("\r\n", "\n")
    assert how in html_of(mail).text


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Europe/Berlin", "2026-03-01 15:00 CET (Europe/Berlin)"),
        ("America/Sao_Paulo", "2026-03-01 11:00 UTC-03 (America/Sao_Paulo)"),
        ("UTC", "2026-03-01 14:00 UTC"),
    ],
)
def test_deadlines_are_in_the_time_zone_of_the_settings(zone: str, shown: str) -> None:
    run = asking("Which?", ["red"])
    sent = [made(kind, run, zone=ZoneInfo(zone)) for kind in (WebhookKind.NTFY, WebhookKind.SLACK, WebhookKind.EMAIL)]
    assert f"Answer by {shown}" in json.loads(sent[0].body)["message"]
    assert f"|{shown}>" in json.loads(sent[1].body)["blocks"][1]["elements"][2]["text"]
    mail = cast(EmailMessage, message_from_bytes(sent[2].content, policy=default))
    assert f"Answer by {shown}" in plain_of(mail)
    assert f"Answer by {shown}" in html_of(mail).text


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
