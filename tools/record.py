"""Records a real turn for tests/engines/: from a stored run, or by starting an engine once.

The expected result is what the parser returns now. Check it before you commit it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/engines"))

from recordings import EXPECTED, FOLDER, Recording, read  # noqa: E402

from askback.catalog.probes import EngineSetup, Probes  # noqa: E402
from askback.core.runs import Handle, Mode  # noqa: E402
from askback.engines import registry  # noqa: E402
from askback.engines.base import Engine, Turn  # noqa: E402
from askback.process.spawn_direct import Direct  # noqa: E402
from askback.settings.environment import engine_environment, secret_values, user_home  # noqa: E402
from askback.settings.files import load  # noqa: E402
from askback.settings.sections import EngineSettings  # noqa: E402
from askback.store.sqlite import SqliteStore  # noqa: E402
from askback.text.redaction import Redactor  # noqa: E402

_HOST = re.compile(rb"(https?://)(?!127\.0\.0\.1\b|localhost\b|\[::1\])[^/\s\"'`)\\]+")
_PLACE = re.compile(rb"(?<![\w.~$})>*\]-])/(?:work|root|home|Users|tmp|farm)/[^\s\"'`:,)\\]*")
_KEY = re.compile(rb"\b(?:sk|pk|ghp|AIza|ya29)[-_.][\w.-]{12,}|(?i:bearer) [\w.~+/-]{12,}=*")


def main() -> int:
    given = _arguments()
    engine, recording = asyncio.run(_from_run(given)) if given.source == "run" else asyncio.run(_from_start(given))
    folder = (given.into or FOLDER / engine.name) / given.case
    if folder.exists() and not given.replace:
        print(f"{folder} already exists; use another --case, or --replace", file=sys.stderr)
        return 2
    write(folder, engine, recording)
    print(f"{folder}: check {EXPECTED} before you commit it")
    print((folder / EXPECTED).read_text(), end="")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    sources = parser.add_subparsers(dest="source", required=True)
    run = sources.add_parser("run", help="record a turn of a stored run")
    run.add_argument("run_id")
    run.add_argument("--data-dir", type=Path, required=True)
    run.add_argument("--turn", type=int, default=1, help="the attempt_number of the turn (default: 1)")
    run.add_argument("--exit", type=int, default=0, help="the program's exit code, which is not stored (default: 0)")
    start = sources.add_parser("start", help="start a turn and record it; reads the prompt from stdin")
    start.add_argument("engine")
    start.add_argument("--config", type=Path, help="the settings file (askback.toml) for the engine")
    start.add_argument("--place", type=Path, help="a folder for home and workspace, to resume the session later")
    start.add_argument("--handle", help="the session to resume")
    start.add_argument("--timeout", type=float, default=120.0, help="seconds until the engine is killed (default: 120)")
    for source in (run, start):
        source.add_argument("--case", required=True, help="the name of the recording")
        source.add_argument("--into", type=Path, help="the folder for the recording (default: tests/engines/ENGINE)")
        source.add_argument("--replace", action="store_true")
    return parser.parse_args()


def write(folder: Path, engine: Engine, recording: Recording) -> None:
    """Write the recording's files, and the parser's result for them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "stdout").write_bytes(recording.stdout)
    (folder / "stderr").write_bytes(recording.stderr)
    (folder / "exit").write_text(f"{recording.exit_code}\n")
    if recording.about:
        (folder / "turn.json").write_text(json.dumps(recording.about, indent=2) + "\n")
    result = read(engine, recording)
    del result["said"]
    (folder / EXPECTED).write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


def scrubbed(data: bytes, places: Mapping[str, str], secrets: tuple[str, ...]) -> bytes:
    """The data without secrets, folders of this machine, and hosts other than loopback."""
    for place, name in sorted(places.items(), key=lambda pair: -len(pair[0])):
        data = data.replace(place.encode(), name.encode())
    data = b"\n".join(Redactor(secrets).line(line) for line in data.split(b"\n"))
    data = _KEY.sub(b"[redacted]", data)
    data = _HOST.sub(rb"\1host.example", data)
    return _PLACE.sub(b"/elsewhere", data)


# A turn of a stored run.


async def _from_run(given: argparse.Namespace) -> tuple[Engine, Recording]:
    store = await SqliteStore.open(given.data_dir / "askback.db")
    try:
        run = await store.get(given.run_id)
    finally:
        await store.close()
    folder = given.data_dir.resolve() / "runs" / run.id
    tries = sorted((folder / "turns").glob(f"{given.turn:03d}-*.stdout"))
    if not tries:
        raise SystemExit(f"run {run.id} has no turn {given.turn}")
    about: dict[str, Any] = {"mode": str(run.mode)}
    if run.handle is not None and run.handle.created_at_turn < given.turn:
        about["handle"] = run.handle.handle_value
    stdout, stderr = (scrubbed(_printed(tries[-1].with_suffix(f".{name}")), _places(folder), ()) for name in _STREAMS)
    return registry.get(run.engine), Recording(stdout=stdout, stderr=stderr, exit_code=given.exit, about=about)


_STREAMS = ("stdout", "stderr")


def _printed(file: Path) -> bytes:
    """A turn that printed nothing to stderr has no file for it."""
    return file.read_bytes() if file.exists() else b""


def _places(folder: Path) -> dict[str, str]:
    return {str(folder): "/run", str(ROOT): "/askback", str(user_home()): "/user"}


# A turn that is started now.


async def _from_start(given: argparse.Namespace) -> tuple[Engine, Recording]:
    engine = registry.get(given.engine)
    settings = load(given.config).engines.get(engine.name) or EngineSettings()
    env = engine_environment(engine.env_allow, settings.env)
    setup = EngineSetup(command=settings.command or engine.default_command, env=env, model=settings.model)
    with tempfile.TemporaryDirectory(prefix="askback-record-") as temporary:
        place = (given.place or Path(temporary)).resolve()
        for name in ("work", "tmp"):
            (place / name).mkdir(parents=True, exist_ok=True)
        if settings.home is not None and not (place / "home").exists():
            shutil.copytree(settings.home, place / "home", symlinks=True)
        (place / "home").mkdir(exist_ok=True)
        installed = await Probes(Path(temporary) / "probes.json", Direct()).find(engine, setup)
        if installed is None:
            raise SystemExit(f"{setup.command[0]} is not installed; {engine.install}")
        turn = Turn(
            prompt=sys.stdin.read(),
            mode=Mode.INTERACTIVE,
            attempt_number=2 if given.handle else 1,
            command=setup.command,
            cwd=str(place / "work"),
            home=str(place / "home"),
            skill_dir="skill",
            probe=installed.probe,
            handle=_handle(engine, given.handle),
            model=setup.model,
            extra_args=settings.extra_args,
            env=env,
        )
        return engine, _start(engine, turn, place, given.timeout, secret_values(env))


def _handle(engine: Engine, value: str | None) -> Handle | None:
    if value is None:
        return None
    return Handle(engine=engine.name, handle_type=engine.handle_type, handle_value=value, created_at_turn=1)


def _start(engine: Engine, turn: Turn, place: Path, timeout_sec: float, secrets: tuple[str, ...]) -> Recording:
    launch = engine.launch(turn)
    for base, files in (("home", launch.files), ("work", launch.work_files)):
        for name, content in files.items():
            (place / base / name).parent.mkdir(parents=True, exist_ok=True)
            (place / base / name).write_bytes(content)
    own = {"HOME": turn.home, "TMPDIR": str(place / "tmp"), "PWD": turn.cwd}
    child = subprocess.Popen(
        launch.argv,
        cwd=turn.cwd,
        env={**turn.env, **own, **launch.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    about: dict[str, Any] = {} if turn.handle is None else {"handle": turn.handle.handle_value}
    try:
        printed = child.communicate(launch.stdin, timeout_sec)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        printed = child.communicate()
        about["timed_out"] = True
    stdout, stderr = (scrubbed(data, _places(place), secrets) for data in printed)
    return Recording(stdout=stdout, stderr=stderr, exit_code=child.returncode, about=about)


if __name__ == "__main__":
    sys.exit(main())
