"""`askback invitations`: URLs that sign one device in to the page of a server. The server makes them: it knows its address."""

from __future__ import annotations

import ipaddress
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from askback.cli import connection, options, output
from askback.cli.exit_codes import run_async
from askback.cli.help import Command, Group
from askback.cli.lifetimes import lifetime
from askback.text.formatting import one_line, printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from askback.client import AsyncClient, ListedInvitation
    from askback.settings.model import Settings

_MAX_LIFETIME = timedelta(days=30)


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
@click.pass_context
def command(ctx: click.Context, settings: Settings, as_json: bool, url: str | None, token: str | None) -> int:
    """Without a subcommand: list the invitations that were not used yet."""
    import msgspec

    if ctx.invoked_subcommand is not None:
        return 0
    found: list[ListedInvitation] = []

    async def read() -> int:
        async with _server(settings, url, token) as client:
            found.extend(await client.invitations())
        return 0

    run_async(read)
    if as_json:
        output.print_json([msgspec.to_builtins(each) for each in found])
        return 0
    if found:
        output.print_heading(f"{'ID':<10} {'TOKEN':<24} EXPIRES")
    for each in found:
        output.print_line(f"{each.id:<10} {printable(each.token):<24} {each.expires_at:%Y-%m-%d %H:%M} UTC", indent=2)
    if not found:
        output.to_stderr("there are no unused invitations; create one with: askback invitations create NAME")
    return 0


@command.command("create", cls=Command, examples=("askback invitations create anna --expires-in 7d",))
@click.argument("name")
@click.option("--expires-in", metavar="TIME", default="24h", show_default=True, help="Time to use it, up to 30d.")
@options.common
@connection.server_options
def create(settings: Settings, as_json: bool, url: str | None, token: str | None, name: str, expires_in: str) -> int:
    """Print a URL that signs one device in as the person of the token NAME. It works once, and is not shown again.

    Create the token first: askback tokens create NAME --scope answer
    """
    import msgspec

    lasts = lifetime(expires_in, _MAX_LIFETIME, "30 days (30d)")

    async def main() -> int:
        async with _server(settings, url, token) as client:
            made = await client.invite(name, expires_in_sec=int(lasts.total_seconds()))
        if as_json:
            output.print_json(msgspec.to_builtins(made))
        else:
            print(made.url)
            until = f"{made.expires_at:%Y-%m-%d %H:%M} UTC"
            output.to_stderr(f"✔ signs one device in as {printable(made.token)}, once, until {until}")
        if _is_local(made.url):
            output.to_stderr("warning: this address works on the server's machine alone; set server.public_url")
        return 0

    return run_async(main)


@command.command("revoke")
@click.argument("invitation_id", metavar="ID")
@options.common
@connection.server_options
def revoke(settings: Settings, as_json: bool, url: str | None, token: str | None, invitation_id: str) -> int:
    """Revoke the unused invitation with this ID. A device that has used it stays signed in: see askback sessions."""

    async def main() -> int:
        async with _server(settings, url, token) as client:
            await client.revoke_invitation(invitation_id)
        if as_json:
            output.print_json({"id": invitation_id, "revoked": True})
        else:
            output.print_line(f"✔ {one_line(invitation_id, 40)} is revoked")
        return 0

    return run_async(main)


@asynccontextmanager
async def _server(settings: Settings, url: str | None, token: str | None) -> AsyncIterator[AsyncClient]:
    server = connection.find(settings, url, token)
    if server is None:
        raise connection.no_server(settings)
    with connection.errors_reported(server):
        async with server.async_client() as client:
            yield client


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
