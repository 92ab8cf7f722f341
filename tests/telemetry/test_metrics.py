"""The metrics of a real server: well-formed, complete for the dashboard and the alerts, and the same for a collector."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from askback.core.runs import Mode, Profile, ProfileKind, Run, RunOptions, RunState, SkillRef, TurnKind, TurnOrder
from askback.telemetry.metrics import MAX_LABEL_VALUES, Gauges, Metrics
from askback.telemetry.run_observer import Episode, EpisodeKind
from support.api import calling, over, reply, start, waiting
from support.collector import Collector, collecting
from support.data_folder import ASK, FINISH, World
from support.program import until
from support.server import Server

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy/grafana/askback.json"
RULES = ROOT / "deploy/prometheus/askback.rules.yml"
SCRAPED = {"instance", "job", "le"}
"""Labels that Prometheus adds, or that belong to every histogram."""
NAME = re.compile(r"\baskback_\w+")
SELECTOR = re.compile(r"\b(askback_\w+)(?:\{([^}]*)\})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A server that has done one of everything."""

    text: str
    collector: Collector
    run_id: str

    @property
    def families(self) -> dict[str, Metric]:
        return {family.name: family for family in text_string_to_metric_families(self.text)}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    world = World(tmp_path_factory.mktemp("watched"))
    usage = {
        "usage": {"input_tokens": 30, "output_tokens": 4, "cached_tokens": 2, "total_tokens": 34, "cost_usd": 0.25}
    }
    world.skill([ASK], [usage, FINISH], name="stranger")
    world.skill([{"misbehave": "auth"}], name="failing")
    with (
        collecting() as collector,
        Server(world, env=collector.settings | {"ASKBACK_TELEMETRY__METRIC_LABELS": '["customer"]'}) as server,
        calling(server.url, server.token) as client,
    ):
        run_id = waiting(client, "stranger", labels={"customer": '47"11\\', "secret": "unnamed"})
        follow_reply(client, run_id)
        over(client, start(client, "failing"))
        until(lambda: 'askback_telemetry_spans_total{outcome="sent"} 0.0' not in client.get("/metrics").text)
        text = client.get("/metrics").text
        until(lambda: "askback_runs_finished" in collector.metrics())
        until(lambda: finished_count(collector) == 2)
        yield Watched(text=text, collector=collector, run_id=run_id)


def follow_reply(client: httpx.Client, run_id: str) -> None:
    """Reply while a stream is open, and read it to the end of the run."""
    path = f"/v1/runs/{run_id}/events"
    with client.stream("GET", path, headers={"accept": "text/event-stream"}) as stream:
        lines = stream.iter_lines()
        next(line for line in lines if "interaction.asked" in line)
        assert reply(client, run_id, "blue").status_code < 300
        assert any('"succeeded"' in line for line in lines)


def finished_count(collector: Collector) -> float:
    points = collector.metrics()["askback_runs_finished"].sum.data_points
    return sum(point.as_double for point in points)


# The text.


def test_the_text_is_well_formed(watched: Watched) -> None:
    lines = watched.text.splitlines()
    assert watched.text.endswith("\n")
    declared = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert declared == [line.split()[2] for line in lines if line.startswith("# HELP ")]
    assert len(declared) == len(set(declared))
    for family in watched.families.values():
        assert family.documentation
        for sample in family.samples:
            assert sample.name.startswith("askback_")
            assert math.isfinite(sample.value)
            assert family.type != "counter" or (sample.name.endswith("_total") and sample.value >= 0)


def test_the_buckets_of_a_histogram_are_cumulative(watched: Watched) -> None:
    histograms = [family for family in watched.families.values() if family.type == "histogram"]
    assert len(histograms) >= 7
    for family in histograms:
        assert family.name.endswith("_seconds")
        series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
        for sample in family.samples:
            labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
            parts = series.setdefault(labels, {"buckets": []})
            if sample.name.endswith("_bucket"):
                parts["buckets"].append((float(sample.labels["le"]), sample.value))
            else:
                parts[sample.name.removeprefix(family.name)] = sample.value
        assert series, family.name
        for parts in series.values():
            bounds, counts = zip(*parts["buckets"], strict=True)
            assert list(bounds) == sorted(set(bounds))
            assert list(counts) == sorted(counts)
            assert bounds[-1] == math.inf
            assert counts[-1] == parts["_count"]
            assert parts["_sum"] >= 0


def test_every_delay_of_a_run_with_a_question_is_measured(watched: Watched) -> None:
    counts = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in watched.families.values()
        for sample in family.samples
        if sample.name.endswith("_count")
    }
    assert counts["askback_queue_delay_seconds_count", "scripted", "start"] == 2
    assert counts["askback_queue_delay_seconds_count", "reply", "scripted"] == 1
    assert counts["askback_reply_to_process_seconds_count", "scripted"] == 1
    assert counts["askback_reply_to_output_seconds_count", "scripted"] == 1
    assert counts["askback_turn_seconds_count", "ask_user", "scripted"] == 1
    assert counts["askback_turn_seconds_count", "final", "scripted"] == 1
    assert counts["askback_turn_seconds_count", "error", "scripted"] == 1
    assert counts["askback_wait_seconds_count", "answered", "scripted"] == 1
    assert counts["askback_store_commit_seconds_count",] > 5
    assert counts["askback_event_lag_seconds_count",] > 0
    assert 'askback_tokens_total{engine="scripted",kind="input"} 30.0' in watched.text
    assert 'askback_cost_usd_total{engine="scripted"} 0.25' in watched.text
    assert 'error="ENGINE_AUTH_REQUIRED",state="failed"} 1.0' in watched.text


def test_nothing_that_a_caller_chooses_is_a_label(watched: Watched) -> None:
    samples = [sample for family in watched.families.values() for sample in family.samples]
    names = {name for sample in samples for name in sample.labels}
    fixed = {"engine", "error", "kind", "le", "outcome", "reason", "result", "state", "turn", "version"}
    assert names == fixed | {"label", "value"}
    assert "unnamed" not in watched.text
    assert "stranger" not in watched.text
    assert watched.run_id not in watched.text


@pytest.mark.contract("N-5")
def test_runs_are_counted_by_the_labels_that_the_settings_name(watched: Watched) -> None:
    samples = watched.families["askback_labelled_runs_finished"].samples
    assert [(sample.labels, sample.value) for sample in samples] == [
        ({"label": "customer", "value": '47"11\\', "state": "succeeded"}, 1.0)
    ]
    tokens = watched.families["askback_labelled_tokens"].samples
    assert {sample.labels["kind"]: sample.value for sample in tokens} == {"input": 30, "output": 4, "cached": 2}


@pytest.mark.contract("N-5")
def test_a_label_has_a_bounded_number_of_series() -> None:
    metrics = Metrics(Gauges(), run_labels=["customer"])
    for number in range(3 * MAX_LABEL_VALUES):
        metrics.observe(finished_run({"customer": str(number)}))
        metrics.observe(finished_run({}))
    families = {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}
    counted = {each.labels["value"]: each.value for each in families["askback_labelled_runs_finished"].samples}
    assert len(counted) == MAX_LABEL_VALUES + 1
    assert counted["other"] == 2 * MAX_LABEL_VALUES


def finished_run(labels: dict[str, str]) -> Episode:
    now = datetime.now(UTC)
    run = Run(
        id="run",
        state=RunState.SUCCEEDED,
        skill=SkillRef(id="skill", version=None, digest=""),
        engine="scripted",
        mode=Mode.AUTO,
        profile=Profile(kind=ProfileKind.RESUMABLE, reason="", session_timeout_sec=1),
        options=RunOptions(),
        next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
        created_at=now,
        updated_at=now,
        labels=labels,
    )
    return Episode(kind=EpisodeKind.RUN, run=run, began=now, ended=now, outcome=run.state)


def test_history_is_no_lag(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([{"finish": {"colour": "red"}}], name="quick")
    with Server(world) as server, calling(server.url, server.token) as client:
        run_id = start(client, "quick")
        over(client, run_id)
        path = f"/v1/runs/{run_id}/events"
        with client.stream("GET", path, headers={"accept": "text/event-stream"}) as stream:
            assert "succeeded" in stream.read().decode()
        assert "askback_event_lag_seconds_count 0.0" in client.get("/metrics").text


# The dashboard and the alerts.


def queries() -> dict[str, str]:
    """Every expression, by where it stands."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    found = {f"panel {panel['title']} {each['refId']}": each["expr"] for panel, each in targets(dashboard)}
    found |= {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    variables = (each for each in dashboard["templating"]["list"] if each["type"] == "query")
    return found | {f"variable {each['name']}": each["query"]["query"] for each in variables}


def targets(dashboard: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return ((panel, target) for panel in dashboard["panels"] for target in panel.get("targets", ()))


def test_every_metric_that_is_queried_exists(watched: Watched) -> None:
    there = {sample.name for family in watched.families.values() for sample in family.samples}
    queried = {place: set(NAME.findall(query)) for place, query in queries().items()}
    assert {place: names - there for place, names in queried.items() if names - there} == {}
    # `up` is made by Prometheus.
    assert [place for place, names in queried.items() if not names] == ["AskbackDown"]


def test_every_label_that_is_queried_exists(watched: Watched) -> None:
    labels: dict[str, set[str]] = {}
    for family in watched.families.values():
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for place, query in queries().items():
        for name, selector in SELECTOR.findall(query):
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            if name in labels:
                assert used - SCRAPED <= labels[name], place
        grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
        assert grouped - SCRAPED <= set().union(*(labels.get(name, set()) for name in NAME.findall(query))), place


def test_every_metric_is_on_the_dashboard() -> None:
    shown = "\n".join(queries().values())
    assert [each.name for each in Metrics(Gauges()).descriptions if each.name not in shown] == []


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert {"uid", "title", "schemaVersion", "version", "time", "templating", "panels"} <= dashboard.keys()
    assert isinstance(dashboard["schemaVersion"], int)
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert {"id", "type", "title", "gridPos"} <= panel.keys()
        assert panel["gridPos"].keys() == {"x", "y", "w", "h"}
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        if panel["type"] != "row":
            assert panel["targets"], panel["title"]
            assert {"datasource", "fieldConfig", "options", "description"} <= panel.keys()
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps(panels))) - {"__rate_interval"}
    assert used == variables
    for _, target in targets(dashboard):
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_the_rules_have_what_prometheus_wants() -> None:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
    scrape = yaml.safe_load((RULES.parent / "prometheus.yml").read_text(encoding="utf-8"))
    assert scrape["rule_files"] == [RULES.name]
    (job,) = scrape["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("askback", "/metrics")


# The collector.


def test_a_collector_gets_the_same_numbers(watched: Watched) -> None:
    sent = watched.collector.metrics()
    assert watched.families.keys() <= sent.keys()
    turns = sent["askback_turn_seconds"]
    assert (turns.unit, turns.histogram.aggregation_temporality) == ("s", 2)
    points = {attributes(point)["outcome"]: point for point in turns.histogram.data_points}
    for sample in watched.families["askback_turn_seconds"].samples:
        point = points[sample.labels["outcome"]]
        bounds = [*point.explicit_bounds, math.inf]
        if sample.name.endswith("_bucket"):
            below = [
                count
                for bound, count in zip(bounds, point.bucket_counts, strict=True)
                if bound <= float(sample.labels["le"])
            ]
            assert sum(below) == sample.value
        elif sample.name.endswith("_sum"):
            assert point.sum == pytest.approx(sample.value)
        else:
            assert point.count == sample.value
    assert sent["askback_runs_finished"].sum.is_monotonic
    assert sent["askback_slots"].gauge.data_points[0].as_double > 0


def attributes(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}
