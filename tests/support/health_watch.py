"""Watches `/healthz` from a process of its own: the longest time between two answers, and how late that process itself was.

Run as a program it watches until its input ends, then prints what it saw: the longest gap, the answers that were no 200,
and the control: how much longer than its own processor time some work took, which is what others take of the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_BEAT_SEC = 0.05
_WORK_SEC = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`gap_sec`: the longest without an answer. `stretch`: how many times longer than on an idle machine the same work,
    done by the watcher itself in the same time, took at the worst."""

    answers: int
    gap_sec: float
    stretch: float
    refused: tuple[int, ...]


class HealthWatch:
    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), self._url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "watching\n"
        return self

    def ended(self) -> Seen:
        out, _ = self._process.communicate("")
        found: dict[str, Any] = json.loads(out)
        return Seen(**(found | {"refused": tuple(found["refused"])}))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def _control(over: threading.Event, stretch: list[float]) -> None:
    while not over.is_set():
        wall, cpu = time.monotonic(), time.thread_time()
        while time.thread_time() - cpu < _WORK_SEC:
            sum(range(1000))
        stretch[0] = max(stretch[0], (time.monotonic() - wall) / _WORK_SEC)
        time.sleep(_BEAT_SEC)


def _watch(url: str) -> None:
    import httpx

    over, stretch, gap, refused, answers = threading.Event(), [1.0], 0.0, [], 0
    threading.Thread(target=_control, args=(over, stretch), daemon=True).start()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    with httpx.Client(base_url=url, timeout=120) as client:
        client.get("/healthz")
        print("watching", flush=True)
        while not over.is_set() or not answers:
            before = time.monotonic()
            status = client.get("/healthz").status_code
            gap, answers = max(gap, time.monotonic() - before), answers + 1
            if status != 200:
                refused.append(status)
            time.sleep(_BEAT_SEC)
    found = {"answers": answers, "gap_sec": gap, "stretch": stretch[0], "refused": refused}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    _watch(sys.argv[1])
