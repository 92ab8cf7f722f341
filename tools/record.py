"""Makes a recording of a real turn for tests/engines/: from a run that Askback kept, or by starting an engine once.

What it writes as expected is what the parser says now; whether that is right is for a person to say.
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

from askback.core.runs import Handle, Mode  # noqa: E402
from askback.engines import registry  # noqa: E402
from askback.engines.base import Engine, Turn  # noqa: E402
from askback.installed.probes import EngineSetup, Probes  # noqa: E402
from askback.process.spawn_direct import Direct  # noqa: E402
from askback.settings import EngineSettings, engine_environment, load, secret_values, user_home  # noqa: E402
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
        print(f"{folder} is there already; give another --case, or --replace", file=sys.stderr)
        return 2
    write(folder, engine, recording)
    print(f"{folder}: read {EXPECTED} before you keep it")
    print((folder / EXPECTED).read_text(), end="")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    sources = parser.add_subparsers(dest="source", required=True)
    run = sources.add_parser("run", help="a turn that Askback kept")
    run.add_argument("run_id")
    run.add_argument("--data-dir", type=Path, required=True)
    run.add_argument("--turn", type=int, default=1, help="its attempt_number")
    run.add_argument("--exit", type=int, default=0, help="how the program ended, which is not kept (default: 0)")
    start = sources.add_parser("start", help="a turn that is started now; the prompt is read from standard input")
    start.add_argument("engine")
    start.add_argument("--config", type=Path, help="askback.toml: how the engine is started")
    start.add_argument("--place", type=Path, help="a folder for home and workspace, to go on there later")
    start.add_argument("--handle", help="the session to go on with")
    start.add_argument("--timeout", type=float, default=120.0, help="seconds until it is killed")
    for source in (run, start):
        source.add_argument("--case", required=True, help="the recording's name")
        source.add_argument("--into", type=Path, help="the engine's recordings (default: tests/engines/ENGINE)")
        source.add_argument("--replace", action="store_true")
    return parser.parse_args()


def write(folder: Path, engine: Engine, recording: Recording) -> None:
    """The recording's files, and what the parser makes of them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "stdout").write_bytes(recording.stdout)
    (folder / "stderr").write_bytes(recording.stderr)
    (folder / "exit").write_text(f"{recording.exit_code}\n")
    if recording.about:
        (folder / "turn.json").write_text(json.dumps(recording.about, indent=2) + "\n")
    told = read(engine, recording)
    del told["said"]
    (folder / EXPECTED).write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")


def scrubbed(data: bytes, places: Mapping[str, str], secrets: tuple[str, ...]) -> bytes:
    """Without secrets, without folders of this machine, and without hosts other than loopback."""
    for place, name in sorted(places.items(), key=lambda pair: -len(pair[0])):
        data = data.replace(place.encode(), name.encode())
    data = b"\n".join(Redactor(secrets).line(line) for line in data.split(b"\n"))
    data = _KEY.sub(b"[redacted]", data)
    data = _HOST.sub(rb"\1host.example", data)
    return _PLACE.sub(b"/elsewhere", data)


# A turn that was kept.


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
    stdout, stderr = (
        scrubbed(tries[-1].with_suffix(f".{name}").read_bytes(), _places(folder), ()) for name in _STREAMS
    )
    return registry.get(run.engine), Recording(stdout=stdout, stderr=stderr, exit_code=given.exit, about=about)


_STREAMS = ("stdout", "stderr")


def _places(folder: Path) -> dict[str, str]:
    return {str(folder): "/run", str(ROOT): "/askback", str(user_home()): "/user"}


# A turn that is started.


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
