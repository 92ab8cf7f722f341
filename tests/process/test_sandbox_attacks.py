"""A hostile engine in its sandbox: what it tries to read, write and reach, verified from outside."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from intruder import Intrusion, Plan, counting, got

from askback.process.sandbox import system_calls
from support.data_folder import World
from support.object_store import Bucket

pytestmark = pytest.mark.skipif(
    subprocess.run(["bwrap", "--ro-bind", "/", "/", "true"], capture_output=True, check=False).returncode != 0
    if shutil.which("bwrap")
    else True,
    reason="bubblewrap is not installed or does not work here",
)

SANDBOXED = (pytest.param("on", marks=pytest.mark.long), "auto")
"""Where bubblewrap works, both are the same sandbox."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    home = tmp_path / "home"
    for name in (".ssh/id_rsa", ".codex/auth.json", ".config/askback/askback.toml"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    return World(tmp_path)


@contextmanager
def passing_folder() -> Iterator[Path]:
    """A folder in the real `/tmp`, which may not be the one of the tests."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="askback-test-") as folder:
        yield Path(folder)


@pytest.mark.contract("Q-3")
@pytest.mark.parametrize("sandbox", SANDBOXED)
def test_an_agent_in_the_folder_for_passing_files_is_out_of_reach(world: World, sandbox: str) -> None:
    with passing_folder() as folder, counting(str(folder / "agent.sock")) as said:
        (folder / "passed").write_text("by another program")
        plan: Plan = {
            "agent": ("connect", str(folder / "agent.sock")),
            "file": ("read", str(folder / "passed")),
            "planted": ("write", str(folder / "planted")),
        }
        assert got(Intrusion(world, sandbox, plan).report()) == []
        assert (said, sorted(path.name for path in folder.iterdir())) == ([], ["agent.sock", "passed"])


@pytest.mark.contract("Q-3")
@pytest.mark.parametrize("sandbox", SANDBOXED)
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_terminal_multiplexer_of_the_user_runs_nothing_for_an_engine(world: World, sandbox: str) -> None:
    with passing_folder() as folder:
        tmux = ["tmux", "-S", str(folder / "default"), "-f", "/dev/null"]
        subprocess.run([*tmux, "new-session", "-d", "-s", "users", "sleep 600"], check=True)
        try:
            plan: Plan = {"tmux": ("run", [*tmux, "run-shell", f"touch {folder}/executed"])}
            report = Intrusion(world, sandbox, plan).report()
        finally:
            subprocess.run([*tmux, "kill-server"], check=True)
        assert (got(report), (folder / "executed").exists()) == ([], False)


def _secrets(world: World, folder: Path) -> Plan:
    """Everything that a run must not read, in typical places."""
    other = world.data_dir / "runs" / "another" / "work" / "answer"
    other.parent.mkdir(parents=True)
    other.write_text("secret")
    for name in ("token", "link-key"):
        (world.data_dir / name).write_text("0" * 64)
    lent = folder / "codex-home" / ".codex" / "auth.json"
    lent.parent.mkdir(parents=True)
    lent.write_text("secret")
    paths = {
        "token": world.data_dir / "token",
        "link key": world.data_dir / "link-key",
        "database": world.data_dir / "askback.db",
        "another run": other,
        "settings": world.folder / "askback.toml",
        "home of another engine": lent,
        "key": world.folder / "home" / ".ssh" / "id_rsa",
        "sign-in": world.folder / "home" / ".codex" / "auth.json",
        "real home": Path("/root" if os.getuid() == 0 else Path("~").expanduser(), ".bashrc"),
    }
    return {name: ("read", str(path)) for name, path in paths.items()}


@pytest.mark.contract("Q-3")
@pytest.mark.parametrize("sandbox", SANDBOXED)
@pytest.mark.parametrize("where", ["/tmp", "/opt", "/srv", "/var/lib", "/usr/local/share"])
def test_no_secret_of_the_server_is_read_wherever_it_lies(world: World, sandbox: str, where: str) -> None:
    if not os.access(where, os.W_OK):
        pytest.skip(f"{where} cannot be written to by the user who runs the tests")
    with tempfile.TemporaryDirectory(dir=where, prefix="askback-test-") as name:
        elsewhere = World(Path(name, "askback"))
        elsewhere.folder.mkdir()
        shutil.move(world.folder / "home", elsewhere.folder / "home")
        os.environ["HOME"] = str(elsewhere.folder / "home")
        plan = _secrets(elsewhere, Path(name))
        settings = f'[engines.codex]\nhome = "{name}/codex-home"\n'
        assert got(Intrusion(elsewhere, sandbox, plan, settings=settings).report()) == []


@pytest.mark.contract("Q-3")
@pytest.mark.parametrize("sandbox", SANDBOXED)
def test_other_runs_are_not_read_wherever_the_runs_are(world: World, sandbox: str) -> None:
    with tempfile.TemporaryDirectory(dir="/opt", prefix="askback-test-") as name:
        other = Path(name, "runs", "another", "work", "answer")
        other.parent.mkdir(parents=True)
        other.write_text("secret")
        stored = Path(name, "stored", "kept")
        stored.parent.mkdir()
        stored.write_text("secret")
        plan: Plan = {"another run": ("read", str(other)), "stored file": ("read", str(stored))}
        settings = f'runs_dir = "{name}/runs"\nfiles = "{name}/stored"\n'
        assert got(Intrusion(world, sandbox, plan, settings=settings).report()) == []


@pytest.mark.contract("Q-3")
def test_files_with_credentials_of_the_store_are_not_read(
    world: World, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume of secrets is usually open to all users of its container."""
    with tempfile.TemporaryDirectory(dir="/opt", prefix="askback-test-") as name:
        Path(name).chmod(0o755)
        identity = Path(name, "token")
        identity.write_text("secret")
        identity.chmod(0o644)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(identity))
        # What lies around it is not hidden: without the root, no program would start.
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/askback-absent")
        plan: Plan = {"identity": ("read", str(identity))}
        assert got(Intrusion(world, "on", plan, settings=f'files = "{bucket.address}"\n').report()) == []


@pytest.mark.contract("Q-3")
@pytest.mark.parametrize("sandbox", SANDBOXED)
def test_what_other_users_may_not_read_is_hidden_from_an_engine_of_root(world: World, sandbox: str) -> None:
    if os.getuid() != 0:
        pytest.skip("only root may read these files, and the tests run as another user")
    candidates = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private")
    plan: Plan = {path: ("read", path) for path in candidates if Path(path).exists()}
    assert plan
    assert got(Intrusion(world, sandbox, plan).report()) == []


@pytest.mark.parametrize("sandbox", SANDBOXED)
def test_the_kernel_is_not_configured_by_an_engine_of_root(world: World, sandbox: str) -> None:
    """A core pattern with a pipe is a command that the kernel executes outside the sandbox."""
    paths = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger")
    plan: Plan = {path: ("open to write", path) for path in paths}
    assert got(Intrusion(world, sandbox, plan).report()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may make user namespaces, and gains nothing by them")
@pytest.mark.parametrize("sandbox", SANDBOXED)
def test_an_engine_of_root_mounts_no_control_groups(world: World, sandbox: str) -> None:
    """In a user namespace it could mount the machine's control groups, and change limits."""
    plan: Plan = {
        "namespace": ("run", ["unshare", "--user", "true"]),
        "mapped": ("run", ["unshare", "--user", "--map-root-user", "--mount", "--cgroup", "true"]),
    }
    assert got(Intrusion(world, sandbox, plan).report()) == []


@pytest.mark.parametrize("sandbox", SANDBOXED)
def test_the_hypervisor_is_not_reached(world: World, sandbox: str) -> None:
    code = "import socket; socket.socket(40, socket.SOCK_STREAM)"
    assert got(Intrusion(world, sandbox, {"vsock": ("run", [sys.executable, "-I", "-c", code])}).report()) == []


@pytest.mark.contract("Q-3")
@pytest.mark.parametrize("sandbox", SANDBOXED)
@pytest.mark.parametrize("way", ["in the home", "home on PATH", "link to the home on PATH", "named by the command"])
def test_an_engine_whose_program_lies_in_the_home_sees_only_that_program(
    world: World, sandbox: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = world.folder / "home"
    plan: Plan = {
        "key": ("read", str(home / ".ssh" / "id_rsa")),
        "sign-in": ("read", str(home / ".codex" / "auth.json")),
    }
    match way:
        case "in the home":
            program = home / "agent"
            program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
            program.chmod(0o755)
            monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
            intrusion = Intrusion(world, sandbox, plan)
            intrusion.config = intrusion.config.replace(f'["{sys.executable}"', f'["{program}"')
        case "named by the command":
            intrusion = Intrusion(world, sandbox, plan, program=home / "agent.py")
        case "home on PATH":
            monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
            intrusion = Intrusion(world, sandbox, plan)
        case _:
            (world.folder / "tools").mkdir()
            (world.folder / "tools" / "bin").symlink_to(home)
            monkeypatch.setenv("PATH", f"{world.folder}/tools/bin:{os.environ['PATH']}")
            intrusion = Intrusion(world, sandbox, plan)
    assert got(intrusion.report()) == []


@pytest.mark.parametrize("sandbox", SANDBOXED)
@pytest.mark.skipif(not system_calls.known(), reason="there is no filter of system calls for this processor")
def test_the_keys_that_the_kernel_holds_for_the_user_are_out_of_reach(world: World, sandbox: str) -> None:
    keyctl = {"x86_64": 250, "aarch64": 219}[platform.machine()]
    assert "Function not implemented" in Intrusion(world, sandbox, {"keys": ("call", keyctl)}).report()["keys"]


@pytest.mark.parametrize("sandbox", SANDBOXED)
def test_an_engine_has_no_terminal(world: World, sandbox: str) -> None:
    assert "tty" not in got(Intrusion(world, sandbox, {}).report())


def test_without_a_sandbox_an_engine_reads_what_its_user_reads(world: World) -> None:
    """Nothing is promised there, and `doctor` and `/healthz` say so."""
    (world.folder / "elsewhere").mkdir()
    plan = _secrets(world, world.folder / "elsewhere")
    assert {"token", "key", "another run"} <= {*got(Intrusion(world, "off", plan).report())}
