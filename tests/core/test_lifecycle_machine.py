"""A plain model of a run's life, written from the contract, and the real lifecycle on a real store: never a difference.

Hypothesis sends both the same signals, also stale, early and mistaken ones, to a few runs at a time.
`pytest tests/core/test_lifecycle_machine.py --hypothesis-profile deep` sends about a million.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from lifecycle_pair import OUTCOMES, TIMEOUT_SEC, Pair

from askback.store.base import Store
from support.opened_store import opened_store

RUNS = 3
FACTS: dict[str, list[Any]] = {
    "owner": ["first", "second"],
    "auto": [False, False, True],
    "sticky": [False, True],
    "require_reply": [False, True],
    "max_attempt": [None, None, 3, 5],
    "repair_attempts": [1, 0, 2],
    "rebuild": [True, False],
}
KINDS = [dict(zip(FACTS, facts, strict=True)) for facts in itertools.product(*FACTS.values())]


class Lifecycles(RuleBasedStateMachine):
    """Every example has separate runs in one shared store."""

    numbers = itertools.count()

    def __init__(self, runner: asyncio.Runner, store: Store) -> None:
        super().__init__()
        self.pair = Pair(runner, store, f"example-{next(self.numbers)}")

    @initialize(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=RUNS))
    def create_some(self, kinds: list[dict[str, Any]]) -> None:
        for kind in kinds:
            self.pair.create(**kind)

    @rule(seed=st.integers(0, 2**32), count=st.integers(1, 60))
    def send_signals(self, seed: int, count: int) -> None:
        """Spread evenly by a random generator of our own: Hypothesis likes small numbers, and would cancel all day."""
        chance = Random(seed)
        for _ in range(count):
            which, choice = chance.randrange(4), chance.randrange(100)
            open_ = self.pair.open_runs()
            if not open_:
                self.pair.create(**KINDS[(100 * which + choice) % len(KINDS)])
            elif choice < 75:
                self.fitting(open_[which % len(open_)], choice)
            elif choice < 97:
                self.any(open_[which % len(open_)], choice, (0, 0, -1, 1)[which])
            else:
                self.any(next(iter(self.pair.models)), 5 * which + choice, 0)

    def fitting(self, run: str, choice: int) -> None:
        """What is likely to bring the run on: chance alone would seldom bring one far."""
        model = self.pair.models[run]
        match model.state, choice % 10:
            case "queued", _:
                self.pair.start(run)
            case "running" | "waiting_user", 0 if model.canceling:
                self.pair.tree_gone(run, 0)
            case "running", 0 | 8 | 9 if model.resumes() and model.rebuild:
                self.pair.end_turn(run, 0, "lost", choice)
            case "running", 0 | 1 | 2 | 3 | 4 if model.rebuilds and model.session is None:
                self.pair.name_session(run, 0, "s-3")
            case "running", 3 | 4 | 5 if model.restarts:
                self.pair.lose_turn(run, 0, counted=True)
            case "running", 0 | 1 | 2 if model.session is None:
                self.pair.name_session(run, 0, "s-1")
            case "running", 0 | 1 | 2 | 3 | 4 | 5:
                self.pair.ask(run, 0, [None, "colour", "count", "not an id"][choice % 4])
            case "running", 6:
                self.pair.end_turn(run, 0, "wrong" if choice < 60 else "soft", choice)
            case "running", _:
                self.pair.lose_turn(run, 0, counted=choice < 60)
            case "waiting_user", 7 | 8:
                self.pair.pass_deadline(run, True, TIMEOUT_SEC if choice < 50 else TIMEOUT_SEC - 1)
            case "waiting_user", 9 if choice > 50:
                self.pair.lose_process(run, 0)
            case "waiting_user", 6:
                self.pair.announce_deadline(run, True, TIMEOUT_SEC - 1 if choice < 70 else TIMEOUT_SEC)
            case "waiting_user", _:
                self.pair.reply(run, True, "red" if choice < 40 else None, "first" if choice < 40 else "second")

    def any(self, run: str, choice: int, off: int) -> None:
        """Whatever may come, at any time, and by `off` from a worker that has long lost the run, or never had it."""
        signals: list[Callable[[], None]] = [
            lambda: self.pair.start(run),
            lambda: self.pair.note_process(run, off),
            lambda: self.pair.name_session(run, off, "s-2"),
            lambda: self.pair.end_turn(run, off, sorted(OUTCOMES)[choice % len(OUTCOMES)], choice),
            lambda: self.pair.ask(run, off, None),
            lambda: self.pair.reply(run, off == 0, "blue", "first"),
            lambda: self.pair.announce_deadline(run, off == 0, TIMEOUT_SEC - 1),
            lambda: self.pair.pass_deadline(run, off == 0, TIMEOUT_SEC),
            lambda: self.pair.cancel(run),
            lambda: self.pair.tree_gone(run, off),
            lambda: self.pair.lose_turn(run, off, counted=True),
            lambda: self.pair.lose_process(run, off),
            lambda: self.pair.keep_files(run, off),
            lambda: self.pair.adopt(run, *(("first", "second") if choice % 2 else ("second", "first"))),
            lambda: self.pair.append(run, off, choice % 3),
        ]
        signals[choice % len(signals)]()

    @rule(choice=st.integers(0, 1000))
    def write_from_an_old_copy(self, choice: int) -> None:
        self.pair.write_from_an_old_copy(choice)

    @invariant()
    def lists_agree(self) -> None:
        self.pair.lists_agree()

    def teardown(self) -> None:
        """All lists once; then every run is ended, so that the lists stay short."""
        for run in self.pair.models:
            self.pair.compare(run)
        self.pair.all_lists_agree()
        for run in self.pair.models:
            self.pair.cancel(run)
            self.pair.tree_gone(run, 0)


def search(examples: int) -> settings:
    """The same examples each time; the deep search also makes a short one of what it finds."""
    if settings.get_current_profile_name() == "deep":
        return settings()
    return settings(
        max_examples=examples,
        stateful_step_count=8,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.databases
@pytest.mark.contract("A-2", "W-13", "B-1", "C-3", "C-6", "J-5", "M-1")
def test_model_and_store_never_differ(tmp_path: Path, database_of_test: str) -> None:
    # A change takes longer on PostgreSQL.
    examples = 15 if database_of_test == "postgres" else 45
    with asyncio.Runner() as runner:
        store = runner.run(opened_store(tmp_path))
        try:
            run_state_machine_as_test(lambda: Lifecycles(runner, store), settings=search(examples))  # type: ignore[arg-type]
        finally:
            runner.run(store.close())
