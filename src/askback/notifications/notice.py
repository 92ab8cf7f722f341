"""What a message says, whatever its channel: a notice about one run, or a digest of open questions.

All texts are without control characters, and short: engines and callers wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import assert_never

from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.core.runs import Run, RunState
from askback.core.webhooks import DeliveryReason, DueDelivery
from askback.questions.view import context_text
from askback.text.formatting import count, cut, moment, one_line, printable, rough_duration

_SKILL_CHARS = 100
_SUBJECT_CHARS = 120
_CONTEXT_CHARS = 4000
_LABEL_CHARS = 200
_FIELD_CHARS = 300
_ENTRY_SUBJECT_CHARS = 80
_ENTRY_QUESTION_CHARS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    label: str
    value: Json
    url: str
    """The page of the question, with this option chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    title: str
    text: str
    context: str = ""
    """What the engine says about its question."""
    skill: str = ""
    run_id: str = ""
    tag: str | None = None
    """The name of an emoji."""
    deadline: datetime | None = None
    zone: tzinfo = UTC
    """In which the deadline is shown."""
    how: str = ""
    """How the question is answered on its page."""
    labels: tuple[str, ...] = ()
    """Of all options of the question."""
    values: tuple[Json, ...] = ()
    answer_url: str | None = None
    """The page of the question, for its recipient alone."""
    run_url: str | None = None
    """The page of the run, from `notifications.link`."""

    @classmethod
    def of(
        cls,
        run: Run,
        state: RunState,
        *,
        answer_url: str | None = None,
        run_url: str | None = None,
        zone: tzinfo = UTC,
    ) -> Notice:
        """The notice of a change of state. `run` is the run right after the change."""
        asked = run.pending_interaction if state is RunState.WAITING_USER else None
        options = () if asked is None or asked.asks_secrets else asked.options
        return cls(
            title=f"{_subject(run, _SUBJECT_CHARS)} {_happened(run, state, zone)}",
            text=_text(run, state, asked),
            context="" if asked is None else cut(context_text(asked), _CONTEXT_CHARS),
            skill=one_line(run.skill.id, _SKILL_CHARS) or "a skill",
            run_id=run.id,
            tag=_TAGS.get(state),
            deadline=None if asked is None else run.wait_deadline_at,
            zone=zone,
            how="" if asked is None else _how(asked),
            # Never empty: a button needs a text.
            labels=tuple(
                one_line(option_label(option), _LABEL_CHARS) or f"Option {number}"
                for number, option in enumerate(options, 1)
            ),
            values=tuple(option_value(option) for option in options),
            answer_url=None if asked is None else answer_url,
            run_url=run_url,
        )

    @property
    def is_question(self) -> bool:
        return self.tag == _TAGS[RunState.WAITING_USER]

    @property
    def url(self) -> str | None:
        """Where a tap on the message leads."""
        return self.answer_url or self.run_url

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The options. Without a page of the question there is nothing to choose."""
        if self.answer_url is None:
            return ()
        return tuple(
            Choice(label=label, value=value, url=f"{self.answer_url}?choose={place}")
            for place, (label, value) in enumerate(zip(self.labels, self.values, strict=True))
        )

    @property
    def deadline_text(self) -> str | None:
        return None if self.deadline is None else moment(self.deadline, self.zone)


def _subject(run: Run, most: int) -> str:
    """The skill, with the summary of the input: several runs of a skill may ask at the same time. Never empty."""
    about = f"{run.skill.id} ({run.summary})" if run.summary else run.skill.id
    return one_line(about, most) or "a skill"


_TAGS = {
    RunState.WAITING_USER: "question",
    RunState.SUCCEEDED: "white_check_mark",
    RunState.FAILED: "x",
    RunState.CANCELED: "no_entry_sign",
}


def _happened(run: Run, state: RunState, zone: tzinfo) -> str:
    if state is RunState.WAITING_USER:
        return "has a question"
    if run.not_before is not None:
        return f"is parked until {moment(run.not_before, zone)}"
    return str(state) if state.final else f"is {state}"


def _text(run: Run, state: RunState, asked: Interaction | None) -> str:
    if asked is not None:
        # The questions of a form have a line each.
        lines = [asked.heading]
        for number, field in enumerate(asked.questions, 1):
            options = () if field.secret else [one_line(option_label(option), _LABEL_CHARS) for option in field.options]
            listed = f" ({' / '.join(options)})" if options else ""
            lines.append(f"{number}. {one_line(field.prompt, _FIELD_CHARS)}{listed}")
        return printable("\n".join(lines)).strip()
    if state is RunState.FAILED and run.error is not None:
        return printable(f"{run.error.code}: {run.error.message}")
    return f"Run {run.id}"


def _how(asked: Interaction) -> str:
    if asked.asks_secrets:
        return "The answer is secret: enter it on this page, and never in a message"
    if asked.kind == "file":
        return "Answer with a file"
    if asked.questions or (asked.response_schema or {}).get("type") == "object":
        return "Fill in the form"
    if asked.response_schema is not None:
        return "Answer here"
    return "Or answer in your own words" if asked.options else "Answer in your own words"


def reminder_prefix(due: DueDelivery, now: datetime) -> str:
    """How the title says that the message is not the first about its question: `Still waiting: `."""
    match due.delivery.reason:
        case DeliveryReason.STATE | DeliveryReason.PARKED | DeliveryReason.RESUMED:
            return ""
        case DeliveryReason.REMINDER:
            return "Still waiting: "
        case DeliveryReason.EXPIRING:
            deadline = due.run.wait_deadline_at
            return (
                "Expires soon: "
                if deadline is None
                else f"Expires in {rough_duration((deadline - now).total_seconds())}: "
            )
        case reason:
            assert_never(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestEntry:
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
        lines = [one_line(line, _ENTRY_QUESTION_CHARS) for line in asked.heading.splitlines()]
        return cls(
            about=_subject(run, _ENTRY_SUBJECT_CHARS),
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
    """One message that lists open questions. `entries` are the oldest of `total`."""

    entries: tuple[DigestEntry, ...]
    total: int
    at: datetime
    zone: tzinfo = UTC
    """In which deadlines are shown."""

    @property
    def title(self) -> str:
        return f"{count(self.total, 'question')} {'is' if self.total == 1 else 'are'} waiting"

    @property
    def rest(self) -> tuple[str, ...]:
        """A line with how many are not listed, if any."""
        missing = self.total - len(self.entries)
        return (f"and {missing:,} more",) if missing > 0 else ()

    @property
    def plain_list(self) -> str:
        listed = []
        for number, entry in enumerate(self.entries, 1):
            lines = [f"{number}. {entry.about}: {entry.question}", f"({self.when(entry)})"]
            listed.append("\n".join(lines if entry.url is None else [*lines, entry.url]))
        return "\n\n".join((*listed, *self.rest))

    def when(self, entry: DigestEntry, deadline: str | None = None) -> str:
        """How old the question is, and until when it can be answered; `deadline`: in the words of a service."""
        age = f"asked {rough_duration((self.at - entry.asked_at).total_seconds(), smallest='minute')} ago"
        if entry.deadline is None:
            return age
        return f"{age}, answer by {deadline or moment(entry.deadline, self.zone)}"
