"""The queue of spans is bounded: what does not fit is dropped and counted, and nobody waits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from askback.core.runs import Mode, Profile, ProfileKind, Run, RunOptions, RunState, SkillRef, TurnKind, TurnOrder
from askback.telemetry.exporter import MAX_WAITING, Exporter
from askback.telemetry.run_observer import Episode, EpisodeKind, StateChanged
from support.collector import collecting
from support.program import until

AT = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run(
    id="run-1",
    state=RunState.SUCCEEDED,
    skill=SkillRef(id="skill", version=None, digest="digest"),
    engine="scripted",
    mode=Mode.AUTO,
    profile=Profile(kind=ProfileKind.RESUMABLE, reason="seen", session_timeout_sec=1),
    options=RunOptions(),
    next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
    created_at=AT,
    updated_at=AT,
)


def episode(number: int) -> Episode:
    run = RUN.evolve(id=f"run-{number}")
    return Episode(kind=EpisodeKind.RUN, run=run, began=AT, ended=AT, outcome="succeeded")


def test_what_does_not_fit_is_dropped_and_counted() -> None:
    with collecting(hold=True) as collector:
        exporter = Exporter(collector.endpoint, {})
        exporter.observe(episode(0))
        until(lambda: collector.receiver.came)
        # The exporter waits for the response to the first request.
        for number in range(1, MAX_WAITING + 11):
            exporter.observe(episode(number))
        assert exporter.counts["dropped"] == 10
        collector.receiver.hold.set()
        until(lambda: exporter.counts["sent"] == MAX_WAITING + 1)
        assert len({span.run_id for span in collector.spans()}) == MAX_WAITING + 1
        asyncio.run(exporter.close())


def test_what_is_left_is_sent_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("askback.telemetry.exporter._CLOSE_SEC", 60)
    with collecting() as collector:
        exporter = Exporter(f"{collector.endpoint}/", {})
        exporter.observe(StateChanged(run=RUN))
        for number in range(3):
            exporter.observe(episode(number))
        asyncio.run(exporter.close())
        assert len(collector.spans()) == 3
        assert exporter.counts == {"sent": 3, "failed": 0, "dropped": 0}


def test_an_exporter_without_work_has_no_thread() -> None:
    exporter = Exporter("http://127.0.0.1:9", {})
    exporter.observe(StateChanged(run=RUN))
    asyncio.run(exporter.close())
    assert exporter.counts == {"sent": 0, "failed": 0, "dropped": 0}


def test_a_collector_that_comes_back_gets_spans_again() -> None:
    with collecting() as collector:
        collector.receiver.answers = [400]
        exporter = Exporter(collector.endpoint, {})
        exporter.observe(episode(1))
        until(lambda: exporter.counts["failed"] == 1)
        exporter.observe(episode(2))
        until(lambda: exporter.counts["sent"] == 1)
        asyncio.run(exporter.close())
