"""Tokens of people and programs, and invitations for their devices."""

from __future__ import annotations

from typing import Annotated

from askback.core.access import AccessScope
from askback.wire.base import Moment, Shape, WholeList, about, choice


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
