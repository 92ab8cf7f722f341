"""Telemetry is off unless configured, needs its extra, and is checked by the doctor."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.collector import collecting
from support.data_folder import World
from support.program import Ran, askback

ENDPOINT = "ASKBACK_TELEMETRY__OTLP_ENDPOINT"
HEADERS = "ASKBACK_TELEMETRY__OTLP_HEADERS"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.skill([{"finish": {"colour": "red"}}], name="quick")
    return world


def without_extra(tmp_path: Path) -> dict[str, str]:
    """The environment of a program that cannot import OpenTelemetry."""
    package = tmp_path / "blocked/opentelemetry"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not installed')")
    return {"PYTHONPATH": str(package.parent)}


def run_quick(world: World, **env: str) -> Ran:
    words = ("run", str(world.folder / "skills/quick"), "--engine", "scripted", "--json")
    return askback(world, *words, env=env, warm=False)


def doctor(world: World, **env: str) -> dict[str, str]:
    """What the doctor says of the telemetry."""
    found = askback(world, "doctor", "--json", env=env, warm=False).json["findings"]
    told = [each for each in found if each["what"] == "telemetry"]
    assert any(each["what"] == "database" and each["ok"] for each in found)
    return told[0] if told else {}


def test_without_the_extra_everything_else_works(world: World, tmp_path: Path) -> None:
    ran = run_quick(world, **without_extra(tmp_path))
    assert ran.code == 0, ran.stderr


def test_without_the_extra_a_collector_is_refused_with_what_to_install(world: World, tmp_path: Path) -> None:
    env = without_extra(tmp_path) | {ENDPOINT: "http://127.0.0.1:4318"}
    ran = run_quick(world, **env)
    assert ran.code != 0
    assert "telemetry.otlp_endpoint" in ran.stderr + ran.stdout
    assert "askback[otel]" in ran.stderr + ran.stdout
    told = doctor(world, **env)
    assert told["ok"] is False
    assert "askback[otel]" in told["advice"]


def test_a_variable_that_other_programs_use_sends_nothing(world: World) -> None:
    with collecting() as collector:
        ran = run_quick(world, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        assert ran.code == 0, ran.stderr
        assert collector.receiver.came == []


def test_a_proxy_of_the_environment_gets_nothing(world: World) -> None:
    with collecting() as proxy, collecting() as collector:
        ran = run_quick(world, HTTP_PROXY=proxy.endpoint, http_proxy=proxy.endpoint, **collector.settings)
        assert ran.code == 0, ran.stderr
        assert collector.spans()
        assert proxy.receiver.came == []


def test_the_doctor_says_whether_the_collector_can_be_reached(world: World) -> None:
    assert doctor(world) == {}
    with collecting() as collector:
        assert doctor(world, **{ENDPOINT: collector.endpoint})["ok"] is True
        assert collector.receiver.came == []
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        told = doctor(world, **{ENDPOINT: f"http://127.0.0.1:{closed.getsockname()[1]}"})
    assert told["warning"]
    assert "runs are not affected" in told["message"]


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "ftp://host", "http://user:pass@host:4318", "http://host/?a=b"])
def test_an_endpoint_that_is_no_plain_url_is_refused(world: World, endpoint: str) -> None:
    ran = askback(world, "config", "--json", env={ENDPOINT: endpoint})
    assert ran.code != 0
    assert "telemetry.otlp_endpoint" in ran.stderr + ran.stdout


def test_the_values_of_headers_are_not_shown(world: World) -> None:
    ran = askback(world, "config", "--json", env={HEADERS: '{"authorization": "Bearer n0t-to-be-shown"}'})
    assert "telemetry.otlp_headers.authorization" in ran.stdout
    assert "n0t-to-be-shown" not in ran.stdout
