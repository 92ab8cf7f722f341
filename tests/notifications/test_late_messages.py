"""A message that asks for an answer is not sent after its question was closed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from askback.core.webhooks import WebhookKind
from support.data_folder import ASK, FINISH, World, over, run_async, submit, waiting
from support.passing_time import PassingTime
from support.receiver import ALLOWED, Receiver, receiving


@pytest.mark.contract("N-3")
@pytest.mark.parametrize("kind", ["ntfy", "slack"])
def test_a_question_that_was_closed_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver(answers=[503])) as people, receiving(Receiver(answers=[503])) as program:
            states = 'states = ["waiting_user"]\nreminders = false\n'
            config = f'{ALLOWED}[[webhooks]]\nurl = "{people.url}"\nkind = "{kind}"\n{states}'
            config += f'[[webhooks]]\nurl = "{program.url}"\n{states}'
            async with world.working(config, serving=True) as app:
                run = await waiting(app, (await submit(app, skill)).id)
                while any(each.last_status != 503 for each in (await app.store.deliveries(run.id)).items):
                    await asyncio.sleep(0.01)
                await app.service.reply(run.id, "red")
                await over(app, run.id)
                time.passes(5)
                while any(each.next_attempt_at for each in (await app.store.deliveries(run.id)).items):
                    await asyncio.sleep(0.01)
                log = {each.webhook.kind: each for each in (await app.store.deliveries(run.id)).items}
        late = log[WebhookKind(kind)]
        assert (late.delivered_at, late.last_error, len(people.came)) == (None, "the question is closed", 1)
        assert log[WebhookKind.STANDARD].delivered_at is not None, "a program gets every change of state"
        assert [json.loads(came.body)["data"]["to"] for came in program.came] == ["waiting_user"] * 2

    run_async(main)
