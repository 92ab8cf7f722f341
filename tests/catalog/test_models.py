"""The models of an installed engine: its program is asked once, within limits, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from askback.catalog import models
from askback.catalog.models import ModelAnswer, ModelLists
from askback.catalog.probes import EngineSetup, Installed
from askback.catalog.trials import Trials
from askback.core.runs import ProfileKind
from askback.engines.base import Engine, Probe
from askback.engines.codex import Codex
from askback.engines.scripted import Scripted
from askback.process.spawn_direct import Direct
from support.data_folder import run_async
from support.listing_engine import ListingEngine

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PROBE = Probe(kind=ProfileKind.RESUMABLE, reason="tested", resident=True)


class Asking:
    """`ModelLists` on a folder, with a clock that a test sets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = NOW
        self.program = ListingEngine(folder)
        self.setup = EngineSetup(
            command=self.program.command,
            env={"PATH": os.defpath},
            sign_in_home=folder / "user",
            secrets=("the-secret-key",),
        )
        self.lists = self.new()

    def new(self) -> ModelLists:
        """As another program on the same data folder has it."""
        trials = Trials(folder=self.folder / "models", locks=self.folder / "locks", spawner=Direct())
        return ModelLists(trials=trials, clock=lambda: self.now)

    async def find(self, engine: Engine | None = None, lists: ModelLists | None = None) -> ModelAnswer:
        installed = Installed(path=self.program.command[0], probe=PROBE, signed_in=True)
        return await (lists or self.lists).find(engine or Codex(), self.setup, installed)


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


def doing(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await body()

    run_async(main)


def test_the_program_lists_its_models(asking: Asking) -> None:
    async def body() -> None:
        found = await asking.find()
        assert found.models is not None
        assert [(each.id, each.title, each.is_default) for each in found.models] == [
            ("big-1", "Big 1", True),
            ("small-1", "Small 1", False),
        ]
        assert (found.models[0].efforts, found.reason, found.asked_at) == (("low", "high"), None, NOW)

    doing(body)


def test_a_thousand_at_once_start_one_process_and_so_do_two_programs(asking: Asking) -> None:
    async def body() -> None:
        found = await asyncio.gather(*(asking.find() for _ in range(1000)))
        assert len({id(each) for each in found}) == 1
        assert len(asking.program.starts) == 1
        # Two programs on one data folder ask one after the other.
        running = asking.folder / "running"
        asking.program.answer(
            first=f"import os; os.mkdir({str(running)!r}); time.sleep(0.2); os.rmdir({str(running)!r})"
        )
        both = await asyncio.gather(*(asking.find(lists=asking.new()) for _ in range(3)))
        assert [each.reason for each in both] == [None] * 3

    doing(body)


def test_an_answer_is_kept_for_an_hour_and_a_refusal_for_a_minute(asking: Asking) -> None:
    async def body() -> None:
        await asking.find()
        asking.now = NOW + timedelta(seconds=models.FRESH_SEC - 1)
        assert (await asking.find()).asked_at == NOW
        asking.program.answer(says="the-secret-key is not valid")
        asking.now = NOW + timedelta(seconds=models.FRESH_SEC)
        refused = await asking.find()
        assert (refused.models, refused.asked_at) == (None, asking.now)
        assert refused.reason == "the engine did not list its models: [redacted] is not valid"
        asking.program.answer()
        asking.now += timedelta(seconds=models.RETRY_SEC - 1)
        assert await asking.find() is refused
        asking.now += timedelta(seconds=1)
        assert (await asking.find()).models is not None
        assert len(asking.program.starts) == 3

    doing(body)


def test_the_model_of_the_settings_is_the_default(asking: Asking) -> None:
    asking.setup = replace(asking.setup, model="small-1")

    async def body() -> None:
        found = (await asking.find()).models
        assert found is not None
        assert [each.id for each in found if each.is_default] == ["small-1"]

    doing(body)


def test_another_program_is_asked_again(asking: Asking) -> None:
    async def body() -> None:
        await asking.find()
        os.utime(asking.program.command[1], ns=(1, 1))
        await asking.find()
        assert len(asking.program.starts) == 2

    doing(body)


def test_a_program_that_hangs_is_ended(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MODELS_SEC", 1.0)
    pid = asking.folder / "pid"
    asking.program.answer(first=f"Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)")

    async def body() -> None:
        # A start may take longer than the limit on a busy machine; then there is nothing to end.
        found = await asking.find()
        assert found.reason == "the engine did not list its models: it did not answer"
        if pid.exists():
            assert not Path(f"/proc/{pid.read_text()}").exists()

    doing(body)


def test_it_gets_a_copy_of_the_sign_in_and_nothing_stays(asking: Asking) -> None:
    sign_in = asking.folder / "user/.codex/auth.json"
    sign_in.parent.mkdir(parents=True)
    sign_in.write_text(json.dumps({"OPENAI_API_KEY": "key"}))
    seen = asking.folder / "seen"
    copy = "Path(os.environ['HOME'], '.codex/auth.json')"
    asking.program.answer(first=f"Path({str(seen)!r}).write_text({copy}.read_text()); {copy}.write_text('changed')")

    async def body() -> None:
        assert (await asking.find()).models is not None

    doing(body)
    assert seen.read_text() == sign_in.read_text() == json.dumps({"OPENAI_API_KEY": "key"})
    (start,) = asking.program.starts
    assert str(start["home"]).startswith(str(asking.folder / "models"))
    assert list((asking.folder / "models").iterdir()) == []


def test_what_a_killed_program_left_is_removed(asking: Asking) -> None:
    left = asking.folder / "models/codex/home/.codex/auth.json"
    left.parent.mkdir(parents=True)
    left.write_text("old")

    async def body() -> None:
        assert (await asking.find()).models is not None

    doing(body)
    assert not left.exists()


def test_an_engine_that_cannot_say_and_one_that_is_not_there(asking: Asking) -> None:
    async def body() -> None:
        silent = await asking.find(Scripted())
        assert (silent.models, silent.reason) == (
            None,
            "the engine does not list its models; name any model that it accepts",
        )
        missing = await asking.lists.find(Codex(), asking.setup, None)
        assert (missing.models, missing.reason) == (None, f"the engine is not installed; {Codex.install}")
        asking.setup = replace(asking.setup, command=("/nowhere/codex",))
        broken = await asking.find()
        assert broken.models is None
        assert "/nowhere/codex" in str(broken.reason)
        assert asking.program.starts == []

    doing(body)
