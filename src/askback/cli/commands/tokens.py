"""`askback tokens`: additional tokens of a server, with limited scopes. Works on the data folder."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from askback.cli import options, output
from askback.cli.help import Group
from askback.cli.lifetimes import lifetime
from askback.text.formatting import printable, rfc3339

if TYPE_CHECKING:
    from askback.access.tokens import Token, Tokens, TokenUses
    from askback.settings.model import Settings

_SCOPES = ("submit", "answer", "read", "admin")
_MAX_LIFETIME = timedelta(days=36_500)
_HUNDRED_YEARS = "a hundred years (36500d)"


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
@click.pass_context
def command(ctx: click.Context, settings: Settings, as_json: bool) -> int:
    """Without a subcommand: list the additional tokens. A running server applies changes at once.

    It writes the last use of a token every few minutes, and when it stops.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    tokens, uses = _tokens(settings).all(), _uses(settings)
    if as_json:
        output.print_json([_view(token, uses) for token in tokens])
        return 0
    if tokens:
        output.print_heading(f"{'NAME':<24} {'SCOPES':<24} CREATED, EXPIRES, LAST USED")
    for token in tokens:
        output.print_line(_line(token, uses), indent=2)
    if not tokens:
        output.to_stderr("there are no additional tokens; create one with: askback tokens create NAME --scope read")
    return 0


@command.command("create")
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
@options.label("Restrict the token to runs with this label; repeatable: runs that have all of them.")
@options.common
def create(
    settings: Settings,
    as_json: bool,
    name: str,
    scopes: tuple[str, ...],
    expires_in: str | None,
    label: tuple[str, ...],
) -> int:
    """Create a token called NAME. It is printed once; only its digest is stored."""
    from askback.app import now
    from askback.cli.audited import audited
    from askback.core.access import AccessScope, Action, check_token_name
    from askback.core.labels import shown_labels
    from askback.fs.atomic import make_private

    check_token_name(name)
    expires_at = None if expires_in is None else now() + lifetime(expires_in, _MAX_LIFETIME, _HUNDRED_YEARS)
    make_private(settings.data_dir)
    given = tuple(AccessScope(scope) for scope in dict.fromkeys(scopes))
    labels = options.labels_of(label)
    make = partial(_tokens(settings).make, name, given, expires_at, labels)
    text = audited(settings, Action.TOKEN_CREATE, make, lambda _: name)
    if as_json:
        expiry = rfc3339(expires_at) if expires_at else None
        output.print_json({"name": name, "token": text, "scopes": list(given), "expires_at": expiry, "labels": labels})
        return 0
    print(text)
    only = f", only for runs with {shown_labels(labels)}" if labels else ""
    output.to_stderr(f"✔ {name} allows: {', '.join(given)}{only}; the token is not shown again")
    return 0


@command.command("revoke")
@click.argument("name")
@options.common
def revoke(settings: Settings, as_json: bool, name: str) -> int:
    """Revoke the token called NAME. It takes effect at once."""
    from askback.cli.audited import audited
    from askback.core.access import Action

    audited(settings, Action.TOKEN_REVOKE, partial(_tokens(settings).revoke, name), lambda _: name)
    if as_json:
        output.print_json({"name": name, "revoked": True})
    else:
        output.print_line(f"✔ {printable(name)} is revoked")
    return 0


def _tokens(settings: Settings) -> Tokens:
    from askback.access.tokens import Tokens
    from askback.app import now
    from askback.app.storage import open_records

    return Tokens(open_records(settings), now)


def _uses(settings: Settings) -> TokenUses:
    from askback.access.tokens import TokenUses
    from askback.app import now
    from askback.app.storage import open_records

    return TokenUses(open_records(settings), now)


def _view(token: Token, uses: TokenUses) -> dict[str, Any]:
    expires_at, use = token.expires_at, uses.last(token.digest)
    return {
        "name": token.name,
        "scopes": list(token.scopes),
        "created_at": rfc3339(token.created_at),
        "expires_at": rfc3339(expires_at) if expires_at else None,
        "labels": token.labels,
        "last_used_at": rfc3339(use.at) if use else None,
        "last_used_via": use.via if use else None,
    }


def _line(token: Token, uses: TokenUses) -> str:
    from askback.app import now
    from askback.core.labels import shown_labels

    until = "never expires"
    if token.expires_at is not None:
        over = token.expires_at <= now()
        until = f"{'expired' if over else 'until'} {token.expires_at:%Y-%m-%d %H:%M} UTC"
    use = uses.last(token.digest)
    used = "never used" if use is None else f"used {use.at:%Y-%m-%d %H:%M} by {use.via}"
    only = f"  only {printable(shown_labels(token.labels))}" if token.labels else ""
    what = f"{token.name:<24} {', '.join(token.scopes):<24} created {token.created_at:%Y-%m-%d}"
    return f"{what}  {until}  {used}{only}"
