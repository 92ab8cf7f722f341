"""How long an engine's line takes to the clients that follow its run: a real server, a real engine process, N streams.

python benchmarks/events.py [--clients 1,100,1000] [--lines 40] [--pause 0.25]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ENGINE = """
import json, os, sys, time
if "--version" in sys.argv or "--help" in sys.argv:
    print("1.0 --resume")
    sys.exit()
def tell(**event):
    print(json.dumps(event), flush=True)
tell(type="session.started", session_id="ses-00000000-0000-4000-8000-000000000000")
tell(type="turn.started", turn=1)
while not os.path.exists({go!r}):
    time.sleep(0.01)
for _ in range({lines}):
    time.sleep({pause})
    tell(type="message", text="at %d." % time.monotonic_ns())
tell(type="message", text='{{"__SKILL_DONE__": true}}')
tell(type="turn.completed")
"""
STAMP = re.compile(rb"at (\d+)\.")
SERVE = "import sys; from askback.cli.commands.serve import command; sys.exit(command.main(standalone_mode=False))"


class Client(asyncio.Protocol):
    """Notes when each of the engine's lines arrived. Reads nothing else of the stream."""

    def __init__(self, request: bytes) -> None:
        self.delays_ms: list[float] = []
        self.begun = asyncio.Event()
        self.over = asyncio.Event()
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.begun.set()
        self.delays_ms += [(now - int(stamp)) / 1e6 for stamp in STAMP.findall(data)]

    def connection_lost(self, error: Exception | None) -> None:
        self.begun.set()
        self.over.set()


class Server:
    def __init__(self, folder: Path, lines: int, pause: float) -> None:
        self.go = folder / "go"
        engine = folder / "engine.py"
        engine.write_text(ENGINE.format(go=str(self.go), lines=lines, pause=pause))
        package = folder / "skills" / "talking"
        package.mkdir(parents=True)
        (package / "SKILL.md").write_text("---\nname: talking\ndescription: Talks.\n---\nTalk.\n")
        config = folder / "askback.toml"
        command = [sys.executable, "-I", "-S", str(engine)]
        # In a sandbox, the engine would not see the file that it waits for.
        config.write_text(
            f"skills_dir = ['skills']\nsandbox = 'off'\n[engines.scripted]\ncommand = {json.dumps(command)}\n"
        )
        argv = [sys.executable, "-c", SERVE, "--port=0", "--json", f"--config={config}", f"--data-dir={folder}/data"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.url, self.token = told["url"], told["token"]
        self.address = self.url.removeprefix("http://")

    def submit(self) -> str:
        request = urllib.request.Request(
            f"{self.url}/v1/runs",
            json.dumps({"skill": "talking", "engine": "scripted", "mode": "auto"}).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            run_id: str = json.load(answer)["id"]
            return run_id

    def stream(self, run_id: str) -> bytes:
        return (
            f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: {self.address}\r\nAccept: text/event-stream\r\n"
            f"Authorization: Bearer {self.token}\r\nConnection: close\r\n\r\n"
        ).encode()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


async def follow(server: Server, count: int) -> list[float]:
    """The delays that `count` clients of one run saw, sorted."""
    host, port = server.address.split(":")
    request = server.stream(server.submit())
    clients = [Client(request) for _ in range(count)]
    for client in clients:
        await asyncio.get_running_loop().create_connection(lambda client=client: client, host, int(port))
    for client in clients:
        await client.begun.wait()
    server.go.touch()
    for client in clients:
        await client.over.wait()
    server.go.unlink()
    return sorted(delay for client in clients for delay in client.delays_ms)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--clients", default="1,100,1000", help="how many follow the run, one measurement each")
    arguments.add_argument("--lines", type=int, default=40, help="how many lines the engine prints")
    arguments.add_argument("--pause", type=float, default=0.25, help="seconds between two lines")
    chosen = arguments.parse_args()
    # A pause of ours would count as one of the server's.
    gc.disable()
    print(f"{chosen.lines} lines, one each {chosen.pause:g} s; engine's line to client, in ms")
    print("clients     p50     p99     max   lines seen")
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name), chosen.lines, chosen.pause)
        try:
            for count in map(int, chosen.clients.split(",")):
                seen = asyncio.run(follow(server, count))
                at = [seen[int(len(seen) * part)] for part in (0.5, 0.99)]
                told = f"{len(seen)} of {count * chosen.lines}"
                print(f"{count:7} {at[0]:7.1f} {at[1]:7.1f} {seen[-1]:7.1f}   {told}", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
