"""`askback sessions`: browsers that are signed in to the page. Works on the data folder."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from askback.cli import options, output
from askback.cli.help import Group
from askback.text.formatting import printable, rfc3339

if TYPE_CHECKING:
    from askback.access.sessions import Session, Sessions
    from askback.settings.model import Settings


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
@click.pass_context
def command(ctx: click.Context, settings: Settings, as_json: bool) -> int:
    """Without a subcommand: list the signed-in browsers. A session ends with the token it was created with."""
    if ctx.invoked_subcommand is not None:
        return 0
    sessions = _active(settings)
    if as_json:
        output.print_json([_view(each) for each in sessions])
        return 0
    if sessions:
        output.print_heading("SESSION, TOKEN, BROWSER, LAST SEEN")
    for each in sessions:
        output.print_line(_line(each), indent=2)
    if not sessions:
        output.to_stderr("no browser is signed in; 'askback serve' prints the address for signing in")
    return 0


@command.command("revoke")
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="Revoke all sessions.")
@options.common
def revoke(settings: Settings, as_json: bool, session_id: str | None, every: bool) -> int:
    """Revoke the session with this ID. It takes effect at once."""
    from askback.cli.audited import audited
    from askback.core.access import Action

    if every == (session_id is not None):
        raise click.UsageError("name an ID, or use --all")
    ids = [each.id for each in _active(settings)] if session_id is None else [session_id]
    if ids:
        audited(settings, Action.SESSION_END, partial(_sessions(settings).revoke, ids), lambda _: ", ".join(ids))
    if as_json:
        output.print_json({"revoked": ids})
        return 0
    for each in ids:
        output.print_line(f"✔ {printable(each)} is signed out")
    return 0


def _sessions(settings: Settings) -> Sessions:
    from askback.access.grants import Grant
    from askback.access.sessions import Sessions
    from askback.app import now
    from askback.app.storage import open_records

    # Only the server knows its current main token.
    return Sessions(open_records(settings), now, lambda _: Grant(name="", scopes=frozenset()))


def _active(settings: Settings) -> list[Session]:
    """Without those whose token was revoked or has expired."""
    from askback.access.tokens import Tokens
    from askback.app import now
    from askback.app.storage import open_records

    tokens = Tokens(open_records(settings), now)
    found = _sessions(settings).all()
    return [each for each in found if each.token == "main" or tokens.find(each.token_digest) is not None]


def _view(session: Session) -> dict[str, Any]:
    moments = {
        "created_at": session.created_at,
        "last_seen_at": session.last_seen_at,
        "expires_at": session.ends_at,
    }
    times = {name: rfc3339(moment) for name, moment in moments.items()}
    return {"id": session.id, "token": session.token, "browser": session.browser, "host": session.host, **times}


def _line(session: Session) -> str:
    seen = f"seen {session.last_seen_at:%Y-%m-%d %H:%M}  until {session.ends_at:%Y-%m-%d %H:%M} UTC"
    return f"{session.id}  {session.token:<24} {session.browser or 'unknown':<24} {seen}"
