"""Questions in chats of a Telegram bot, and answers from there: a real server, and a double of the Bot API."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from askback.client import Client
from support.data_folder import FINISH, World
from support.program import until
from support.server import Server
from support.telegram import ANNA, BOB, EVE, GROUP, Message, Telegram, bot_settings, telegram, units

CHATS = [{"id": ANNA, "name": "anna"}, {"id": BOB, "name": "bob", "notify": False}, {"id": GROUP, "name": "team"}]
ANY = {"type": "object", "required": ["colour"]}
HOSTILE = '<b>bold</b> &amp; </pre><a href="http://evil.example">x</a> *_`[x](y) \u202egnp.exe \x00\x1b[31m {skill} @all /start'
LONG = "🦊" * 5000


@dataclass(slots=True, kw_only=True)
class Scene:
    """A server with a bot, and runs that ask."""

    world: World
    server: Server
    bot: Telegram
    client: Client
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def ask(self, **question: Any) -> str:
        """A run that waits for an answer to this. Returns its id."""
        name = f"asking-{next(self.numbers)}"
        asked = {"interaction_id": "colour", "prompt": "Which colour?"} | question
        self.world.skill([{"ask": asked}], [FINISH], name=name, output=ANY)
        return self.client.create_run(name, engine="scripted", mode="interactive").id

    def shown(self, run_id: str, chat: int = ANNA) -> Message:
        """The message with the question of this run."""
        return until(lambda: next((each for each in self.bot.said_to(chat) if run_id in each.text), None))

    def closed(self, run_id: str, chat: int = ANNA) -> str:
        """The text of the message after it was changed. It has no button any more."""
        message = self.shown(run_id, chat)
        until(lambda: message.edits)
        assert not message.buttons
        return message.text

    def notice(self, tap: str) -> str:
        until(lambda: tap in self.bot.notices)
        return str(self.bot.notices[tap].get("text", ""))

    def response_to(self, before: int, chat: int = ANNA) -> Message:
        """The first message in a chat after the first `before`."""
        until(lambda: len(self.bot.said_to(chat)) > before)
        return self.bot.said_to(chat)[before]

    def result(self, run_id: str) -> Any:
        until(lambda: self.client.get_run(run_id).state not in ("queued", "running", "waiting_user"))
        return self.client.result(run_id).data

    def answered(self, run_id: str) -> tuple[Any, str, str]:
        """The answer, who gave it, and by which way."""
        until(lambda: self.client.get_run(run_id).state != "waiting_user")
        [asked] = self.client.interactions(run_id)
        assert asked.answered_with is not None
        return asked.response, asked.answered_with.name, asked.answered_with.via


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    world = World(tmp_path_factory.mktemp("telegram"))
    with telegram() as bot, Server(world, env=bot_settings(bot, chats=CHATS)) as server, server.client() as client:
        yield Scene(world=world, server=server, bot=bot, client=client)


@pytest.mark.contract("N-3", "N-1", "N-7")
def test_a_tap_answers_and_the_run_goes_on(scene: Scene) -> None:
    run_id = scene.ask(options=["red", "blue"])
    message = scene.shown(run_id)
    assert "Which colour?" in message.text
    assert list(message.buttons) == ["red", "blue"]
    tap = scene.bot.tap(ANNA, message, "red")
    assert scene.result(run_id) == {"colour": "red"}
    assert scene.answered(run_id) == ("red", "anna", "telegram")
    assert scene.notice(tap) == "Your answer: red"
    [entry] = scene.client.audit(run_id=run_id, action="interaction.reply")
    assert (entry.actor.name, entry.actor.via) == ("anna", "telegram")
    for chat in (ANNA, GROUP):
        assert "Answered by anna (telegram): red" in scene.closed(run_id, chat)


@pytest.mark.contract("N-3")
def test_the_second_of_two_taps_is_told_who_was_first(scene: Scene) -> None:
    run_id = scene.ask(options=["red", "blue"])
    group, own = scene.shown(run_id, GROUP), scene.shown(run_id)
    sent = {label: button["callback_data"] for label, button in group.buttons.items()}
    first, second = scene.bot.tap(BOB, group, "", data=sent["blue"]), scene.bot.tap(ANNA, own, "", data=sent["red"])
    assert scene.notice(first) == "Your answer: blue"
    assert scene.notice(second) == "Already answered by bob (telegram): blue"
    assert scene.answered(run_id) == ("blue", "bob", "telegram")
    # A tap on an old message, on another device.
    late = scene.bot.tap(BOB, group, "", data=sent["red"])
    assert scene.notice(late) == "Already answered by bob (telegram): blue"


@pytest.mark.contract("N-3")
def test_a_reply_in_words_answers_a_question_without_options(scene: Scene) -> None:
    run_id = scene.ask()
    message = scene.shown(run_id)
    assert not message.buttons
    assert "Reply to this message" in message.text
    scene.bot.write(ANNA, "dark\nred & <green>", reply_to=message.id)
    assert scene.result(run_id) == {"colour": "dark\nred & <green>"}
    assert "Answered by anna (telegram): dark red & <green>" in scene.closed(run_id)


def test_own_words_are_an_answer_where_options_are_only_offered(scene: Scene) -> None:
    run_id = scene.ask(options=["red", "blue"])
    scene.bot.write(ANNA, "neither", reply_to=scene.shown(run_id).id)
    assert scene.result(run_id) == {"colour": "neither"}


def test_a_message_that_replies_to_nothing_is_no_answer(scene: Scene) -> None:
    run_id = scene.ask()
    scene.shown(run_id)
    before = len(scene.bot.said_to(ANNA))
    scene.bot.write(ANNA, "red")
    assert "reply to its message" in scene.response_to(before).text
    scene.bot.write(ANNA, "/start")
    assert scene.response_to(before + 1).text.startswith("Hello anna.")
    assert scene.client.get_run(run_id).state == "waiting_user"


@pytest.mark.contract("N-3")
def test_a_wrong_answer_is_explained_and_the_question_stays_open(scene: Scene) -> None:
    run_id = scene.ask(kind="number", response_schema={"type": "integer", "minimum": 3})
    message, before = scene.shown(run_id), len(scene.bot.said_to(ANNA))
    scene.bot.write(ANNA, "many", reply_to=message.id)
    again = scene.response_to(before)
    assert "not a valid answer" in again.text
    assert again.markup == {"force_reply": True, "selective": True}
    scene.bot.write(ANNA, None, reply_to=again.id)
    assert "must be a text" in scene.response_to(before + 1).text
    scene.bot.write(ANNA, "2", reply_to=again.id)
    assert "3" in scene.response_to(before + 2).text
    assert scene.client.get_run(run_id).state == "waiting_user"
    scene.bot.write(ANNA, " 4 ", reply_to=scene.response_to(before + 2).id)
    assert scene.answered(run_id) == (4, "anna", "telegram")


@pytest.mark.parametrize(
    ("question", "label", "answer"),
    [
        ({"kind": "confirm"}, "Yes", "yes"),
        ({"kind": "confirm", "response_schema": {"type": "boolean"}}, "No", False),
        ({"response_schema": {"enum": ["s", "m"], "enumNames": ["Small", "Medium"], "type": "string"}}, "Medium", "m"),
        (
            {"options": [{"label": "Red", "value": 7}, {"label": "Blue", "value": 2}]},
            "Red",
            7,
        ),
    ],
)
def test_every_closed_question_has_buttons(scene: Scene, question: dict[str, Any], label: str, answer: Any) -> None:
    run_id = scene.ask(**question)
    scene.bot.tap(ANNA, scene.shown(run_id), label)
    assert scene.answered(run_id) == (answer, "anna", "telegram")
    assert f"Answered by anna (telegram): {label}" in scene.closed(run_id)


@pytest.mark.contract("N-3")
def test_hostile_and_long_texts_arrive_as_texts(scene: Scene) -> None:
    options = [HOSTILE, "", LONG[:300], *(f"{LONG[:200]} {number}" for number in range(60))]
    run_id = scene.ask(prompt=HOSTILE + LONG, context={"why": HOSTILE}, options=options)
    message = scene.shown(run_id)
    assert "<b>bold</b> &amp; </pre>" in message.text
    assert "\u202e" not in message.text
    assert "[… cut: the question is too long for a message]" in message.text
    assert units(message.text) <= 4096
    buttons = [row[0] for row in (message.markup or {})["inline_keyboard"]]
    assert len(buttons) == 50
    scene.bot.tap(ANNA, message, "", data=buttons[0]["callback_data"])
    assert scene.result(run_id) == {"colour": scene.client.interactions(run_id)[0].options[0]}
    assert "Answered by anna" in scene.closed(run_id)


def test_options_with_long_labels_are_listed_in_the_text(scene: Scene) -> None:
    run_id = scene.ask(options=["red", "a very long label that does not fit on a button of a phone"])
    assert "2) a very long label that does not fit on a button of a phone" in scene.shown(run_id).text


@pytest.mark.contract("N-3")
def test_a_secret_is_not_taken_in_a_chat_and_its_value_is_not_shown(scene: Scene) -> None:
    run_id = scene.ask(kind="secret", prompt="The password?")
    message, before = scene.shown(run_id), len(scene.bot.said_to(ANNA))
    assert "not answered in a chat" in message.text
    scene.bot.write(ANNA, "typed-by-mistake", reply_to=message.id)
    assert "not answered in a chat" in scene.response_to(before).text
    assert scene.client.get_run(run_id).state == "waiting_user"
    scene.client.reply(run_id, "colour", "hunter2-hunter2")
    _, name, via = scene.answered(run_id)
    assert f"Answered by {name} ({via})." in scene.closed(run_id)
    assert all("hunter2" not in str(call) for call in scene.bot.calls)


@pytest.mark.contract("N-3")
def test_a_question_that_is_closed_elsewhere_loses_its_buttons(scene: Scene) -> None:
    run_id = scene.ask(options=["red", "blue"])
    scene.shown(run_id)
    scene.client.reply(run_id, "colour", "blue")
    _, name, via = scene.answered(run_id)
    assert f"Answered by {name} ({via}): blue" in scene.closed(run_id)
    canceled = scene.ask(options=["red", "blue"])
    data = scene.shown(canceled).buttons["red"]["callback_data"]
    scene.client.cancel(canceled)
    assert "canceled" in scene.closed(canceled)
    tap = scene.bot.tap(ANNA, scene.shown(canceled), "", data=data)
    assert "canceled" in scene.notice(tap)


# Strangers.


@pytest.mark.contract("N-3")
def test_a_stranger_gets_one_response_and_changes_nothing(scene: Scene) -> None:
    run_id = scene.ask(options=["red", "blue"])
    message = scene.shown(run_id, GROUP)
    first, second = scene.bot.tap(EVE, message, "red"), scene.bot.tap(EVE, message, "red")
    assert f"Ask the administrator to add {EVE}" in scene.notice(first)
    assert scene.notice(second) == ""
    before = len(scene.bot.said_to(GROUP))
    scene.bot.write(EVE, "red", chat=GROUP, reply_to=message.id)
    scene.bot.write(EVE, "hello")
    stranger = EVE + 1
    scene.bot.write(stranger, "/start")
    until(lambda: scene.bot.said_to(stranger))
    assert str(stranger) in scene.bot.said_to(stranger)[0].text
    assert scene.bot.said_to(EVE) == []
    assert len(scene.bot.said_to(GROUP)) == before
    assert scene.client.get_run(run_id).state == "waiting_user"
    # Whoever is in the group does not matter, and neither does who wrote to it: the sender does.
    scene.bot.tap(BOB, message, "blue")
    assert scene.answered(run_id) == ("blue", "bob", "telegram")


def test_a_group_is_no_person(scene: Scene) -> None:
    run_id = scene.ask(options=["red", "blue"])
    tap = scene.bot.tap(GROUP, scene.shown(run_id, GROUP), "red")
    assert "Ask the administrator" in scene.notice(tap)
    assert scene.client.get_run(run_id).state == "waiting_user"


@pytest.mark.parametrize("data", ["", "x", "a:b:c", "a:b:99999999", "::0", "nothing:abcdef:0"])
def test_a_button_that_was_never_made_is_answered_politely(scene: Scene, data: str) -> None:
    message = scene.shown(scene.ask(options=["red"]))
    assert scene.notice(scene.bot.tap(ANNA, message, "", data=data)) in (
        "This button is not known any more.",
        "This question no longer exists.",
    )


def test_updates_of_unknown_forms_do_not_stop_the_bot(scene: Scene) -> None:
    for update in ({"message": {"chat": 5}}, {"callback_query": {"id": 5}}, {"poll": {}}, {"message": None}):
        scene.bot._add(update)
    run_id = scene.ask(options=["red"])
    scene.bot.tap(ANNA, scene.shown(run_id), "red")
    assert scene.result(run_id) == {"colour": "red"}


def test_the_token_is_nowhere(scene: Scene) -> None:
    run_id = scene.ask(options=["red"])
    scene.bot.tap(ANNA, scene.shown(run_id), "red")
    assert scene.bot.token not in scene.server.stderr
    database = b"".join(path.read_bytes() for path in Path(scene.world.data_dir).glob("askback.db*"))
    assert scene.bot.token.encode() not in database
