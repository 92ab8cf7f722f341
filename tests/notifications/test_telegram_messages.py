"""What the bot says: sizes, languages, and the data of buttons; without a server."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.actors import ASKBACK, Actor, Channel
from askback.core.interactions import FormField, Interaction, InteractionOutcome
from askback.core.runs import Run
from askback.notifications.channels.telegram.answering import Chat, Strangers, people_of
from askback.notifications.channels.telegram.messages import (
    ButtonKey,
    cut_units,
    in_chat,
    outcome,
    question,
    units,
    with_link_as_text,
)
from askback.notifications.channels.telegram.texts import Texts, texts_in
from store.lives import new_run

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEXT = st.text(st.characters(), max_size=6000)


def asked(**changes: Any) -> Interaction:
    usual: dict[str, Any] = {"interaction_id": "q", "kind": "text", "prompt": "Which?", "attempt_number": 1}
    return Interaction(asked_at=NOON, **(usual | changes))


def run(**changes: Any) -> Run:
    return new_run("1m7gekfsksrgk77s", **changes)


def test_both_languages_say_the_same_things() -> None:
    assert list(texts_in("en")) == list(texts_in("zh"))
    for key, text in texts_in("en").items():
        names = [
            {name for _, name, _, _ in string.Formatter().parse(each) if name} for each in (text, texts_in("zh")[key])
        ]
        assert names[0] == names[1], key


@given(prompt=TEXT, options=st.lists(TEXT, max_size=120), context=TEXT, summary=TEXT)
def test_every_question_fits_into_a_message(prompt: str, options: list[str], context: str, summary: str) -> None:
    made = question(
        run(summary=summary, wait_deadline_at=NOON + timedelta(hours=1)),
        asked(prompt=prompt, options=tuple(options), context=context),
        Texts(),
        NOON,
        "https://askback.example/answers/x",
    )
    assert units(made.text) <= 4096
    assert made.text.strip()
    assert "Answer by 2026-01-01 13:00 UTC (1 h 00 min left)." in made.text
    [bold] = made.parameters["entities"]
    assert 0 < bold["length"] <= units(made.text)
    for row in made.keyboard:
        for button in row:
            assert button["text"].strip()
            assert 1 <= len(button.get("callback_data", "x").encode()) <= 64


def test_a_deadline_is_shown_in_the_time_zone_of_the_settings() -> None:
    waiting = run(wait_deadline_at=NOON + timedelta(hours=1))
    made = question(waiting, asked(), Texts(), NOON, None, zone=ZoneInfo("Europe/Berlin"))
    assert "Answer by 2026-01-01 14:00 CET (Europe/Berlin) (1 h 00 min left)." in made.text


def test_a_long_context_does_not_push_the_options_out() -> None:
    options = tuple(f"option {number}: {'long ' * 20}" for number in range(1, 13))
    made = question(run(), asked(options=options, context="Background. " * 600), Texts(), NOON, None)
    assert all(option.strip() in made.text for option in options)
    assert units(made.text) <= 4096


def test_a_form_lists_its_questions_and_a_link_that_is_no_button_is_named() -> None:
    fields = (FormField(id="guests", prompt="How many?"), FormField(id="food", prompt="What kind?"))
    link = "http://localhost/answers/x"
    made = question(run(), asked(kind="form", questions=fields), Texts(), NOON, link)
    assert "1. How many?\n2. What kind?" in made.text
    assert "Tap “Open”" in made.text
    as_text = with_link_as_text(made, link, Texts())
    assert "Tap “Open”" not in as_text.text
    assert "Open its address" in as_text.text
    assert link in as_text.text


@given(text=TEXT, most=st.integers(1, 100))
def test_a_cut_never_splits_a_character(text: str, most: int) -> None:
    plain = text.encode(errors="replace").decode()
    made = cut_units(plain, most)
    assert units(made) <= most
    made.encode()


@given(interaction_id=TEXT, index=st.integers(0, 49))
def test_the_data_of_a_button_is_short_and_is_read_again(interaction_id: str, index: int) -> None:
    key = ButtonKey.of("1m7gekfsksrgk77s", interaction_id, index)
    assert len(str(key).encode()) <= 64
    assert ButtonKey.parse(str(key)) == key
    assert key.belongs_to(asked(interaction_id=interaction_id))
    assert not key.belongs_to(asked(interaction_id=interaction_id + "x"))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"outcome": "answered", "answered_with": Actor(name="anna", via=Channel.PAGE), "response": 3},
            "by anna (page): 3",
        ),
        ({"outcome": "answered", "response": "x"}, "Answered."),
        ({"outcome": "auto_decided", "answered_with": ASKBACK}, "the engine decides itself"),
        ({"outcome": "expired", "answered_with": ASKBACK}, "deadline has passed"),
        ({"outcome": "canceled", "answered_with": Actor(name="bob", via=Channel.CLI)}, "canceled by bob (cli)"),
        ({"outcome": "canceled", "answered_with": ASKBACK}, "was canceled."),
        ({"outcome": "abandoned"}, "no longer needs an answer"),
    ],
)
def test_a_closed_question_says_how_it_ended(changes: dict[str, Any], line: str) -> None:
    ended = asked(**changes | {"outcome": InteractionOutcome(changes["outcome"])})
    assert line in outcome(ended, Texts())


@pytest.mark.parametrize("kind", ["secret", "file", "form"])
def test_the_answer_to_what_a_chat_does_not_take_is_not_shown(kind: str) -> None:
    by = Actor(name="anna", via=Channel.PAGE)
    closed = asked(kind=kind, outcome=InteractionOutcome.ANSWERED, response="hunter2", answered_with=by)
    assert not in_chat(closed)
    assert outcome(closed, Texts()) == "✅ Answered by anna (page)."


def test_a_stranger_gets_one_response_per_hour() -> None:
    strangers = Strangers()
    assert strangers.is_first(1, NOON)
    assert not strangers.is_first(1, NOON + timedelta(minutes=59))
    assert strangers.is_first(2, NOON)
    assert strangers.is_first(1, NOON + timedelta(minutes=61))
    for number in range(5000):
        strangers.is_first(number, NOON)
    assert len(strangers._seen) <= 1000


def test_a_group_may_not_answer() -> None:
    people = people_of([Chat(id=5, name="anna"), Chat(id=-5, name="team")])
    assert people == {5: Chat(id=5, name="anna")}
