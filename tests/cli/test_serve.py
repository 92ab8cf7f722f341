"""`askback serve` as a program: how it starts, what it tells, what it leaves, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from support.data_folder import ASK, World
from support.program import ASKBACK, DEADLINE_SEC, Started, askback, environment, here, stored, until
from support.server import Server


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_tells_its_address_and_token_and_keeps_them_private(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Server(world) as server:
        assert server.told["data_dir"] == str(world.data_dir)
        told = json.loads((world.data_dir / "server.json").read_text())
        assert told == {
            "url": server.url,
            "pid": server.process.pid,
            "token_path": str(world.data_dir / "token"),
        }
        assert (world.data_dir / "token").read_text().strip() == server.token
        assert {mode(world.data_dir / name) for name in ("token", "server.json")} == {0o600}
        assert httpx.get(f"{server.url}/healthz", timeout=DEADLINE_SEC).json()["status"] == "ok"


def test_its_log_does_not_name_the_library_below_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Server(world) as server:
        httpx.get(f"{server.url}/healthz", timeout=DEADLINE_SEC)
        assert server.kill(signal.SIGTERM) == 0
    assert "uvicorn" not in server.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_told_and_takes_its_announcement_away(tmp_path: Path, number: signal.Signals) -> None:
    world = World(tmp_path)
    with Server(world) as server:
        assert server.kill(number) == 0
    assert not (world.data_dir / "server.json").exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz", timeout=DEADLINE_SEC)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_can_be_stopped_properly_before_it_has_told_of_itself(tmp_path: Path, number: signal.Signals) -> None:
    world = World(tmp_path)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"\n" * 4096)
    os.set_blocking(writing, True)
    # Nobody reads, so it gets as far as its announcement and no further.
    command = [*ASKBACK, "serve", "--json", "--port", "0"]
    with subprocess.Popen(command, stdout=writing, env=environment(world), cwd=here(world)) as process:
        os.close(writing)
        until((world.data_dir / "server.json").exists)
        process.send_signal(number)
        with os.fdopen(reading) as told:
            assert json.loads(told.read())["data_dir"] == str(world.data_dir)
        assert process.wait(DEADLINE_SEC) == 0
    assert not (world.data_dir / "server.json").exists()


def test_a_stop_does_not_wait_for_those_who_watch(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASK], name="asking")
    with Server(world) as server, server.client() as client:
        run = client.wait(client.create_run("asking", engine="scripted", mode="interactive").id)
        watching = client.follow(run.id)
        next(watching)
        assert server.stop() == 0
        watching.close()
    assert stored(world, run.id).state == "waiting_user"


def test_the_token_stays_the_same_from_start_to_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Server(world) as first:
        first.stop()
    with Server(world) as second:
        assert second.token == first.token


def test_a_token_of_the_settings_is_taken_and_not_written_down(tmp_path: Path) -> None:
    world = World(tmp_path)
    env = {"ASKBACK_SERVER__TOKEN": "a-token-of-my-own-0123456789"}
    with Server(world, env=env) as server:
        assert (server.told["token"], server.told["page"]) == (None, f"{server.url}/enter")
        assert not (world.data_dir / "token").exists()
        assert env["ASKBACK_SERVER__TOKEN"] not in (world.data_dir / "server.json").read_text()
        assert askback(world, "runs", "--json", env=env).json == []


def test_a_port_in_use_is_told_with_what_to_do(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Server(world) as server:
        ran = askback(world, "serve", "--port", str(server.port))
        assert ran.code == 1
        assert ran.stderr == (
            f"askback: cannot listen on 127.0.0.1:{server.port}: Address already in use; choose another with --port\n"
        )
        in_json = askback(world, "serve", "--port", str(server.port), "--json")
        assert (in_json.code, in_json.json["error"]["code"]) == (1, "PORT_UNUSABLE")
        assert askback(world, "runs").code == 0


def test_for_people_it_tells_on_stderr(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Started(world, "serve", "--port", "0") as server:
        until(lambda: "token: " in server.stderr)
        assert any(line.startswith("askback serves http://127.0.0.1:") for line in server.stderr.splitlines())
        assert str(world.data_dir) in server.stderr
        assert server.kill(signal.SIGTERM) == 0
        assert server.ended().stdout == ""


def test_a_token_of_the_settings_is_not_printed(tmp_path: Path) -> None:
    world = World(tmp_path)
    token = "a-token-of-my-own-0123456789"
    with Started(world, "serve", "--port", "0", env={"ASKBACK_SERVER__TOKEN": token}) as server:
        until(lambda: "page: " in server.stderr)
        assert server.kill(signal.SIGTERM) == 0
        assert token not in server.stderr
        assert "token: from the settings (server.token or ASKBACK_SERVER__TOKEN)" in server.stderr


@pytest.mark.parametrize("token", ["short-but-mixed-9f2c01", "a" * 64, "abcabcabcabcabcabcabcabcabcabc"])
def test_a_weak_token_is_refused_with_what_to_do(tmp_path: Path, token: str) -> None:
    ran = askback(World(tmp_path), "serve", "--port", "0", env={"ASKBACK_SERVER__TOKEN": token})
    assert ran.code == 2
    assert "server.token: must have at least 24 characters" in ran.stderr
    assert "secrets.token_urlsafe(32)" in ran.stderr
    assert token not in ran.stderr


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_that_another_program_has_on_one_loopback_address_is_not_taken(tmp_path: Path, address: str) -> None:
    """Browsers take the name of the page to both of them."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as engine:
        engine.bind((address, 0))
        engine.listen()
        ran = askback(World(tmp_path), "serve", "--port", str(engine.getsockname()[1]))
    assert ran.code == 1
    assert f"cannot listen on {address}:" in ran.stderr


def test_a_server_that_was_killed_is_not_taken_for_one_that_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Server(world) as server:
        server.kill()
    assert (world.data_dir / "server.json").exists()
    ran = askback(world, "reply", "x", "red")
    assert ran.code == 3
    assert "no server runs on the data folder" in ran.stderr
    assert askback(world, "runs").stderr == "there are no runs yet\n"
    with Server(world):
        assert askback(world, "runs").code == 0


def test_of_two_servers_on_one_folder_the_first_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Server(world) as first:
        with Server(world) as second:
            assert json.loads((world.data_dir / "server.json").read_text())["url"] == first.url
            second.stop()
        assert json.loads((world.data_dir / "server.json").read_text())["url"] == first.url
