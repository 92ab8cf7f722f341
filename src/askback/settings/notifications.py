"""The sections of the settings about notifications: webhooks, reminders, digests, e-mail, Telegram."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, time, tzinfo
from email.utils import parseaddr
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from askback.core.runs import RunState
from askback.core.webhooks import (
    MAX_REMINDER_SEC,
    MAX_REMINDERS,
    USUAL_MAX_REMINDERS,
    Reminders,
    Webhook,
    WebhookKind,
    is_email_address,
    reminders_of,
    webhook_problems,
)
from askback.settings.sections import Labels, Section, check_address
from askback.settings.trust import Shown

_UTC = "UTC"
_Wait = Annotated[float, Field(ge=1, le=MAX_REMINDER_SEC)]


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo  # most programs never need it

    return UTC if name == _UTC else ZoneInfo(name)


def _check_zone(name: str) -> str:
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):
        # Also a folder of the time zone database, such as `Europe`.
        raise ValueError(f"{name!r} is not a time zone of this machine, such as Europe/Berlin") from None
    return name


_Zone = Annotated[str, AfterValidator(_check_zone)]


class ReminderSettings(Section):
    after_sec: tuple[_Wait, ...] = Field(
        (3600, 86_400),
        max_length=MAX_REMINDERS,
        description="A question that is still open is notified again so many seconds after it was asked, once for each number.",
    )
    repeat_sec: _Wait | None = Field(
        None,
        description="After the last of `after_sec`, again and again with so many seconds in between; default: no more.",
    )
    max: int | None = Field(
        None,
        ge=0,
        le=MAX_REMINDERS,
        description=f"At most so many reminders of one question; default: {USUAL_MAX_REMINDERS}, and never less than `after_sec` has.",
    )
    before_deadline_sec: float = Field(
        600,
        ge=0,
        le=MAX_REMINDER_SEC,
        description="So many seconds before its deadline a question is announced as `interaction.expiring`, if the deadline was further away when it was asked; 0: never.",
    )

    @property
    def policy(self) -> Reminders:
        return Reminders.repeated(self.after_sec, repeat_sec=self.repeat_sec, limit=self.max)


_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_MAX_DIGESTS = 24


class DigestSettings(Section):
    at: tuple[str, ...] = Field(
        (),
        max_length=_MAX_DIGESTS,
        description='When each channel for people gets one message that lists the open questions: `["09:00", "16:30"]`; default: never.',
    )
    tz: _Zone | None = Field(
        None, max_length=100, description="The time zone of `at`: `Europe/Berlin`; default: that of the server."
    )

    @field_validator("at")
    @classmethod
    def _times_of_day(cls, at: tuple[str, ...]) -> tuple[str, ...]:
        for place, each in enumerate(at):
            if _TIME.fullmatch(each) is None:
                raise ValueError(f"{each!r} is not a time of day from 00:00 to 23:59, such as 09:00")
            if each in at[:place]:
                raise ValueError(f"{each} is listed twice")
        return at

    @property
    def times(self) -> tuple[time, ...]:
        return tuple(time.fromisoformat(each) for each in sorted(self.at))

    @property
    def zone(self) -> tzinfo | None:
        return None if self.tz is None else _zone(self.tz)


class WebhookReminders(Section):
    enabled: bool = Field(True, description="Whether this webhook is notified again of open questions.")
    after_sec: tuple[_Wait, ...] | None = Field(
        None, max_length=MAX_REMINDERS, description="As `notifications.reminders.after_sec`; default: that."
    )
    repeat_sec: _Wait | None = Field(None, description="As `notifications.reminders.repeat_sec`.")
    max: int | None = Field(None, ge=0, le=MAX_REMINDERS, description="As `notifications.reminders.max`.")
    expiring: bool = Field(True, description="Whether this webhook is notified of near deadlines.")

    def policy(self, usual: ReminderSettings) -> Reminders | bool:
        if not self.enabled:
            return False
        if self.after_sec is None and self.repeat_sec is None:
            return Reminders(after_sec=usual.policy.after_sec[: self.max], expiring=self.expiring)
        after_sec = usual.after_sec if self.after_sec is None else self.after_sec
        return Reminders.repeated(after_sec, repeat_sec=self.repeat_sec, limit=self.max, expiring=self.expiring)


class WebhookSettings(Section):
    url: str = Field(
        max_length=2000,
        description="Where to post: `https://…`; for `ntfy` with the topic at its end; for `email`, `mailto:anna@example.org`.",
    )
    secret: str | None = Field(
        None, max_length=200, description="`whsec_…`, for the signature; for `ntfy`, the access token."
    )
    kind: Literal["standard", "ntfy", "slack", "email"] = Field("standard", description="The format of the message.")
    name: str | None = Field(
        None,
        pattern=r"^[^\x00-\x1f\x7f]{1,100}$",
        examples=["anna"],
        description="Who answers with the link in a message of this webhook, as `answered_with` names them; default: the kind, or the e-mail address.",
    )
    states: tuple[RunState, ...] | None = Field(
        None,
        description="Notify only of these states; default: questions and the end of a run; `standard`: all.",
    )
    labels: Labels = Field(
        default_factory=dict,
        description='Notify only of runs with all of these labels: `{ customer = "4711" }`; default: of all runs.',
    )

    reminders: WebhookReminders | None = Field(
        None,
        description="`false`: open questions are not notified again. `true`, or a table: they are. Default: as `notifications.reminders`; `standard`: not.",
    )

    digest: bool | None = Field(
        None,
        description="Whether this webhook gets the digest of `notifications.digest`; default: if it is notified of questions; `standard`: never.",
    )

    @field_validator("reminders", mode="before")
    @classmethod
    def _switch(cls, given: object) -> object:
        return {"enabled": given} if isinstance(given, bool) else given


class EmailSettings(Section):
    url: str | None = Field(
        None,
        pattern=r"^smtps?://[^/?#@\s]+/?$",
        examples=["smtps://mail.example.org"],
        max_length=300,
        description="The mail server: `smtps://mail.example.org` (TLS, port 465), or `smtp://mail.example.org` (STARTTLS, port 587).",
    )
    user: str | None = Field(None, max_length=300, description="The user name at the mail server; default: no sign-in.")
    password: Annotated[str | None, Shown.NOTHING] = Field(
        None, max_length=1000, description="The password at the mail server.", repr=False
    )
    sender: str | None = Field(
        None, max_length=300, description="The sender: `askback@example.org`, or `Askback <askback@example.org>`."
    )
    allow_plaintext: bool = Field(
        False,
        description="Whether messages and the password may go to a mail server without TLS. A server on this machine needs no TLS.",
    )

    _valid_port = field_validator("url")(check_address)

    @field_validator("sender")
    @classmethod
    def _one_address(cls, sender: str | None) -> str | None:
        if sender is not None and (not sender.isprintable() or not is_email_address(parseaddr(sender)[1])):
            raise ValueError("must be one e-mail address, such as askback@example.org or Askback <askback@example.org>")
        return sender


class NotificationSettings(Section):
    allow_private: bool = Field(False, description="Whether webhooks may point to this machine or to private networks.")
    push_text: bool = Field(
        True,
        description="Whether a push to a device contains the question and its options. It is encrypted for the browser: push services cannot read it.",
    )
    push_contact: str | None = Field(
        None,
        max_length=200,
        pattern=r"^(mailto:[^\s@]+@[^\s@]+|https://\S+)$",
        examples=["mailto:admin@example.org"],
        description="How the operator of a push service reaches you: `mailto:` and an address, or an `https://` URL. Default: `server.public_url`.",
    )
    link: str | None = Field(
        None,
        max_length=500,
        description="The URL of a run for messages to people, with `{run}` for its id. A message about a question links to the question instead if `server.public_url` is set.",
    )
    allow_answer_buttons: bool = Field(
        False,
        description="Whether buttons of `ntfy` messages answer at once, by a request to this server. The ntfy server sees that request, and could answer itself. Otherwise they open the question.",
    )
    tz: _Zone = Field(
        _UTC,
        max_length=100,
        description="The time zone in which messages to people show deadlines, as the time zone database calls it: `Europe/Berlin`.",
    )
    email: EmailSettings = Field(
        default_factory=EmailSettings, description="The mail server for webhooks of the kind `email`."
    )
    reminders: ReminderSettings = Field(
        default_factory=ReminderSettings, description="When open questions are notified again."
    )
    digest: DigestSettings = Field(
        default_factory=DigestSettings, description="When open questions are listed in one message."
    )

    @property
    def zone(self) -> tzinfo:
        return _zone(self.tz)


class TelegramChat(Section):
    id: int = Field(
        description="The id of a user, or that of a group, which is negative. The bot tells users their ids."
    )
    name: str = Field(
        min_length=1, max_length=100, description="The person's name, shown with the answers; for a group, any name."
    )
    notify: bool = Field(True, description="Whether this chat gets messages. `false`: the user only answers in groups.")
    labels: Labels = Field(
        default_factory=dict,
        description="Only questions of runs with all of these labels are shown here, and may be answered by this user.",
    )


class TelegramSettings(Section):
    token: Annotated[str | None, Shown.NOTHING] = Field(
        None,
        pattern=r"^[0-9]{1,20}:[A-Za-z0-9_-]{20,100}$",
        examples=["123456789:AAEhBP0av28abc-XYZ_0123456789abcdef"],
        repr=False,
        description="The token of the bot, from @BotFather. Without one there is no bot.",
    )
    chats: tuple[TelegramChat, ...] = Field(
        (),
        max_length=1000,
        description="Who gets questions and who may answer: `id`, `name`, `notify` and `labels`. In a group, only users who are listed here may answer.",
    )
    states: tuple[RunState, ...] = Field(
        (), description="States of runs that are reported besides questions, such as `failed` and `succeeded`."
    )
    language: Literal["en", "zh"] = Field("en", description="The language of the bot's own words.")
    api_url: str = Field(
        "https://api.telegram.org",
        pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*[^?#/\s])?$",
        examples=["https://api.telegram.org"],
        max_length=500,
        description="The Bot API server, without the token. Change it for one of your own.",
    )

    @field_validator("chats")
    @classmethod
    def _listed_once(cls, chats: tuple[TelegramChat, ...]) -> tuple[TelegramChat, ...]:
        ids = [chat.id for chat in chats]
        if twice := sorted({each for each in ids if ids.count(each) > 1}):
            raise ValueError(f"the id {twice[0]} is listed twice")
        return chats


# The webhooks of the settings: what they get, and what is wrong with them.

_FOR_PEOPLE = (RunState.WAITING_USER, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED)
"""The states that a message to a person is worth, unless the settings name others."""


def webhooks_of(given: Sequence[WebhookSettings], reminders: ReminderSettings) -> tuple[Webhook, ...]:
    return tuple(_webhook(each, reminders) for each in given)


def _webhook(given: WebhookSettings, usual: ReminderSettings) -> Webhook:
    kind = WebhookKind(given.kind)
    wanted = None if given.reminders is None else given.reminders.policy(usual)
    asks = given.states is None or RunState.WAITING_USER in given.states
    by_default = asks and kind is not WebhookKind.STANDARD
    return Webhook(
        url=given.url,
        secret=given.secret,
        kind=kind,
        states=_FOR_PEOPLE if given.states is None and kind is not WebhookKind.STANDARD else given.states,
        reminders=reminders_of(kind, wanted, usual.policy),
        name=given.name,
        labels=given.labels,
        digest=bool(by_default if given.digest is None else given.digest),
    )


def webhook_setting_problems(given: Sequence[WebhookSettings], notifications: NotificationSettings) -> Iterator[str]:
    """Problems of the webhooks in the settings, by the rules for those of a run."""
    made, email = webhooks_of(given, notifications.reminders), notifications.email
    for place, webhook in enumerate(made):
        path = f"webhooks.{place}"
        yield from webhook_problems(webhook, path, allow_private=notifications.allow_private)
        if webhook.kind is WebhookKind.EMAIL and (email.url is None or email.sender is None):
            yield f"{path}.kind: e-mails need notifications.email.url and notifications.email.sender"
        if given[place].digest and webhook.kind is WebhookKind.STANDARD:
            yield f"{path}.digest: a digest is for people; a standard webhook gets none"
        elif given[place].digest and not notifications.digest.at:
            yield f"{path}.digest: there is none; notifications.digest.at says when"
    seen = [(webhook.url, webhook.kind) for webhook in made]
    yield from (f"webhooks.{place}.url: is given twice" for place, each in enumerate(seen) if each in seen[:place])
