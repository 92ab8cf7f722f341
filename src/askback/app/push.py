"""Web push of a server: its subscriptions, its key, and the program's notifications that use them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from askback.access.grants import TokenDirectory
from askback.access.push_subscriptions import Push, Subscriptions
from askback.access.sessions import Sessions
from askback.app import App
from askback.core.webhooks import WebhookKind, reminders_of
from askback.notifications.push import PushChannel
from askback.settings.model import Settings

if TYPE_CHECKING:
    from askback.notifications.encryption import ServerKey

_NO_CONTACT = "mailto:askback@localhost"
"""For push services, if the settings say nothing. A server that phones reach has a public URL."""


def make_push(app: App, tokens: TokenDirectory, sessions: Sessions) -> Push:
    """The program's notifications use it from now on."""
    settings, notifications = app.settings, app.notifications
    assert notifications is not None, "only a server has an HTTP side"
    subscriptions = Subscriptions(app.records, app.clock, holder=tokens.holder, is_session=sessions.has)
    secret = app.records.secret("push-key")

    @functools.cache
    def key() -> ServerKey:
        # Most servers have no devices, and the library takes a while to import.
        from askback.notifications.encryption import ServerKey

        return ServerKey(secret=secret, contact=_contact(settings))

    channel = PushChannel(
        devices=subscriptions,
        key=key,
        shows_text=settings.notifications.push_text,
        run=app.store.get,
        reminders=reminders_of(WebhookKind.PUSH, None, settings.notifications.reminders.policy),
    )
    notifications.push = channel
    return Push(
        subscriptions=subscriptions,
        channel=channel,
        changed=notifications.register,
        allow_private=settings.notifications.allow_private,
        clock=app.clock,
    )


def _contact(settings: Settings) -> str:
    public_url = settings.server.public_url
    if settings.notifications.push_contact is not None:
        return settings.notifications.push_contact
    # A push service accepts no other scheme.
    return public_url if public_url is not None and public_url.startswith("https://") else _NO_CONTACT
