"""`askback tokens`, `sessions` and `invitations`: who may use a server.

Tokens and sessions are read and written in the data folder. A server makes invitations, because it knows its address.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from askback.cli import connection, options, output
from askback.cli.help import Command, Group
from askback.text.formatting import one_line, printable, rfc3339

if TYPE_CHECKING:
    from askback.access.sessions import Session, Sessions
    from askback.access.tokens import Token, Tokens, TokenUse
    from askback.settings.model import Settings

_SCOPES = ("submit", "answer", "approve", "read", "admin")
_MAX_TOKEN_LIFETIME = timedelta(days=36_500)
_MAX_INVITATION_LIFETIME = timedelta(days=30)


@click.group(
    "tokens",
    cls=Group,
    invoke_without_command=True,
    examples=(
        "askback tokens create ci --scope submit --scope read --expires-in 30d",
        "askback tokens create anna --scope read --scope answer --label customer=4711",
        "askback tokens revoke ci",
    ),
)
@options.common
def tokens_command(settings: Settings, as_json: bool) -> int:
    """Without a subcommand: list the additional tokens. A running server applies changes at once.

    It writes the last use of a token every few minutes, and when it stops.
    """
    from askback.access.tokens import TokenUses
    from askback.app import now
    from askback.app.storage import open_records

    uses = TokenUses(open_records(settings), now)
    return output.print_list(
        [(token, uses.last(token.digest)) for token in _tokens(settings).all()],
        lambda listed: _token_line(*listed),
        as_json=as_json,
        document=lambda listed: _token_document(*listed),
        heading=f"{'NAME':<24} {'SCOPES':<24} CREATED, EXPIRES, LAST USED",
        empty="there are no additional tokens; create one with: askback tokens create NAME --scope read",
    )


@tokens_command.command("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(_SCOPES),
    help="What the token allows; repeatable.",
)
@click.option("--expires-in", metavar="TIME", help="Lifetime, such as 4w, 30d, 12h, 45m or 90s; default: no limit.")
@click.option("--permissions", metavar="POLICY", help="A policy for the tool calls of its runs: a name or a JSON file.")
@options.label("Restrict the token to runs with this label; repeatable: runs that have all of them.")
@options.common
def create_token(
    settings: Settings,
    as_json: bool,
    name: str,
    scopes: tuple[str, ...],
    expires_in: str | None,
    permissions: str | None,
    label: tuple[str, ...],
) -> int:
    """Create a token called NAME. It is printed once; only its digest is stored."""
    from askback.app import now
    from askback.cli.commands.permissions import policy_value
    from askback.cli.data_folder import audited
    from askback.core.access import AccessScope, Action, check_token_name
    from askback.core.labels import shown_labels
    from askback.fs.atomic import make_private

    check_token_name(name)
    expires_at = (
        None
        if expires_in is None
        else now() + options.lifetime(expires_in, _MAX_TOKEN_LIFETIME, "a hundred years (36500d)")
    )
    make_private(settings.data_dir)
    given = tuple(AccessScope(scope) for scope in dict.fromkeys(scopes))
    labels = options.labels_of(label)
    policy = None if permissions is None else policy_value(permissions)
    make = partial(_tokens(settings).make, name, given, expires_at, labels, policy)
    text = audited(settings, Action.TOKEN_CREATE, make, lambda _: name)
    if as_json:
        expiry = rfc3339(expires_at) if expires_at else None
        output.print_json({"name": name, "token": text, "scopes": list(given), "expires_at": expiry, "labels": labels})
        return 0
    print(text)
    only = f", only for runs with {shown_labels(labels)}" if labels else ""
    output.to_stderr(f"✔ {name} allows: {', '.join(given)}{only}; the token is not shown again")
    return 0


@tokens_command.command("revoke")
@click.argument("name")
@options.common
def revoke_token(settings: Settings, as_json: bool, name: str) -> int:
    """Revoke the token called NAME. It takes effect at once."""
    from askback.cli.data_folder import audited
    from askback.core.access import Action

    audited(settings, Action.TOKEN_REVOKE, partial(_tokens(settings).revoke, name), lambda _: name)
    return output.print_done({"name": name, "revoked": True}, f"✔ {printable(name)} is revoked", as_json=as_json)


def _tokens(settings: Settings) -> Tokens:
    from askback.access.tokens import Tokens
    from askback.app import now
    from askback.app.storage import open_records

    return Tokens(open_records(settings), now)


def _token_document(token: Token, use: TokenUse | None) -> dict[str, Any]:
    expires_at = token.expires_at
    return {
        "name": token.name,
        "scopes": list(token.scopes),
        "created_at": rfc3339(token.created_at),
        "expires_at": rfc3339(expires_at) if expires_at else None,
        "labels": token.labels,
        "last_used_at": rfc3339(use.at) if use else None,
        "last_used_via": use.via if use else None,
    }


def _token_line(token: Token, use: TokenUse | None) -> str:
    from askback.app import now
    from askback.core.labels import shown_labels

    until = "never expires"
    if token.expires_at is not None:
        over = token.expires_at <= now()
        until = f"{'expired' if over else 'until'} {token.expires_at:%Y-%m-%d %H:%M} UTC"
    used = "never used" if use is None else f"used {use.at:%Y-%m-%d %H:%M} by {use.via}"
    only = f"  only {printable(shown_labels(token.labels))}" if token.labels else ""
    what = f"{token.name:<24} {', '.join(token.scopes):<24} created {token.created_at:%Y-%m-%d}"
    return f"{what}  {until}  {used}{only}"


@click.group(
    "sessions",
    cls=Group,
    invoke_without_command=True,
    examples=(
        "askback sessions",
        "askback sessions revoke --all",
    ),
)
@options.common
def sessions_command(settings: Settings, as_json: bool) -> int:
    """Without a subcommand: list the signed-in browsers. A session ends with the token it was created with."""
    return output.print_list(
        _active(settings),
        _session_line,
        as_json=as_json,
        document=_session_document,
        heading="SESSION, TOKEN, BROWSER, LAST SEEN",
        empty="no browser is signed in; 'askback serve' prints the address for signing in",
    )


@sessions_command.command("revoke")
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="Revoke all sessions.")
@options.common
def revoke_session(settings: Settings, as_json: bool, session_id: str | None, every: bool) -> int:
    """Revoke the session with this ID. It takes effect at once."""
    from askback.cli.data_folder import audited
    from askback.core.access import Action

    if every == (session_id is not None):
        raise click.UsageError("name an ID, or use --all")
    ids = [each.id for each in _active(settings)] if session_id is None else [session_id]
    if ids:
        audited(settings, Action.SESSION_END, partial(_sessions(settings).revoke, ids), lambda _: ", ".join(ids))
    lines = [f"✔ {printable(each)} is signed out" for each in ids]
    return output.print_done({"revoked": ids}, *lines, as_json=as_json)


def _sessions(settings: Settings) -> Sessions:
    from askback.access.grants import Grant
    from askback.access.sessions import Sessions
    from askback.app import now
    from askback.app.storage import open_records

    # Only the server knows its current main token.
    return Sessions(open_records(settings), now, lambda _: Grant(name="", scopes=frozenset()))


def _active(settings: Settings) -> list[Session]:
    """The sessions whose token is still valid."""
    tokens, found = _tokens(settings), _sessions(settings).all()
    return [each for each in found if each.token == "main" or tokens.find(each.token_digest) is not None]


def _session_document(session: Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "token": session.token,
        "browser": session.browser,
        "host": session.host,
        "created_at": rfc3339(session.created_at),
        "last_seen_at": rfc3339(session.last_seen_at),
        "expires_at": rfc3339(session.ends_at),
    }


def _session_line(session: Session) -> str:
    seen = f"seen {session.last_seen_at:%Y-%m-%d %H:%M}  until {session.ends_at:%Y-%m-%d %H:%M} UTC"
    return f"{session.id}  {session.token:<24} {session.browser or 'unknown':<24} {seen}"


@click.group(
    "invitations",
    cls=Group,
    invoke_without_command=True,
    examples=(
        "askback invitations create anna",
        "askback invitations create anna --expires-in 7d",
        "askback invitations revoke 9f2c01ab",
    ),
)
@options.common
@connection.server_options
async def invitations_command(settings: Settings, as_json: bool, url: str | None, token: str | None) -> int:
    """Without a subcommand: list the invitations that were not used yet."""
    async with connection.client_of(settings, url, token) as client:
        found = await client.invitations()
    return output.print_list(
        found,
        lambda each: f"{each.id:<10} {printable(each.token):<24} {each.expires_at:%Y-%m-%d %H:%M} UTC",
        as_json=as_json,
        heading=f"{'ID':<10} {'TOKEN':<24} EXPIRES",
        empty="there are no unused invitations; create one with: askback invitations create NAME",
    )


@invitations_command.command("create", cls=Command, examples=("askback invitations create anna --expires-in 7d",))
@click.argument("name")
@click.option("--expires-in", metavar="TIME", default="24h", show_default=True, help="Time to use it, up to 30d.")
@options.common
@connection.server_options
async def create_invitation(
    settings: Settings, as_json: bool, url: str | None, token: str | None, name: str, expires_in: str
) -> int:
    """Print a URL that signs one device in as the person of the token NAME. It works once, and is not shown again.

    Create the token first: askback tokens create NAME --scope answer
    """
    from askback.core.webhooks import is_loopback
    from askback.wire.base import plain

    lasts = options.lifetime(expires_in, _MAX_INVITATION_LIFETIME, "30 days (30d)")
    async with connection.client_of(settings, url, token) as client:
        made = await client.invite(name, expires_in_sec=int(lasts.total_seconds()))
    if as_json:
        output.print_json(plain(made))
    else:
        print(made.url)
        until = f"{made.expires_at:%Y-%m-%d %H:%M} UTC"
        output.to_stderr(f"✔ signs one device in as {printable(made.token)}, once, until {until}")
    host = urlsplit(made.url).hostname or ""
    if is_loopback(host) or host.endswith(".localhost"):
        output.to_stderr("warning: this address works on the server's machine alone; set server.public_url")
    return 0


@invitations_command.command("revoke")
@click.argument("invitation_id", metavar="ID")
@options.common
@connection.server_options
async def revoke_invitation(
    settings: Settings, as_json: bool, url: str | None, token: str | None, invitation_id: str
) -> int:
    """Revoke the unused invitation with this ID. A device that has used it stays signed in: see askback sessions."""
    async with connection.client_of(settings, url, token) as client:
        await client.revoke_invitation(invitation_id)
    message = f"✔ {one_line(invitation_id, 40)} is revoked"
    return output.print_done({"id": invitation_id, "revoked": True}, message, as_json=as_json)
