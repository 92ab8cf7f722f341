"""`make upgrade-check FROM=REF`: the version of a git ref and this one work side by side, and nothing is lost.

The older version makes a PostgreSQL database and an SQLite folder, with runs that wait. This version upgrades the
database, joins with a server and a worker, and finishes the runs. The last line is the figures, the exit code the verdict.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from askback import __version__
from support import postgres
from support.api import over, reach, reply, start
from support.data_folder import ASK, FINISH, World
from support.postgres import databases
from support.program import Ran, Started, askback, environment, here, until
from support.server import Server
from support.workers import Worker

ROOT = Path(__file__).parents[1]
EXTRAS = ("", "-postgres", "-files")


def main() -> int:
    wanted = argparse.ArgumentParser(prog="upgrade-check", description=__doc__)
    wanted.add_argument("ref", help="a git ref: the version to upgrade from")
    given = wanted.parse_args()
    if (reason := postgres.missing()) is not None:
        print(f"no upgrade here: {reason}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="upgrade-check-"))
    try:
        old = Old(given.ref, folder / "old")
        figures = {"from": given.ref, "old": old.version, "new": __version__}
        figures |= check_sqlite(old, folder / "embedded")
        figures |= Fleet(old, folder / "fleet").check()
    finally:
        databases.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(figures))
    return 0


class Old:
    """The version of a ref, unpacked; in an environment of its own if it needs other packages than this one."""

    def __init__(self, ref: str, folder: Path) -> None:
        packed = subprocess.run(["git", "archive", ref], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        self.env = {"PYTHONPATH": str(folder / "src")}
        self.program = (str(self._python(folder)), "-m", "askback")
        self.version = self.run(World(folder / "world"), "--version").stdout.split()[-1]
        named = [self.program[0], "-c", "import askback; print(askback.__file__)"]
        found = subprocess.run(named, env=self.env, capture_output=True, text=True, check=True).stdout
        assert Path(found.strip()).is_relative_to(folder), f"not the older version: {found}"

    def _python(self, folder: Path) -> Path:
        if _packages(folder) == _packages(ROOT):
            return Path(sys.executable)
        note("the packages differ: making an environment for the older version")
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        python = folder / "venv/bin/python"
        named = [word for extra in EXTRAS for word in ("-r", str(folder / f"requirements{extra}.txt"))]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *named], check=True)
        return python

    def run(self, world: World, *words: str, **env: str) -> Ran:
        ran = subprocess.run(
            [*self.program, *words],
            env=environment(world, **self.env, **env),
            cwd=here(world),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return Ran(code=ran.returncode, stdout=ran.stdout, stderr=ran.stderr)


def _packages(folder: Path) -> list[Any]:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    extras = project.get("optional-dependencies", {})
    return [project["dependencies"], extras.get("postgres"), extras.get("files")]


def check_sqlite(old: Old, folder: Path) -> dict[str, Any]:
    """A data folder of the older version, with a run that waits, is opened by this one."""
    world = World(folder)
    skill = world.skill([ASK], [FINISH])
    asked = old.run(world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--json").json
    assert asked["state"] == "waiting_user", asked
    done = askback(world, "reply", asked["id"], "red", "--json", warm=False)
    assert done.json["data"] == {"colour": "red"}, done
    note("a folder of the older version was opened, and its run finished")
    return {"sqlite_runs": 1}


class Fleet:
    """Servers and workers of both versions, on one database and one store of files."""

    def __init__(self, old: Old, folder: Path) -> None:
        self._old = old
        self._world = World(folder)
        self._world.database = databases.server.make_database(empty=True)
        self._world.skill([ASK], [FINISH], name="asking")
        self._files = {"ASKBACK_FILES": str(folder / "stored")}
        self._runs: list[str] = []
        made = old.run(self._world, "database", "upgrade", "--json", **self._files)
        assert made.code == 0, made.stderr
        self._old_format = made.json["format"]

    def check(self) -> dict[str, Any]:
        with ExitStack() as stack:
            server = stack.enter_context(self._server(old=True))
            worker = stack.enter_context(self._worker(old=True))
            old = stack.enter_context(_calling(server))
            waiting = [self._waiting(old) for _ in range(4)]
            figures = self._upgrade()
            figures["old_ready_after_upgrade"] = old.get("/readyz").status_code == 200
            self._finish(old, waiting[0])
            note("the old server and worker have finished a run on the upgraded database")
            new_server = stack.enter_context(self._server(old=False))
            new = stack.enter_context(_calling(new_server))
            with self._worker(old=False) as new_worker:
                for here_, there in ((old, new), (new, old), (old, old), (new, new)):
                    self._finish(there, self._waiting(here_))
                note("both versions have worked side by side")
                _stop(worker)
                self._lose_folders()
                self._finish(new, waiting[1])
                self._finish(old, waiting[2])
                asked = self._waiting(new)
                _stop(new_worker)
            figures |= self._go_back(old, asked)
            with self._worker(old=False) as new_worker:
                self._finish(new, waiting[3])
                _stop(new_worker)
            figures |= self._verdict(old, new)
            for each in (server, new_server):
                assert each.kill(signal.SIGTERM) == 0, each.stderr
                assert "Traceback" not in each.stderr, each.stderr
        return figures

    def _upgrade(self) -> dict[str, Any]:
        began = time.monotonic()
        ran = askback(self._world, "database", "upgrade", "--json", env=self._files, warm=False)
        assert ran.code == 0, ran.stderr
        note(f"upgraded from format {self._old_format} to {ran.json['format']}")
        took = round(time.monotonic() - began, 1)
        return {"formats": [self._old_format, ran.json["format"]], "upgrade_sec": took}

    def _go_back(self, old: httpx.Client, asked: str) -> dict[str, Any]:
        """A worker of the older version starts on the new tables, unless it is from before the rule, and continues a run."""
        self._lose_folders()
        try:
            worker = self._worker(old=True)
        except AssertionError as error:
            note(f"the older version does not start on the new tables: {str(error).strip().splitlines()[-1]}")
            with self._worker(old=False) as worker:
                self._finish(old, asked)
                _stop(worker)
            return {"old_starts_after_upgrade": False}
        with worker:
            self._finish(old, asked)
            _stop(worker)
        return {"old_starts_after_upgrade": True}

    def _verdict(self, old: httpx.Client, new: httpx.Client) -> dict[str, Any]:
        for client in (old, new):
            found = {run["id"]: run["state"] for run in client.get("/v1/runs").json()["items"]}
            assert found == dict.fromkeys(self._runs, "succeeded"), found
        return {"runs": len(self._runs), "lost": 0}

    def _waiting(self, client: httpx.Client) -> str:
        run_id = start(client)
        self._runs.append(run_id)
        reach(client, run_id, "waiting_user")
        return run_id

    def _finish(self, client: httpx.Client, run_id: str) -> None:
        assert reply(client, run_id, "red").status_code == 202
        assert over(client, run_id)["state"] == "succeeded"
        assert client.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "red"}

    def _lose_folders(self) -> None:
        """As on another machine: the next worker fetches the files that the last one has stored."""
        for run_id in self._runs:
            shutil.rmtree(self._world.data_dir / "runs" / run_id, ignore_errors=True)

    def _server(self, *, old: bool) -> Server:
        if old:
            return Server(self._world, "--no-worker", env=self._old.env | self._files, program=self._old.program)
        return Server(self._world, "--no-worker", env=self._files)

    def _worker(self, *, old: bool) -> Worker:
        if old:
            return OldWorker(self._world, self._old, env=self._old.env | self._files)
        return Worker(self._world, env=self._files)


class OldWorker(Worker):
    def __init__(self, world: World, old: Old, env: dict[str, str]) -> None:
        words = ("worker", "--json", "--port", "0")
        Started.__init__(self, world, *words, env=env, program=old.program)
        self.told = json.loads(until(self._line, self._alive))
        # A refusal is told in the same way.
        assert "url" in self.told, self.told


def _calling(server: Server) -> httpx.Client:
    # Not by the document of this version: the older one has other answers.
    return httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.token}"}, timeout=120)


def _stop(worker: Worker) -> None:
    assert worker.kill(signal.SIGTERM) == 0, worker.stderr
    assert "Traceback" not in worker.stderr, worker.stderr
    until(lambda: worker.process.poll() is not None)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
