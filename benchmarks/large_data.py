"""Large data in constant memory: an engine's output, an upload and a download, beside the same without Askback.

python benchmarks/large_data.py [--megabytes 128]
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import report
from servers import Server, prepare, served, submit, until
from thin_http import connections

MB = 1_000_000
ENGINE = """\
#!/bin/sh
case "$*" in *--help*) echo "--resume --stay 1.0"; exit;; *--version*) echo 1.0; exit;; esac
echo '{"type":"session.started","session_id":"ses-00000000-0000-4000-8000-000000000000"}'
echo '{"type":"turn.started","turn":1}'
head -c %(bytes)d /dev/zero | tr '\\0' x | fold -w 1000
head -c %(bytes)d /dev/zero > "$PWD/artifacts/large"
echo
echo '{"type":"message","text":"{\\\\"__SKILL_DONE__\\\\": true}"}'
echo '{"type":"turn.completed"}'
"""


async def one_run(server: Server) -> str:
    async with connections(server.url, server.token, 1) as [http]:
        run_id = await submit(http, "auto")
        await until(http, run_id, "succeeded")
        return run_id


def content(size: int) -> Iterator[bytes]:
    chunk = bytes(MB)
    for _ in range(size // MB):
        yield chunk


def upload(server: Server, path: Path) -> None:
    with path.open("rb") as file:
        answer = httpx.post(f"{server.url}/v1/uploads", headers=_token(server), files={"file": file}, timeout=600)
    assert answer.status_code == 201, answer.text


def download(server: Server, run_id: str) -> None:
    url = f"{server.url}/v1/runs/{run_id}/bundle"
    with httpx.stream("GET", url, headers=_token(server), timeout=600) as answer:
        assert answer.status_code == 200
        for _ in answer.iter_raw():
            pass


def _token(server: Server) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}"}


def by_hand(folder: Path) -> float:
    """Seconds that the engine's program takes when nobody reads what it prints."""
    (folder / "by-hand" / "artifacts").mkdir(parents=True)
    began = time.perf_counter()
    subprocess.run([str(folder / "engine.sh")], cwd=folder / "by-hand", stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def copy(source: Path, target: Path) -> float:
    began = time.perf_counter()
    subprocess.run(["cp", str(source), str(target)], check=True)
    return time.perf_counter() - began


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report(
        "large_data", f"{asked.megabytes:,} MB through a server", "the program by hand; a copy by `cp`"
    )
    size = asked.megabytes * MB
    limit = 2 * asked.megabytes + 100
    config = f"[limits]\noutput = {limit}\nupload = {limit}\nbundle = {limit}\ndisk = 0\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, ENGINE % {"bytes": size})
        large = folder / "large"
        with large.open("wb") as file:
            file.writelines(content(size))
        with served(folder, folder / "data", config=config) as server:
            run_ids: list[str] = []
            works: dict[str, tuple[Callable[[], object], Callable[[], float]]] = {
                "an engine's output": (lambda: run_ids.append(asyncio.run(one_run(server))), lambda: by_hand(folder)),
                "an upload": (lambda: upload(server, large), lambda: copy(large, folder / "copy")),
                "a download as a zip": (lambda: download(server, run_ids[0]), lambda: copy(large, folder / "copy")),
            }
            for what, (work, floor) in works.items():
                report.progress(f"{what}, {asked.megabytes:,} MB")
                _add(made, what, server, work, floor())
    return made


def _add(made: report.Report, what: str, server: Server, work: Callable[[], object], floor_sec: float) -> None:
    server.reset_peak()
    before, began = server.rss_mb(), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    made.add(f"{what}, time", "s", [seconds], [floor_sec])
    made.add(f"{what}, memory above idle", "MB", [max(0.0, server.peak_mb() - before)])


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=128, help="the size of each")
    report.run(arguments, measure)
