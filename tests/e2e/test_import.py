"""`askback database import`: a server moves from its SQLite file to PostgreSQL, and goes on with everything it had."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from askback.store.sqlite.connection import open_reader, open_writer
from support import postgres
from support.api import calling, get, over, reach, reply, start, waiting
from support.data_folder import ASK, FINISH, World
from support.postgres import databases
from support.program import Ran, Started, Terminal, askback, until
from support.server import Server

ENV = {"ASKBACK_SLOTS": "1"}
HOOK = {"url": "https://hooks.example/x", "states": ["waiting_user", "succeeded"]}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(False):
        world = World(tmp_path / "world")
        world.skill([ASK], [FINISH], name="asking")
        world.skill([{"touch": "started"}, {"wait_for": "end"}, {"finish": {"colour": "blue"}}], name="busy")
        yield world


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with databases.chosen(True):
        yield databases.make(tmp_path / "database")


def importing(world: World, address: str, *words: str, folder: Path | None = None) -> Ran:
    source = str(folder or world.data_dir)
    return askback(world, "database", "import", source, *words, env={"ASKBACK_DATABASE": address})


def rows_of_file(path: Path) -> dict[str, list[dict[str, Any]]]:
    with closing(open_reader(path)) as connection:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        found = {}
        for (table,) in connection.fetch(tables):
            columns = [row[1] for row in connection.fetch(f"SELECT * FROM pragma_table_info('{table}')")]
            rows = connection.fetch(f"SELECT {', '.join(columns)} FROM {table}")
            found[table] = _sorted(dict(zip(columns, row, strict=True)) for row in rows)
        return found


def rows_of_database(address: str, like: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The same tables and columns. Truth values are numbers in SQLite."""
    found = {}
    name = address.partition("@/")[2].partition("?")[0]
    for table, rows in like.items():
        columns = list(rows[0]) if rows else ["1"]
        values = databases.server.execute(f"SELECT {', '.join(columns)} FROM askback.{table}", name)
        numbers = ([int(value) if isinstance(value, bool) else value for value in row] for row in values)
        found[table] = _sorted(dict(zip(columns, row, strict=True)) for row in numbers)
    return found


def queued_runs(address: str) -> list[int]:
    """The numbers of the runs that have a job."""
    jobs = "SELECT number FROM askback.runs JOIN askback.procrastinate_jobs ON args ->> 'run' = runs.id ORDER BY number"
    return [number for (number,) in databases.server.execute(jobs, address.partition("@/")[2].partition("?")[0])]


def _sorted(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: repr(list(row.values())))


def lived(world: World, server: Server) -> dict[str, Any]:
    """What a server has after a while, until it is killed."""
    with calling(server.url, server.token) as client:
        asked = waiting(client, webhooks=[HOOK], labels={"customer": "4711"})
        link = client.post(f"/v1/runs/{asked}/interaction/link", json={}).json()["url"]
        done = waiting(client)
        reply(client, done, "red")
        over(client, done)
        canceled = waiting(client)
        client.post(f"/v1/runs/{canceled}/cancel")
        over(client, canceled)
        token = client.post("/v1/tokens", json={"name": "app", "scopes": ["read"]}).json()["token"]
        invitation = client.post("/v1/invitations", json={"token": "app"}).json()
        running = start(client, "busy")
        until((world.data_dir / "runs" / running / "work" / "started").exists)
        keyed = {"skill": "asking", "engine": "scripted", "mode": "interactive"}
        queued = client.post("/v1/runs", json=keyed, headers={"idempotency-key": "k"}).json()["id"]
        views = {run_id: get(client, run_id) for run_id in (asked, done, canceled)}
        events = {run_id: client.get(f"/v1/runs/{run_id}/events").json() for run_id in (asked, done)}
        statistics = client.get("/v1/statistics").json()
    session = server.session()
    assert askback(world, "skills", "install", "trip-planner").code == 0
    return {
        "asked": asked,
        "running": running,
        "queued": queued,
        "token": token,
        "session": session,
        "keyed": keyed,
        "link": link,
        "invitation": invitation,
        "views": views,
        "events": events,
        "statistics": statistics,
    }


def same_views(client: httpx.Client, known: dict[str, Any]) -> None:
    for run_id, view in known["views"].items():
        assert get(client, run_id) == view
    for run_id, events in known["events"].items():
        assert client.get(f"/v1/runs/{run_id}/events").json() == events
    assert client.get("/v1/statistics").json() == known["statistics"]
    again = client.post("/v1/runs", json=known["keyed"], headers={"idempotency-key": "k"})
    assert again.json()["id"] == known["queued"]
    actions = [each["action"] for each in client.get("/v1/audit", params={"limit": 200}).json()["items"]]
    assert {"token.create", "skill.install", "run.cancel"} <= set(actions)


def test_the_store_of_files_goes_on_with_the_imported_runs(world: World, address: str, tmp_path: Path) -> None:
    env = {"ASKBACK_FILES": str(tmp_path / "stored")}
    with Server(world, env=env) as server:
        assert server.stop() == 0
    before = askback(world, "files", "status", "--json", env=env).json
    assert before["matches"] is True
    assert importing(world, address).code == 0
    assert askback(world, "files", "status", "--json", env={**env, "ASKBACK_DATABASE": address}).json == {
        **before,
        "other_machines_wait": False,
    }


def test_a_forgotten_import_is_told(world: World, address: str) -> None:
    skill = str(world.folder / "skills" / "asking")
    there = {"ASKBACK_DATABASE": address}
    # A folder without runs has nothing to import.
    assert askback(world, "runs", "--json").json == []
    with Server(world, env=there) as server:
        assert server.stop() == 0
    databases.server.clear_database(address)
    run = ("run", skill, "--engine", "scripted", "--mode", "interactive", "--json")
    assert askback(world, *run).json["state"] == "waiting_user"
    for words in (("serve", "--port", "0"), ("worker",), run):
        refused = Started(world, *words, env=there).ended()
        told = f"askback database import {world.data_dir}" in refused.stdout + refused.stderr
        assert (refused.code, told) == (1, True), words
    assert askback(world, "runs", "--json", env=there).json == [], "it only looks"
    assert "askback database import" in askback(world, "doctor", env=there).stdout
    assert importing(world, address).code == 0, "nothing was written"
    with Server(world, env=there) as server:
        assert server.stop() == 0


@pytest.mark.contract("M-10")
def test_a_server_goes_on_in_postgresql_with_everything_it_had(world: World, address: str) -> None:
    path = world.data_dir / "askback.db"
    with Server(world, env=ENV) as server:
        known, port, own = lived(world, server), server.port, server.token
        refused = importing(world, address)
        assert (refused.code, "is using the data folder" in refused.stderr) == (1, True), refused.stderr
        server.kill()
    before = rows_of_file(path)
    assert all(before[table] for table in ("runs", "events", "queue", "deliveries", "audit", "idempotency_keys"))
    done = importing(world, address, "--json")
    assert done.code == 0, done.stderr
    assert done.json["rows"]["runs"] == len(before["runs"]) == 5
    # Which token was served last has no meaning for another queue.
    del before["queue_service"]
    queue = before.pop("queue")
    assert queued_runs(address) == [row["run"] for row in queue] != []
    after = rows_of_database(address, before)
    assert after.keys() == before.keys()
    for table, rows in before.items():
        assert after[table] == rows, table
    world.database = address
    with Server(world, env=ENV, port=port) as server:
        assert server.token == own
        goes_on(world, server, known)
    refused_afterwards(world, address)


def goes_on(world: World, server: Server, known: dict[str, Any]) -> None:
    with calling(server.url, server.token) as client:
        same_views(client, known)
        (world.data_dir / "runs" / known["running"] / "work" / "end").touch()
        assert reach(client, known["running"], "succeeded"), "the turn that was interrupted runs again"
        reach(client, known["queued"], "waiting_user")
        with calling(server.url, None) as holder:
            answered = holder.post(urlsplit(known["link"]).path, json={"response": "blue"})
            assert answered.status_code == 202, answered.text
        over(client, known["asked"])
        assert get(client, known["asked"])["state"] == "succeeded"
        assert "trip-planner" in [each["id"] for each in client.get("/v1/skills").json()["items"]]
        assert [each["id"] for each in client.get("/v1/invitations").json()["items"]] == [known["invitation"]["id"]]
        over(client, _finished(client, known["queued"]))
        later = waiting(client)
        assert get(client, later)["state"] == "waiting_user", "numbers go on after those of the folder"
    with calling(server.url, known["token"]) as app, calling(server.url, None, **known["session"]) as browser:
        assert app.get("/v1/runs").status_code == 200
        assert browser.get("/v1/runs").status_code == 200


def _finished(client: httpx.Client, run_id: str) -> str:
    reply(client, run_id, "red")
    return run_id


def refused_afterwards(world: World, address: str) -> None:
    """The folder is not used without the database, and neither is imported again."""
    alone = askback(world, "runs", env={"ASKBACK_DATABASE": "sqlite"})
    assert (alone.code, "was imported into a PostgreSQL database" in alone.stderr) == (1, True), alone.stderr
    again = importing(world, address)
    assert (again.code, "was imported into a PostgreSQL database" in again.stderr) == (1, True), again.stderr


@pytest.mark.contract("M-10")
def test_what_cannot_be_imported_is_left_as_it_is(world: World, address: str) -> None:
    missing = importing(world, address)
    assert (missing.code, "there is no askback.db" in missing.stderr) == (1, True), missing.stderr
    world.data_dir.mkdir(parents=True, mode=0o700)
    path = world.data_dir / "askback.db"
    from askback.store.sqlite.connection import migrations

    open_writer(path, migrations()[:-1]).close()
    older = importing(world, address)
    assert (older.code, "of an older version" in older.stderr) == (1, True), older.stderr
    path.unlink()
    open_writer(path).close()
    (world.data_dir / "tokens.json").write_text("{")
    content = path.read_bytes()
    damaged = importing(world, address)
    assert (damaged.code, "tokens.json cannot be read" in damaged.stderr) == (1, True), damaged.stderr
    assert path.read_bytes() == content
    (world.data_dir / "tokens.json").unlink()
    with closing(open_reader(path)) as other:
        other.fetch("SELECT * FROM runs")
        used = importing(world, address)
        assert (used.code, "is using the data folder" in used.stderr) == (1, True), used.stderr
    second = world.folder / "second"
    shutil.copytree(world.data_dir, second)
    (second / "database-id").unlink()
    assert importing(world, address, "--json").code == 0
    full = importing(world, address, folder=second)
    assert (full.code, "is not empty" in full.stderr) == (1, True), full.stderr
    no_database = askback(world, "database", "import", str(second))
    assert (no_database.code, "ASKBACK_DATABASE" in no_database.stderr) == (2, True), no_database.stderr


ENTRIES = """
WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 2500)
INSERT INTO audit (at, actor, via, action) SELECT number, 'ada', 'api', 'run.create' FROM numbers
"""


def test_a_terminal_shows_how_far_an_import_is(world: World, address: str) -> None:
    world.data_dir.mkdir(parents=True, mode=0o700)
    with closing(open_writer(world.data_dir / "askback.db")) as connection:
        connection.execute(ENTRIES)
    words = ("database", "import", str(world.data_dir))
    with Terminal(world, *words, env={"ASKBACK_DATABASE": address}) as terminal:
        shown = terminal.ended()
    assert shown.code == 0, shown.stderr
    for text in ("audit: 1000 of 2500", "audit: 2500 of 2500\n", "askback serve --data-dir"):
        assert text in shown.stderr


@pytest.mark.contract("M-10")
def test_an_import_that_ended_before_its_mark_is_finished_by_another_one(world: World, address: str) -> None:
    world.data_dir.mkdir(parents=True, mode=0o700)
    path = world.data_dir / "askback.db"
    open_writer(path).close()
    content = path.read_bytes()
    assert importing(world, address, "--json").json["already_imported"] is False
    path.write_bytes(content)
    again = importing(world, address, "--json")
    assert again.json["already_imported"] is True
    assert path.read_bytes() != content
