"""Traces of runs, as a collector gets them: one for each run, also over a restart, without anything secret."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.api import calling, over, reply, start, waiting
from support.collector import Collector, Span, collecting
from support.data_folder import ASK, FINISH, World
from support.program import askback, until
from support.receiver import Receiver
from support.server import Server

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOT_RECORDED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
SECRETS = ("secret-input-text", "secret-answer-text", "secret-env-value", "secret-header-value", "Which colour?")
ANY_INPUT = {"type": "object", "properties": {"note": {"type": "string"}}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    usage = {"usage": {"input_tokens": 30, "output_tokens": 4, "cached_tokens": 0, "total_tokens": 34}}
    world.skill([ASK], [{"say": "{{reply}}"}, usage, FINISH], name="asking", schemas={"input": ANY_INPUT})
    world.skill([{"finish": {"colour": "red"}}], name="quick")
    world.skill([{"misbehave": "auth"}], name="failing")
    return world


@contextmanager
def serving(world: World, collector: Collector, **env: str) -> Iterator[tuple[Server, httpx.Client]]:
    with Server(world, env=collector.settings | env) as server, calling(server.url, server.token) as client:
        yield server, client


def whole_trace(collector: Collector, run_id: str) -> dict[str, list[Span]]:
    """The spans of a finished run by name, when all of them are there. The run's own span is the last."""
    until(lambda: any(span.name == "askback run" for span in collector.spans(run_id)))
    spans: dict[str, list[Span]] = {}
    for span in collector.spans(run_id):
        spans.setdefault(span.name, []).append(span)
    return spans


def answered(client: httpx.Client, answer: str = "blue", **rest: Any) -> str:
    run_id = waiting(client, **rest)
    assert reply(client, run_id, answer).status_code < 300
    assert over(client, run_id)["state"] == "succeeded"
    return run_id


def test_a_run_is_one_trace_with_a_span_for_each_turn_and_each_wait(world: World) -> None:
    with collecting() as collector, serving(world, collector) as (_, client):
        run_id = answered(client)
        spans = whole_trace(collector, run_id)
        other = whole_trace(collector, answered(client))
    assert {name: len(each) for name, each in spans.items()} == {
        "askback run": 1,
        "queued": 2,
        "invoke_agent scripted": 2,
        "waiting for user": 1,
    }
    (run,), (asked, finished), (wait,) = (
        spans[name] for name in ("askback run", "invoke_agent scripted", "waiting for user")
    )
    everything = [span for each in spans.values() for span in each]
    assert {span.trace_id for span in everything} == {run.trace_id}
    assert run.trace_id != other["askback run"][0].trace_id
    assert run.parent_id == ""
    assert {span.parent_id for span in everything if span is not run} == {run.span_id}
    assert len({span.span_id for span in everything}) == len(everything)
    assert run.began <= asked.began <= asked.ended <= wait.began <= wait.ended <= finished.began <= run.ended
    assert (run.attributes["askback.outcome"], run.attributes["askback.turns"]) == ("succeeded", 2)
    assert (asked.attributes["askback.outcome"], finished.attributes["askback.outcome"]) == ("ask_user", "final")
    assert wait.attributes["askback.outcome"] == "answered"
    assert asked.events == ("process started", "first output")
    assert finished.attributes["askback.turn.kind"] == "reply"
    assert finished.attributes["gen_ai.usage.input_tokens"] == 30


def test_a_failed_run_says_its_error_code_and_nothing_more(world: World) -> None:
    with collecting() as collector, serving(world, collector) as (_, client):
        run_id = start(client, "failing")
        assert over(client, run_id)["state"] == "failed"
        (run,) = whole_trace(collector, run_id)["askback run"]
    assert run.attributes["error.type"] == run.failed == "ENGINE_AUTH_REQUIRED"


def test_the_trace_of_the_caller_contains_the_run(world: World) -> None:
    with collecting() as collector, serving(world, collector) as (_, client):
        runs = {}
        for header in (CALLER, NOT_RECORDED, "nonsense"):
            body = {"skill": "quick", "engine": "scripted", "mode": "interactive"}
            made = client.post("/v1/runs", json=body, headers={"traceparent": header}).json()
            over(client, made["id"])
            runs[header] = made["id"]
        # Spans are sent in the order in which runs end: the last one shows that the others came, or will not.
        (invalid,) = whole_trace(collector, runs["nonsense"])["askback run"]
        (run,) = whole_trace(collector, runs[CALLER])["askback run"]
        turns = collector.spans(runs[CALLER])
        assert collector.spans(runs[NOT_RECORDED]) == []
    assert (run.trace_id, run.parent_id) == (CALLER[3:35], CALLER[36:52])
    assert {span.trace_id for span in turns} == {run.trace_id}
    assert invalid.parent_id == ""
    assert invalid.trace_id != run.trace_id


@pytest.mark.parametrize("header", [None, CALLER])
def test_a_run_that_waits_over_a_restart_continues_its_trace(world: World, header: str | None) -> None:
    with collecting() as collector:
        with serving(world, collector) as (server, client):
            if header is not None:
                client.headers["traceparent"] = header
            run_id = waiting(client)
            del client
            server.stop()
        with serving(world, collector) as (_, client):
            reply(client, run_id, "red")
            over(client, run_id)
            spans = whole_trace(collector, run_id)
    (run,), (first, second), (wait,) = (
        spans[name] for name in ("askback run", "invoke_agent scripted", "waiting for user")
    )
    assert {span.trace_id for each in spans.values() for span in each} == {run.trace_id}
    assert {span.parent_id for span in (first, second, wait)} == {run.span_id}
    assert wait.began == first.ended
    assert run.trace_id == (header[3:35] if header else run.trace_id)


def test_a_turn_that_a_killed_server_began_is_part_of_the_trace(world: World) -> None:
    world.skill([{"touch": "began"}, {"wait_for": "go"}, {"finish": {"colour": "red"}}], name="slow")
    with collecting() as collector:
        with serving(world, collector) as (server, client):
            run_id = start(client, "slow")
            folder = world.data_dir / "runs" / run_id
            until(lambda: next(folder.rglob("began"), None))
            server.kill()
        with serving(world, collector) as (_, client):
            until(lambda: next(folder.rglob("began"), None))
            next(folder.rglob("began")).with_name("go").touch()
            over(client, run_id)
            spans = whole_trace(collector, run_id)
    outcomes = [span.attributes["askback.outcome"] for span in spans["invoke_agent scripted"]]
    assert outcomes == ["interrupted", "final"]
    assert {span.parent_id for span in spans["invoke_agent scripted"]} == {spans["askback run"][0].span_id}


@pytest.mark.parametrize("kind", ["text", "secret"])
def test_nothing_that_a_user_gave_is_sent(world: World, kind: str) -> None:
    world.skill(
        [{"ask": {**ASK["ask"], "options": [], "kind": kind}}], [FINISH], name="asking", schemas={"input": ANY_INPUT}
    )
    headers = '{"x-key": "secret-header-value"}'
    with (
        collecting() as collector,
        serving(world, collector, ASKBACK_TELEMETRY__OTLP_HEADERS=headers) as (server, client),
    ):
        rest = {"input": {"note": "secret-input-text"}, "env": {"MY_VALUE": "secret-env-value"}}
        run_id = answered(client, "secret-answer-text", **rest)
        whole_trace(collector, run_id)
        until(collector.metrics)
        sent = collector.everything()
        assert {came.headers["x-key"] for came in collector.receiver.came} == {"secret-header-value"}
        token = server.token
    assert run_id.encode() in sent
    assert [secret for secret in (*SECRETS, token) if secret.encode() in sent] == []


def test_a_command_sends_its_run_as_well(world: World) -> None:
    with collecting() as collector:
        words = ("run", str(world.folder / "skills/quick"), "--engine", "scripted", "--json")
        ran = askback(world, *words, env=collector.settings, warm=False)
        assert ran.code == 0, ran.stderr
        spans = whole_trace(collector, ran.json["run_id"] if "run_id" in ran.json else ran.json["id"])
    assert spans.keys() == {"askback run", "queued", "invoke_agent scripted"}


# A collector that does not work.


def lost_spans(client: httpx.Client, outcome: str) -> float:
    name = f'askback_telemetry_spans_total{{outcome="{outcome}"}} '
    lines = client.get("/metrics").text.splitlines()
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)


def test_without_a_collector_runs_succeed_and_lost_spans_are_counted(world: World) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = Collector(receiver=Receiver(port=closed.getsockname()[1]))
        # How long the exporter tries again, instead of ten seconds.
        with serving(world, nobody, OTEL_EXPORTER_OTLP_TIMEOUT="2") as (server, client):
            answered(client)
            until(lambda: lost_spans(client, "failed") > 0)
            lost = lost_spans(client, "failed")
            answered(client)
            until(lambda: lost_spans(client, "failed") > lost)
            assert lost_spans(client, "sent") == 0
            assert server.stop() == 0
            # One line, not one for every attempt.
            (line,) = [line for line in server.stderr.splitlines() if "sandbox" not in line]
            assert "telemetry cannot be sent" in line
            assert "refused" in line


def test_a_collector_that_never_responds_delays_nothing(world: World) -> None:
    with collecting(hold=True) as collector, serving(world, collector) as (server, client):
        answered(client)
        until(lambda: collector.receiver.came)
        # One request hangs; runs go on, and so does the stop of the server.
        answered(client)
        assert server.stop() == 0


def test_a_redirect_is_not_followed(world: World) -> None:
    with collecting() as elsewhere:
        receiver = Receiver(answers=[302] * 100, headers={"location": f"{elsewhere.endpoint}/v1/traces"})
        with collecting(receiver) as collector, serving(world, collector) as (_, client):
            answered(client)
            until(lambda: collector.receiver.came)
        assert elsewhere.receiver.came == []
