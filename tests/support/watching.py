"""Watching a server from a process of its own: the longest time that `/healthz` kept somebody waiting, beside a control.

What the machine is to blame for is left out: the time in which the server could have run and was given no processor,
as the kernel counts it, and the lateness of a control, another process that only answers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_CONTROL = """
import asyncio
async def answer(reader, writer):
    while await reader.readline() not in (b"\\r\\n", b""): pass
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok"); writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
_WATCH = """
import glob, http.client, json, select, sys, time
def held_up():
    total = 0
    for path in glob.glob(f"/proc/{sys.argv[3]}/task/*/schedstat"):
        try: total += int(open(path).read().split()[1])
        except OSError: pass
    return total / 1e9
def ask(port, path):
    begin = time.monotonic()
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    line.request("GET", path); assert line.getresponse().read(); line.close()
    return time.monotonic() - begin
worst = {"server": 0.0, "control": 0.0, "asked": 0}
while not select.select([sys.stdin], [], [], 0.02)[0]:
    worst["control"] = max(worst["control"], ask(int(sys.argv[2]), "/"))
    before = held_up()
    took = ask(int(sys.argv[1]), "/healthz")
    worst["server"] = max(worst["server"], took - max(0, held_up() - before))
    worst["asked"] += 1
print(json.dumps(worst))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    server: float
    control: float
    asked: int


class Watch:
    """Asks from `__enter__` until `seen`."""

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._pid = pid

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._control = subprocess.Popen([sys.executable, "-c", _CONTROL], stdout=pipe, text=True)
        assert self._control.stdout is not None
        control = self._control.stdout.readline().strip()
        watch = [sys.executable, "-c", _WATCH, str(self._port), control, str(self._pid)]
        self._watch = subprocess.Popen(watch, stdin=pipe, stdout=pipe, text=True)
        return self

    def seen(self) -> Seen:
        out, _ = self._watch.communicate("stop\n", timeout=300)
        return Seen(**json.loads(out))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in (self._watch, self._control):
            process.kill()
            process.communicate()


def peak_rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (peak_kb,) = re.findall(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(peak_kb) / 1024
