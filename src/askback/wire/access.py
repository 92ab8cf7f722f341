"""Who may call and what they did: tokens, invitations, browser sessions, push devices, and the audit log."""

from __future__ import annotations

from typing import Annotated, Any, Self

from askback.core.access import AccessScope, Action
from askback.wire.base import Actor, Moment, Page, Shape, WholeList, about, choice, one_of


class Token(Shape):
    """A token, without its text."""

    name: Annotated[str, about("Whose token it is.", "anna")]
    main: Annotated[bool, about("Whether it is the server's own token, which allows everything and cannot be revoked.")]
    scopes: Annotated[tuple[AccessScope, ...], about("What it allows; `admin` allows everything.", ["answer"])]
    labels: Annotated[
        dict[str, str],
        about("If there are any, it is restricted to runs that have all of them.", {"customer": "4711"}),
    ]
    created_at: Annotated[Moment | None, about("Null for the server's own token.")]
    expires_at: Annotated[Moment | None, about("Null: never. An expired token is listed until it is revoked.")]
    expired: Annotated[bool, about("Whether it has expired.")]
    last_used_at: Annotated[
        Moment | None, about("Null: never. After a crash of the server some minutes may be missing.")
    ]
    last_used_via: Annotated[
        Annotated[str, choice("api", "page", "mcp", "acp")] | None,
        about(
            "`api`: by a program with the token. `page`: by a browser that was signed in with it. "
            "`mcp`, `acp`: by a client of that protocol.",
            "page",
        ),
    ]
    sessions: Annotated[int, about("How many browsers and devices are signed in with it.", 1, ge=0)]


class CreatedToken(Token):
    """A new token with its text, which is shown only once."""

    token: Annotated[str, about("The token itself. Only its digest is stored.", "askback_5f3w…")]


class TokenList(WholeList[Token]):
    """The server's own token, then all others, oldest first."""


class ListedInvitation(Shape):
    """An invitation that was not used yet, without its URL."""

    id: Annotated[str, about("Identifies the invitation when it is revoked. Grants no access.", "9f2c01ab")]
    token: Annotated[str, about("The name of the token that the device signs in with.", "anna")]
    created_at: Annotated[Moment, about("When it was created.")]
    expires_at: Annotated[Moment, about("When it expires.")]


class Invitation(ListedInvitation):
    """A new invitation."""

    url: Annotated[
        str,
        about(
            "Open it on the device and confirm: it signs the device in, once.",
            "https://askback.example/enter?invitation=…",
        ),
    ]


class InvitationList(WholeList[ListedInvitation]):
    """The unused invitations, oldest first."""


class Session(Shape):
    """A browser that is signed in."""

    id: Annotated[str, about("Identifies the session when it is ended. Grants no access.", "9f2c01ab")]
    token: Annotated[str, about("The name of the token that created it. Revoking the token ends it.", "main")]
    browser: Annotated[str, about("The browser and system, from its `User-Agent`.", "Firefox, Linux")]
    host: Annotated[str, about("The only host name for which it is valid.", "askback.example")]
    invited: Annotated[bool, about("Whether the device was signed in by an invitation, so that it stays signed in.")]
    current: Annotated[bool, about("Whether this request uses it.")]
    created_at: Annotated[Moment, about("When the user signed in.")]
    last_seen_at: Annotated[Moment, about("When it was last used, accurate to a few minutes.")]
    expires_at: Annotated[
        Moment,
        about(
            "When it ends unless it is used before then. At most 30 days after the sign-in; for an invited device, "
            "`server.device_days`."
        ),
    ]


class SessionList(WholeList[Session]):
    """Browser sessions, most recently used first."""


class PushSubscription(Shape):
    """A browser that gets a push when a question is asked."""

    id: Annotated[str, about("Identifies the subscription when it is removed. Grants no access.", "0f3c2a7b9d1e4c5a")]
    device: Annotated[str, about("The browser and system, from its `User-Agent`.", "Chrome, Android")]
    service: Annotated[str, about("The host of the push service.", "push.example.com")]
    current: Annotated[bool, about("Whether the session of this request added it.")]
    created_at: Annotated[Moment, about("When it was added, or last renewed by its browser.")]
    last_success_at: Annotated[
        Moment | None, about("When the push service last accepted a push, accurate to a minute. Null if never.")
    ]


class Push(Shape):
    """What a browser needs for pushes, and the subscriptions of the caller's token."""

    public_key: Annotated[str, about("The `applicationServerKey` for `PushManager.subscribe()`.", "BP4z9KsN6nGRTbVY…")]
    token: Annotated[str, about("The name of the caller's token. Subscriptions end with it.", "main")]
    items: Annotated[tuple[PushSubscription, ...], about("The subscriptions of the caller's token, newest first.")]


class PushTest(Shape):
    """How a test push went."""

    delivered: Annotated[bool, about("Whether the push service accepted it.")]
    error: Annotated[str | None, about("Why it was not accepted.", "the push service returned 410")]


class AuditEntry(Shape, omit_defaults=True):
    """Something that somebody wrote. It never has an answer, an input or a secret."""

    id: Annotated[int, about("Increases with every entry.", 17, ge=1)]
    at: Annotated[Moment, about("When it was written.")]
    actor: Annotated[Actor, about("Who wrote it, and through which channel.")]
    action: Annotated[str, one_of(Action), about("What was written.", "interaction.reply")]
    run_id: Annotated[str | None, about("The run. It may be deleted by now.", "1m7gekfsksrgk77s")] = None
    interaction_id: Annotated[str | None, about("The question.", "pace")] = None
    object: Annotated[
        str | None,
        about(
            "The name of the token, or the ID of the link, upload, skill, session or invitation. Of an answer by link, its "
            "ID and the token that created it, or `the server` for a link in a notification.",
            "ci",
        ),
    ] = None
    address: Annotated[
        str | None, about("The address that the request came from. Missing for commands on the server's machine.")
    ] = None

    @classmethod
    def of(cls, source: Any = None, **given: Any) -> Self:
        return super().of(source, id=source.number, actor=Actor(name=source.name, via=source.via), **given)


class AuditEntryPage(Page[AuditEntry]):
    """Entries of the audit log, newest first."""
