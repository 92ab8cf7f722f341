"""The messages of the bot: a question with its buttons, how it was closed, and the end of a run. Pure.

Texts are sent as they are, with the bold part given by its position, so nothing in them is ever read as markup.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from askback.core.actors import ASKBACK
from askback.core.interactions import Interaction, InteractionOutcome, Json, option_label, option_value
from askback.core.runs import Run, RunState
from askback.core.webhooks import DeliveryReason
from askback.notifications.channels.telegram.texts import Texts
from askback.questions.typed_answers import is_confirmation
from askback.questions.view import context_text, options_of
from askback.skills.field_values import choices, kind_of, numbered, readable, type_of
from askback.text.formatting import cut_bytes, duration, moment, one_line, printable

MAX_TEXT = 4096
MAX_NOTICE = 200
"""The limit of an answer to a tap."""
_MAX_TITLE = 200
_MAX_LABEL = 40
_MAX_BUTTONS = 50
_MAX_ANSWER = 300
_NOT_IN_CHAT = ("secret", "file", "form")
_DIGEST_CHARS = 12


# Which questions can be answered in a chat, and which of their answers get a button.


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    label: str
    answer: Json


def in_chat(asked: Interaction) -> bool:
    """Whether a message can answer it. A secret must never be in a chat; files and forms need a page."""
    is_object = (asked.response_schema or {}).get("type") == "object"
    return not (
        asked.asks_secrets or asked.questions or asked.kind in _NOT_IN_CHAT or (is_object and not asked.options)
    )


def choices_of(asked: Interaction, texts: Texts) -> Sequence[Choice]:
    """The answers with a button, in the order of their numbers."""
    if not in_chat(asked):
        return ()
    if asked.options:
        return [Choice(label=option_label(each), answer=option_value(each)) for each in asked.options]
    if is_confirmation(asked):
        return (Choice(label=texts("yes"), answer="yes"), Choice(label=texts("no"), answer="no"))
    schema = asked.response_schema or {}
    if type_of(schema) == "boolean":
        return (Choice(label=texts("yes"), answer=True), Choice(label=texts("no"), answer=False))
    if type_of(schema) == "array":
        return ()
    return [Choice(label=title, answer=value) for value, title in choices(schema)]


def label_of(asked: Interaction, answer: Json, texts: Texts) -> str | None:
    """The label of the choice that was made, if it was one."""
    wanted = json.dumps(answer, sort_keys=True)
    return next(
        (each.label for each in choices_of(asked, texts) if json.dumps(each.answer, sort_keys=True) == wanted), None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonKey:
    """What a button sends when it is tapped, in at most 64 bytes. It grants nothing: the sender must be allowed to answer."""

    run_id: str
    question: str
    """The digest of its id, which an engine chooses."""
    index: int

    @classmethod
    def of(cls, run_id: str, interaction_id: str, index: int) -> ButtonKey:
        return cls(run_id=run_id, question=_digest(interaction_id), index=index)

    @classmethod
    def parse(cls, data: str | None) -> ButtonKey | None:
        match (data or "").split(":"):
            case [run_id, question, index] if run_id and index.isascii() and index.isdecimal() and len(index) < 6:
                return cls(run_id=run_id, question=question, index=int(index))
        return None

    def belongs_to(self, asked: Interaction) -> bool:
        return self.question == _digest(asked.interaction_id)

    def __str__(self) -> str:
        return f"{self.run_id}:{self.question}:{self.index}"


def _digest(interaction_id: str) -> str:
    return hashlib.sha256(interaction_id.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message that is not sent yet. The first line is bold."""

    text: str
    keyboard: tuple[tuple[Mapping[str, str], ...], ...] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of `sendMessage` and `editMessageText`. Without a keyboard, an edit removes the buttons."""
        bold = {"type": "bold", "offset": 0, "length": units(self.text.partition("\n")[0])}
        return {
            "text": self.text,
            "entities": [bold],
            # A preview would let Telegram open addresses that an engine wrote.
            "link_preview_options": {"is_disabled": True},
            "reply_markup": {"inline_keyboard": self.keyboard} if self.keyboard else None,
        }


def question(
    run: Run,
    asked: Interaction,
    texts: Texts,
    now: datetime,
    link: str | None,
    reason: DeliveryReason = DeliveryReason.STATE,
    zone: tzinfo = UTC,
) -> Draft:
    """A pending question. `link` leads to it."""
    offered = choices_of(asked, texts)
    keyboard = [
        (
            {
                "text": one_line(each.label, _MAX_LABEL) or "…",
                "callback_data": str(ButtonKey.of(run.id, asked.interaction_id, index)),
            },
        )
        for index, each in enumerate(offered[:_MAX_BUTTONS])
    ]
    if link is not None:
        keyboard.append(({"text": texts("open"), "url": link},))
    foot = [_how(asked, offered, texts, link), _deadline(run, texts, now, zone), texts("run", run=run.id)]
    title = texts("question" if reason is DeliveryReason.STATE else reason, skill=_title(run))
    return Draft(text=_joined(title, asked, offered, texts, foot), keyboard=tuple(keyboard))


def with_link_as_text(draft: Draft, link: str, texts: Texts) -> Draft:
    """For an address that a button may not have, such as one without a domain."""
    rows = tuple(row for row in draft.keyboard if not any("url" in button for button in row))
    changed = draft.text.replace(texts("open_link"), texts("open_address"))
    text = f"{cut_units(changed, MAX_TEXT - units(link) - 100)}\n{texts('link', link=link)}"
    return Draft(text=text, keyboard=rows)


def closed(run: Run, asked: Interaction, texts: Texts) -> Draft:
    """The question with how it ended, and without buttons."""
    offered = choices_of(asked, texts)
    foot = [outcome(asked, texts), texts("run", run=run.id)]
    title = texts("question", skill=_title(run))
    return Draft(text=_joined(title, asked, offered, texts, foot))


def ended(run: Run, state: RunState, texts: Texts) -> Draft:
    lines = [texts(state, skill=_title(run))]
    if state is RunState.FAILED and run.error is not None:
        lines.append(f"{run.error.code}: {one_line(run.error.message, _MAX_ANSWER)}")
    return Draft(text="\n".join([*lines, texts("run", run=run.id)]))


def trial(texts: Texts) -> Draft:
    return Draft(text=f"{texts('test')}\n{texts('test_text')}")


def outcome(asked: Interaction, texts: Texts) -> str:
    """How a question was closed, in one line."""
    by = asked.answered_with
    match asked.outcome:
        case InteractionOutcome.ANSWERED if by is not None:
            return _answered("answered", asked, texts)
        case InteractionOutcome.CANCELED if by is not None and by != ASKBACK:
            return texts("canceled_by", name=one_line(by.name, 100), via=by.via)
        case InteractionOutcome.CANCELED:
            return texts("canceled_question")
        case InteractionOutcome.ANSWERED:
            return texts("answered_by_nobody")
        case InteractionOutcome.AUTO_DECIDED | InteractionOutcome.EXPIRED as key:
            return texts(key)
        case _:
            return texts("abandoned")


def too_late(asked: Interaction, texts: Texts) -> str:
    """The response to somebody whose answer came after the question was closed."""
    if asked.outcome is InteractionOutcome.ANSWERED and asked.answered_with is not None:
        return _answered("first_was", asked, texts)
    return outcome(asked, texts)


def _answered(key: str, asked: Interaction, texts: Texts) -> str:
    """A value is shown only if the chat could have taken it: others may be secret."""
    by = asked.answered_with
    assert by is not None
    who = {"name": one_line(by.name, 100), "via": by.via}
    if not in_chat(asked):
        return texts(f"{key}_unshown", **who)
    return texts(key, **who, answer=answer_text(asked, texts))


def answer_text(asked: Interaction, texts: Texts) -> str:
    label = label_of(asked, asked.response, texts)
    return one_line(readable(asked.response, asked.response_schema) if label is None else label, _MAX_ANSWER)


def _joined(title: str, asked: Interaction, offered: Sequence[Choice], texts: Texts, foot: Sequence[str]) -> str:
    """Title, question and foot. The context is cut, then the rest, so that the whole has the size of a message."""
    end = "\n".join(line for line in foot if line)
    heading, listed = printable(asked.heading).strip(), _listed(asked, offered)
    room = MAX_TEXT - units(title) - units(end) - len("\n\n\n")
    left = room - units(heading) - units(listed) - len("\n\n\n\n")
    context = _within(context_text(asked), left, texts)
    body = _within("\n\n".join(part for part in (heading, context, listed) if part), room, texts)
    return f"{title}\n{body}\n\n{end}"


def _within(text: str, room: int, texts: Texts) -> str:
    """The text, or its beginning with a note. Nothing if there is hardly any room."""
    if units(text) <= room:
        return text
    note = "\n" + texts("cut")
    return cut_units(text, room - units(note)) + note if room > 2 * units(note) else ""


def _title(run: Run) -> str:
    about = f"{run.skill.id} ({run.summary})" if run.summary else run.skill.id
    return one_line(about, _MAX_TITLE)


def _listed(asked: Interaction, offered: Sequence[Choice]) -> str:
    """The options with their numbers, if the buttons do not show all of them in full."""
    if asked.questions:
        return "\n".join(
            f"{place}. {one_line(each.prompt, _MAX_TITLE)}" for place, each in enumerate(asked.questions, 1)
        )
    if not offered:
        return "\n".join(numbered(asked.response_schema or {})) if in_chat(asked) else ""
    details = [f": {each.about}" if each.about else "" for each in options_of(asked)] or [""] * len(offered)
    is_short = all(units(each.label) <= _MAX_LABEL and "\n" not in each.label for each in offered)
    if is_short and len(offered) <= _MAX_BUTTONS and not any(details):
        return ""
    labels = (printable(each.label) for each in offered)
    return "\n".join(
        f"{number}) {label}{detail}" for number, (label, detail) in enumerate(zip(labels, details, strict=True), 1)
    )


def _how(asked: Interaction, offered: Sequence[Choice], texts: Texts, link: str | None) -> str:
    if not in_chat(asked):
        return texts("open_page" if link is None else "open_link")
    if asked.options and asked.response_schema is None:
        return texts("or_reply")
    if offered:
        return texts("tap")
    if asked.response_schema is not None:
        return f"{texts('reply_here')} {texts('kind', kind=kind_of(asked.response_schema))}"
    return texts("reply_here")


def _deadline(run: Run, texts: Texts, now: datetime, zone: tzinfo) -> str:
    at = run.wait_deadline_at
    if at is None:
        return ""
    left = (at - now).total_seconds()
    return texts("deadline", at=moment(at, zone), left=duration(left)) if left > 0 else texts("late")


# Lengths, as Telegram counts them.


def units(text: str) -> int:
    """The number of UTF-16 code units."""
    return len(text.encode("utf-16-le", errors="replace")) // 2


def cut_units(text: str, most: int) -> str:
    return cut_bytes(text, 2 * most, "utf-16-le")
