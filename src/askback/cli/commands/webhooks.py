"""`askback webhooks`: the webhooks of the settings, and whether their messages arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from askback.cli import exit_codes, options, output
from askback.cli.help import Command, Group
from askback.core.errors import Invalid, RefusalCode
from askback.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from askback.core.webhooks import Webhook
    from askback.notifications.channels import Trial
    from askback.settings.model import Settings

_NONE = "the settings have no webhooks; add one as [[webhooks]] to askback.toml"


@click.group(
    "webhooks",
    cls=Group,
    invoke_without_command=True,
    examples=("askback webhooks", "askback webhooks test", "askback webhooks test ntfy anna@example.org"),
)
@options.common
def command(settings: Settings, as_json: bool) -> int:
    """Without a subcommand: list the webhooks of the settings, which are notified of every run of a server.

    The chats of the Telegram bot are listed with them.
    """
    from askback.app import delivery_policy

    return output.print_list(
        delivery_policy(settings).webhooks,
        _line,
        as_json=as_json,
        document=_document,
        heading=f"{'NAME':<24} {'KIND':<9} {'STATES':<24} URL",
        empty=_NONE,
    )


@command.command("test", cls=Command, examples=("askback webhooks test", "askback webhooks test ntfy"))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.common
async def test(settings: Settings, as_json: bool, names: tuple[str, ...]) -> int:
    """Send a test message to every webhook and Telegram chat of the settings, or to those called NAME. Exit code 1 if one fails.

    It needs no server. The result is that of the receiver: a mail server or a push service may still lose the message.
    """
    from askback.app import delivery_policy, now
    from askback.app.notifications import trial_channels
    from askback.notifications.channels import send_trials

    policy = delivery_policy(settings)
    chosen = _chosen(policy.webhooks, names)
    async with trial_channels(settings) as channels:
        trials = await send_trials(policy, chosen, now(), url=settings.server.public_url, channels=channels)
    ok = all(each.ok for each in trials)
    results = [_document(each.webhook) | {"ok": each.ok, "status": each.status, "error": each.error} for each in trials]
    output.print_done({"ok": ok, "results": results}, *map(_trial_line, trials), as_json=as_json, indent=2)
    return 0 if ok else exit_codes.FAILED


def _chosen(webhooks: Sequence[Webhook], names: Sequence[str]) -> list[Webhook]:
    if not webhooks:
        raise Invalid(RefusalCode.SETTINGS_INVALID, _NONE)
    known = [webhook.recipient for webhook in webhooks]
    for name in names:
        if name not in known:
            raise Invalid(RefusalCode.INPUT_INVALID, f"there is no webhook {name!r}; known: {', '.join(known)}")
    return [webhook for webhook in webhooks if not names or webhook.recipient in names]


def _document(webhook: Webhook) -> dict[str, Any]:
    states = None if webhook.states is None else list(webhook.states)
    return {"name": webhook.recipient, "kind": webhook.kind, "url": webhook.shown_url, "states": states}


def _line(webhook: Webhook) -> str:
    states = "all" if webhook.states is None else ", ".join(webhook.states)
    return f"{printable(webhook.recipient):<24} {webhook.kind:<9} {states:<24} {webhook.shown_url}"


def _trial_line(trial: Trial) -> str:
    where = f"{printable(trial.webhook.recipient):<24} {trial.webhook.shown_url}"
    if trial.error is not None:
        return f"✘ {where}: {printable(trial.error)}"
    return f"✔ {where}: the receiver accepted the message ({trial.status})"
