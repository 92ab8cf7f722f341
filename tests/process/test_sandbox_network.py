"""What a hostile engine can connect to under each setting of `network`, and who can connect to it."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hostile import HOSTILE, Hostile, within
from intruder import Intrusion, Plan, counting, got

from askback.core.errors import Invalid
from askback.process.child import OutputLimits, SpawnRequest
from askback.process.guardian.client import Guardian
from askback.process.isolation import Network
from askback.process.sandbox import network_program
from askback.process.sandbox.bubblewrap import PROGRAM, Sandboxed
from askback.process.sandbox.visibility import deny_list
from support.data_folder import World, run_async
from support.processes import parent, running

CLOSED = (Network.NO_LOOPBACK, Network.NONE)
LIMITS = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 24)


def _works(network: Network) -> str | None:
    """None if such a network is available."""

    async def main() -> str | None:
        spawner = Sandboxed(Guardian(), hide=deny_list(homes=[], private=[]), networks=[network])
        try:
            isolation = await spawner.isolation()
            return isolation.why_not_more or isolation.no_network.get(network)
        finally:
            await spawner.close()

    return asyncio.run(main())


@pytest.fixture(params=CLOSED)
def network(request: pytest.FixtureRequest) -> Network:
    wanted = Network(request.param)
    if reason := _works(wanted):
        pytest.skip(f"network '{wanted}' cannot be had here: {reason}")
    return wanted


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.contract("Q-3")
def test_services_of_this_machine_and_metadata_are_out_of_reach(tmp_path: Path, network: Network) -> None:
    abstract = f"\0askback-test-{secrets.token_hex(8)}"
    port = _free_port()
    with counting(("0.0.0.0", port)) as said, counting(abstract) as said_abstractly:
        plan: Plan = {
            "loopback": ("connect", ["127.0.0.1", port]),
            "gateway": ("connect", ["10.0.2.2", port]),
            "metadata": ("connect", ["169.254.169.254", 80]),
            "metadata of Alibaba": ("connect", ["100.100.100.200", 80]),
            "abstract socket": ("connect", abstract),
        }
        own: Plan = {f"own {each}": ("connect", [each, port]) for each in network_program.own_addresses()}
        report = Intrusion(World(tmp_path), "auto", {**plan, **own}, settings=f'network = "{network}"').report()
        assert (got(report), said, said_abstractly) == ([], [], [])


def test_with_the_hosts_network_loopback_services_are_reached_as_documented(tmp_path: Path) -> None:
    port = _free_port()
    with counting(("127.0.0.1", port)) as said:
        assert got(Intrusion(World(tmp_path), "auto", {"loopback": ("connect", ["127.0.0.1", port])}).report()) == [
            "loopback"
        ]
        assert said == [b"intruder"]


@pytest.mark.contract("Q-3")
def test_a_port_that_an_engine_opens_is_not_reached_from_this_machine(tmp_path: Path, network: Network) -> None:
    """Otherwise the engine could serve a page to a browser on this machine, and get the cookies of other local pages."""
    port = _free_port()
    reached: list[str] = []

    def look() -> None:
        for address in ("127.0.0.1", *network_program.own_addresses()):
            with suppress(OSError), socket.create_connection((address, port), timeout=10):
                reached.append(address)

    settings = f'[engines.scripted]\nnetwork = "{network}"\n'
    intrusion = Intrusion(World(tmp_path), "auto", {"page": ("listen", port)})
    intrusion.config = intrusion.config.replace("[engines.scripted]\n", settings)
    intrusion.report(look)
    assert reached == []


# Two machines with a cable between them, both in namespaces that end with this script.
TWO_MACHINES = """
set -e
ip link set lo up
unshare --net sleep 600 & other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add here type veth peer name there netns $other
ip addr add 198.51.100.1/24 dev here
ip link set here up
nsenter --target $other --net ip addr add 198.51.100.2/24 dev there
nsenter --target $other --net ip link set there up
nsenter --target $other --net "$PYTHON" -c "$LISTEN" 198.51.100.2
"$PYTHON" -c "$LISTEN" 198.51.100.1
"$PYTHON" "$HELPER" "$SLIRP" - "$PYTHON" -c "$CONNECT"
"""
LISTEN = """
import os, socket, sys
server = socket.create_server((sys.argv[1], 8765))
if os.fork() == 0:
    for place in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), place)
    server.settimeout(60)
    server.accept()
"""
CONNECT = """
import socket
import subprocess
import sys
for address in ("198.51.100.2", "198.51.100.1"):
    try:
        socket.create_connection((address, 8765), timeout=60).close()
    except OSError as error:
        print(address, error)
    else:
        print(address, "reached")
"""


def test_another_machine_is_reached_and_this_one_is_not_by_its_own_address() -> None:
    slirp = shutil.which(PROGRAM)
    tools = [shutil.which(name) for name in ("ip", "unshare", "nsenter")]
    if os.getuid() != 0 or slirp is None or None in tools:
        pytest.skip("it takes root, iproute2 and slirp4netns to connect two machines")
    if reason := _works(Network.NO_LOOPBACK):
        pytest.skip(f"network 'no-loopback' cannot be had here: {reason}")
    env = {
        "PATH": os.environ["PATH"],
        "PYTHON": sys.executable,
        "HELPER": network_program.__file__,
        "SLIRP": slirp,
        "LISTEN": LISTEN,
        "CONNECT": CONNECT,
    }
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", TWO_MACHINES]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["198.51.100.2 reached", "198.51.100.1 [Errno 113] No route to host"], (
        done.stderr
    )


@pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"{PROGRAM} is not installed")
@pytest.mark.contract("B-2", "B-3")
@pytest.mark.parametrize("kind", ["ignores TERM", "leaves a daemon and ends"])
def test_nothing_of_an_engine_or_its_network_outlives_it(tmp_path: Path, kind: str) -> None:
    assert kind in HOSTILE

    async def main() -> None:
        spawner = Sandboxed(Guardian(), hide=deny_list(homes=[], private=[]), networks=[Network.NO_LOOPBACK])
        if reason := (await spawner.isolation()).no_network:
            await spawner.close()
            pytest.skip(f"no such network here: {reason}")
        hostile = Hostile(kind, tmp_path)
        request = SpawnRequest(
            argv=hostile.argv,
            env={"PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
            limits=LIMITS,
            writable=(tmp_path,),
            network=Network.NO_LOOPBACK,
        )
        child = await spawner.start(request)
        assert await asyncio.to_thread(within, 60, hostile.ready.exists)
        network = {pid for pid in running(PROGRAM) if parent(pid) == child.identity.pid}
        assert await child.end("", grace_sec=0.1)
        assert (hostile.survivors(), network & running(PROGRAM)) == ([], set())
        child.close()
        await spawner.close()

    asyncio.run(main())


def test_the_program_inside_is_asked_to_end_before_its_network_goes(tmp_path: Path, network: Network) -> None:
    script = "trap 'echo asked > asked; exit 7' TERM; echo > ready; while :; do sleep 0.01; done"

    async def main() -> None:
        spawner = Sandboxed(Guardian(), hide=deny_list(homes=[], private=[]), networks=[network])
        request = SpawnRequest(
            argv=("sh", "-c", script),
            env={"PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
            limits=LIMITS,
            writable=(tmp_path,),
            network=network,
        )
        child = await spawner.start(request)
        assert await asyncio.to_thread(within, 60, (tmp_path / "ready").exists)
        assert await child.end("", grace_sec=60)
        assert await child.exited() == 7
        child.close()
        await spawner.close()

    asyncio.run(main())
    assert (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("sandbox", "settings", "says"),
    [
        ("off", 'network = "none"', "network: 'none' is not available: it needs the sandbox"),
        ("off", '[engines.codex]\nnetwork = "no-loopback"', "engines.codex.network: 'no-loopback' is not available"),
        ("auto", 'network = "no-loopback"', "slirp4netns is not installed; install the package slirp4netns"),
    ],
)
def test_a_network_that_cannot_be_had_is_refused_at_the_start(
    tmp_path: Path, sandbox: str, settings: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandbox == "auto":
        if (bubblewrap := shutil.which("bwrap")) is None or _works(Network.NONE):
            pytest.skip("no sandbox here")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "bwrap").symlink_to(bubblewrap)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    async def main() -> None:
        with pytest.raises(Invalid) as refused:
            async with World(tmp_path).working(f'sandbox = "{sandbox}"\n{settings}'):
                pass
        assert any(says in problem for problem in refused.value.problems)

    run_async(main)
