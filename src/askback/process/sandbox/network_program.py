"""Starts a command in a separate network, from which other machines can be reached and this one cannot.

Started as `network_program.py SLIRP4NETNS PLACEHOLDER COMMAND…`. It creates a network namespace, blocks the forbidden
addresses, lets slirp4netns connect the rest, and starts the command. The first argument of the command that equals
PLACEHOLDER becomes the number of an open file with the content of `/etc/resolv.conf`.

It ends with the command, and the command and slirp4netns end with it, for whatever reason. Stand-alone like
`guardian/program.py`: standard library only. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_SET_PDEATHSIG = 1
_FAILED = 125

# Link-local addresses with the metadata services of most clouds, and those of Alibaba, Oracle and Azure.
_METADATA = ("169.254.0.0/16", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32")
# Addresses of slirp4netns. Its gateway would lead to this machine's loopback, which it refuses too.
_GATEWAY = "10.0.2.2"
_RESOLVER = "nameserver 10.0.2.3\n"

_RTM_NEWROUTE, _ACK, _REQUEST, _CREATE = 24, 4, 1, 0x400
_RTN_UNREACHABLE, _TABLE_MAIN, _PROTOCOL_STATIC, _DESTINATION = 7, 254, 4, 1


def main() -> NoReturn:
    slirp, placeholder, *command = sys.argv[1:]
    _end_with_parent()
    blocked = [*_METADATA, *(f"{address}/32" for address in own_addresses())]
    made, tell_made = os.pipe()
    go, tell_go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(made)
        os.close(tell_go)
        _exec(command, placeholder, blocked, tell_made, go)
    os.close(tell_made)
    os.close(go)
    _close_files_except(made, tell_go)
    if os.read(made, 1) and (helper := _connect(slirp, child)) is not None:
        os.write(tell_go, b"1")
        _close_streams()
        _end_as(os.waitpid(child, 0)[1], *helper)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os._exit(_FAILED)


def _exec(command: list[str], placeholder: str, blocked: list[str], made: int, go: int) -> NoReturn:
    """Create the namespace, wait for slirp4netns, and become the command."""
    try:
        parent = os.getppid()
        _end_with_parent()
        if os.getppid() != parent:
            os._exit(_FAILED)
        _unshare()
        for network in blocked:
            _block(network)
        os.write(made, b"1")
        os.close(made)
        if os.read(go, 1):
            os.close(go)
            if placeholder in command:
                command[command.index(placeholder)] = str(_resolver_file())
            os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"no network could be created: {error}\n".encode())
    os._exit(_FAILED)


def _unshare() -> None:
    """Root needs no user namespace. Other users get one in which their ids are the same."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNET | (_NEWUSER if user else 0)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            file = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(file, text.encode())
            os.close(file)


def _connect(slirp: str, child: int) -> tuple[int, int] | None:
    """Start slirp4netns and wait until it is ready. Returns its pid and the file whose closing ends it."""
    ready, tell_ready = os.pipe()
    until, alive = os.pipe()
    for file in (tell_ready, until):
        os.set_inheritable(file, True)
    argv = [slirp, "--configure", "--disable-host-loopback", "--enable-seccomp", "--mtu=65520"]
    argv += [f"--ready-fd={tell_ready}", f"--exit-fd={until}"]
    # Its own sandbox requires root in the namespace, which only root has.
    argv.append(f"--userns-path=/proc/{child}/ns/user" if os.geteuid() else "--enable-sandbox")
    nothing = os.open(os.devnull, os.O_RDWR)
    places = [(os.POSIX_SPAWN_DUP2, nothing, place) for place in (0, 1, 2)]
    try:
        pid = os.posix_spawn(slirp, [*argv, str(child), "tap0"], {}, file_actions=places)
    except OSError as error:
        os.write(2, f"{slirp} cannot be started: {error}\n".encode())
        return None
    for file in (tell_ready, until, nothing):
        os.close(file)
    if not os.read(ready, 1):
        os.write(2, f"{slirp} cannot create a network here\n".encode())
        return None
    os.close(ready)
    return pid, alive


def _end_as(status: int, helper: int, alive: int) -> NoReturn:
    os.close(alive)
    os.kill(helper, signal.SIGKILL)
    os.waitpid(helper, 0)
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 255)


def _close_files_except(*files: int) -> None:
    """Files for the command, such as the lock of its turn, must not stay open here."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) not in files:
            try:
                os.close(int(name))
            except OSError:
                continue


def _close_streams() -> None:
    """The reader of the command's output must see its end, and the command the end of its input."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1, 2):
        os.dup2(nothing, place)


def _end_with_parent() -> None:
    ctypes.pythonapi.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _resolver_file() -> int:
    file = os.memfd_create("resolv.conf", 0)
    os.write(file, _RESOLVER.encode())
    os.lseek(file, 0, os.SEEK_SET)
    return file


def own_addresses() -> list[str]:
    """This machine's own addresses: a service that listens on all of them is reached over loopback."""
    found: set[str] = set()
    last = ""
    with open("/proc/net/fib_trie") as file:
        for line in file:
            words = line.split()
            if words[:1] in (["|--"], ["+--"]):
                last = words[1]
            elif words[:3] == ["/32", "host", "LOCAL"]:
                found.add(last)
    return sorted(address for address in found if not address.startswith("127.") and address != _GATEWAY)


def _block(network: str) -> None:
    """Like `ip route add unreachable`."""
    address, length = network.split("/")
    route = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, int(length), 0, 0, _TABLE_MAIN, _PROTOCOL_STATIC, 0, _RTN_UNREACHABLE, 0
    )
    route += struct.pack("=HH", 8, _DESTINATION) + socket.inet_aton(address)
    head = struct.pack("=IHHII", 16 + len(route), _RTM_NEWROUTE, _REQUEST | _ACK | _CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as line:
        line.send(head + route)
        (code,) = struct.unpack_from("=i", line.recv(4096), 16)
    if code != 0:
        raise OSError(-code, os.strerror(-code))


if __name__ == "__main__":
    main()
