"""The clock of the database, on a machine whose own clock is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from askback.cluster import instances as clock
from askback.cluster.instances import DatabaseClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Machine:
    """Its wall clock can be set, and the time since its start cannot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.elapsed = 100.0
        self.wall = NOON
        monkeypatch.setattr(clock, "wall_clock", lambda: self.wall)

    def passes(self, seconds: float) -> None:
        self.elapsed += seconds
        self.wall += timedelta(seconds=seconds)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_without_a_measurement_the_machine_is_believed(machine: Machine) -> None:
    assert DatabaseClock(lambda: machine.elapsed).error() == timedelta()


def test_a_wrong_clock_is_corrected_also_when_it_is_set_between_measurements(machine: Machine) -> None:
    known = DatabaseClock(lambda: machine.elapsed)
    machine.wall = NOON + timedelta(hours=1)
    known.measure(NOON, machine.elapsed, machine.elapsed)
    assert machine.wall + known.error() == NOON
    machine.passes(5)
    machine.wall -= timedelta(days=30)
    assert machine.wall + known.error() == NOON + timedelta(seconds=5)


def test_a_slow_answer_does_not_move_the_clock(machine: Machine) -> None:
    known = DatabaseClock(lambda: machine.elapsed)
    known.measure(NOON, machine.elapsed, machine.elapsed)
    # The answer of 12:00:01 takes four seconds: it was given at the beginning of them.
    machine.passes(5)
    known.measure(NOON + timedelta(seconds=1), machine.elapsed - 4, machine.elapsed)
    assert machine.wall + known.error() == NOON + timedelta(seconds=5)


def test_a_database_whose_clock_was_set_is_followed(machine: Machine) -> None:
    known = DatabaseClock(lambda: machine.elapsed)
    known.measure(NOON, machine.elapsed, machine.elapsed)
    known.measure(NOON + timedelta(minutes=1), machine.elapsed - 2, machine.elapsed)
    assert machine.wall + known.error() == NOON + timedelta(seconds=61)
