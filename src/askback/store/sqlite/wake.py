"""Notifications between processes on one data folder, through datagram sockets instead of polling.

Every open store has a mailbox `wake/<name>.sock`. A message is a list of run ids; an empty list means that any run
may have changed. A message is lost only if a mailbox is full, and its owner can detect that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from askback.core.errors import RefusalCode, Unavailable

_SUFFIX = ".sock"
_MAX_MESSAGE_BYTES = 8192
_MAX_ADDRESS_BYTES = 100
_ANY_RUN = b"[]"

log = logging.getLogger(__name__)

Heard = Callable[[Collection[str] | None], None]
"""Called in the event loop with the ids of changed runs, or None if they are unknown."""


class Wake:
    def __init__(self, folder: Path, name: str, directory: int, mailbox: socket.socket, heard: Heard) -> None:
        self._folder = folder
        self._name = name
        self._directory = directory
        self._mailbox = mailbox
        self._heard = heard
        self._capacity = _mailbox_capacity()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(mailbox.fileno(), self._receive)

    @classmethod
    def open(cls, folder: Path, heard: Heard) -> Wake:
        """Create the mailbox. Raises `OSError` if the folder cannot contain sockets."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        name = secrets.token_hex(8) + _SUFFIX
        mailbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mailbox.setblocking(False)
            # Under a draft name first: others would remove a mailbox that does not accept messages yet.
            draft = name.removesuffix(_SUFFIX)
            mailbox.bind(_address(folder, directory, draft))
            os.chmod(draft, 0o600, dir_fd=directory)
            os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            mailbox.close()
            os.close(directory)
            raise
        return cls(folder, name, directory, mailbox, heard)

    def send(self, run_ids: Collection[str]) -> None:
        """Notify every other process. Never blocks or raises. Call it from one thread only."""
        message = msgspec.json.encode(list(run_ids))
        if len(message) > _MAX_MESSAGE_BYTES:
            message = _ANY_RUN
        try:
            with os.scandir(self._directory) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(_SUFFIX)]
            for name in names:
                if name != self._name:
                    self._send_to(name, message)
        except OSError as error:
            log.warning("other processes were not notified of a change", extra={"error": str(error)})

    def close(self) -> None:
        self._loop.remove_reader(self._mailbox.fileno())
        self._mailbox.close()
        self._remove(self._name)
        os.close(self._directory)

    def _send_to(self, name: str, message: bytes) -> None:
        # A separate socket each: messages that one process leaves unread must not block those to another.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(message, _address(self._folder, self._directory, name))
            except ConnectionRefusedError:
                self._remove(name)
            except OSError:
                # The mailbox is full or was just removed. Its owner detects a full mailbox, see `_receive`.
                return

    def _receive(self) -> None:
        """Read all messages. If the mailbox was full, others may have been lost, so any run may have changed."""
        changed: set[str] = set()
        known = True
        for count in range(1, self._capacity + 1):
            try:
                message = self._mailbox.recv(_MAX_MESSAGE_BYTES)
            except OSError:
                break
            run_ids: list[str] = []
            with contextlib.suppress(msgspec.DecodeError):
                run_ids = msgspec.json.decode(message, type=list[str])
            known = known and bool(run_ids) and count < self._capacity
            changed.update(run_ids)
        if not known:
            self._heard(None)
        elif changed:
            self._heard(changed)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._directory)


def _address(folder: Path, directory: int, name: str) -> str:
    """The address of a mailbox. A socket address is limited to about 100 bytes; longer paths go through /proc."""
    address = os.fspath(folder / name)
    if len(os.fsencode(address)) <= _MAX_ADDRESS_BYTES:
        return address
    if sys.platform != "linux":
        message = f"the path {folder} is too long for a socket; use a data folder with a shorter path"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
    return f"/proc/self/fd/{directory}/{name}"


def _mailbox_capacity() -> int:
    """How many messages are certain to fit; if the system does not say, a safe minimum."""
    try:
        return max(1, int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()))
    except (OSError, ValueError):
        return 4
