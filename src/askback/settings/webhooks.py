"""The webhooks of the settings: what they get, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from askback.core.runs import RunState
from askback.core.webhooks import Webhook, WebhookKind, reminders_of, webhook_problems
from askback.settings.notifications import NotificationSettings, ReminderSettings, WebhookSettings

_FOR_PEOPLE = (RunState.WAITING_USER, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED)
"""The states that a message to a person is worth, unless the settings name others."""


def webhooks_of(given: Sequence[WebhookSettings], reminders: ReminderSettings) -> tuple[Webhook, ...]:
    return tuple(_webhook(each, reminders) for each in given)


def _webhook(given: WebhookSettings, usual: ReminderSettings) -> Webhook:
    kind = WebhookKind(given.kind)
    wanted = None if given.reminders is None else given.reminders.policy(usual)
    return Webhook(
        url=given.url,
        secret=given.secret,
        kind=kind,
        states=_FOR_PEOPLE if given.states is None and kind is not WebhookKind.STANDARD else given.states,
        reminders=reminders_of(kind, wanted, usual.policy),
        name=given.name,
        labels=given.labels,
        digest=_wants_digest(given),
    )


def _wants_digest(given: WebhookSettings) -> bool:
    if given.digest is not None or given.kind == "standard":
        return bool(given.digest)
    return given.states is None or RunState.WAITING_USER in given.states


def webhook_setting_problems(given: Sequence[WebhookSettings], notifications: NotificationSettings) -> Iterator[str]:
    """They are checked like those of a run."""
    made, email = webhooks_of(given, notifications.reminders), notifications.email
    for place, webhook in enumerate(made):
        path = f"webhooks.{place}"
        yield from webhook_problems(webhook, path, allow_private=notifications.allow_private)
        if webhook.kind is WebhookKind.EMAIL and (email.url is None or email.sender is None):
            yield f"{path}.kind: e-mails need notifications.email.url and notifications.email.sender"
        yield from _digest_problems(given[place], place, digests=bool(notifications.digest.at))
    seen = [(webhook.url, webhook.kind) for webhook in made]
    yield from (f"webhooks.{place}.url: is given twice" for place, each in enumerate(seen) if each in seen[:place])


def _digest_problems(given: WebhookSettings, place: int, *, digests: bool) -> Iterator[str]:
    """A webhook that wants digests must be able to get them."""
    if given.digest and given.kind == "standard":
        yield f"webhooks.{place}.digest: a digest is for people; a standard webhook gets none"
    elif given.digest and not digests:
        yield f"webhooks.{place}.digest: there is none; notifications.digest.at says when"
