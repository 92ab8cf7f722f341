"""A server that is killed while it sends a digest: nobody gets the digest twice."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from askback.core.webhooks import Webhook, WebhookKind
from askback.fs.records import Collection
from askback.notifications.digests import DigestRecord, channel_key
from support.data_folder import World
from support.program import until
from support.receiver import ALLOWED, Receiver, receiving
from support.server import Server

ASKS = {"ask": {"interaction_id": "colour", "prompt": "Which colour?"}}
FINISH = {"finish": {"colour": "{{reply|none}}"}}


def server(world: World, due: datetime, *receivers: Receiver) -> Server:
    digest = f'[notifications.digest]\nat = ["{due:%H:%M}"]\ntz = "UTC"\n'
    hooks = [f'[[webhooks]]\nurl = "{each.url}"\nkind = "ntfy"\nstates = []\ndigest = true\n' for each in receivers]
    world.settings(f"{ALLOWED}{digest}{''.join(hooks)}")
    return Server(world, "--config", str(world.folder / "askback.toml"))


def ledger(world: World) -> Collection[DigestRecord]:
    return world.records.collection("digests", DigestRecord)


def has_begun(world: World, channels: int) -> bool:
    """Whether the server knows so many channels."""
    return len(ledger(world).read()) == channels


def miss(world: World, webhook: Receiver) -> None:
    """Let this channel be one that no server sent a digest to since yesterday."""
    with ledger(world).changing() as records:
        channel = channel_key(Webhook(url=webhook.url, kind=WebhookKind.NTFY))
        records[channel] = replace(records[channel], last_at=datetime.now(UTC) - timedelta(days=1))


@pytest.mark.contract("N-4")
def test_a_digest_is_not_sent_again_after_a_kill(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASKS], [FINISH])
    due = datetime.now(UTC) - timedelta(hours=2)
    with receiving(Receiver(), hold=True) as phone, receiving(Receiver()) as tablet:
        with server(world, due, phone) as first, first.client() as client:
            run_id = client.create_run("tested", engine="scripted", mode="interactive").id
            until(lambda: client.get_run(run_id).state == "waiting_user")
            until(lambda: has_begun(world, 1))
            first.kill()
        miss(world, phone)
        with server(world, due, phone) as second:
            until(lambda: len(phone.came) == 1)
            second.kill()
        phone.hold.set()
        with server(world, due, phone, tablet) as third:
            until(lambda: has_begun(world, 2))
            third.stop()
        miss(world, tablet)
        with server(world, due, phone, tablet) as fourth:
            # Whoever sends this one has looked at the phone before.
            until(lambda: len(tablet.came) == 1)
            fourth.stop()
        assert [len(phone.came), len(tablet.came)] == [1, 1]
        assert json.loads(phone.came[0].body)["title"] == "1 question is waiting"
