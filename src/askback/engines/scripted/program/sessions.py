"""Sessions in `$HOME/.scripted/sessions/<id>.jsonl`: prompts and messages in order, one JSON object per line.

Every record is flushed to disk. The file is locked while the session is open, so there is one writer at a time.
"""

# No pathlib: importing it would take a third of the startup time.
# ruff: noqa: PTH103
from __future__ import annotations

import fcntl
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SessionError(Exception):
    """The session cannot be resumed."""


class UnknownSession(SessionError):
    """There is no such session."""


class Session:
    def __init__(self, session_id: str, descriptor: int, records: list[dict[str, Any]]) -> None:
        self.id = session_id
        self.records = records
        self._descriptor = descriptor
        self._resumed_after = len(records)

    @classmethod
    def start(cls, home: str) -> Session:
        session_id = new_id()
        os.makedirs(_folder(home), mode=0o700, exist_ok=True)
        descriptor = os.open(_path(home, session_id), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sync_folder(_folder(home))
        return cls(session_id, descriptor, [])

    @classmethod
    def resume(cls, home: str, session_id: str) -> Session:
        if not session_id.startswith("ses-") or "/" in session_id or "\0" in session_id:
            raise UnknownSession(f"no session {session_id!r}: this is not a session id")
        try:
            descriptor = os.open(_path(home, session_id), os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise UnknownSession(f"no session {session_id}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SessionError(f"session {session_id} already has an active writer") from None
        return cls(session_id, descriptor, _read(descriptor))

    def add(self, kind: str, **fields: Any) -> None:
        """Append a record, and flush it to disk."""
        record = {"type": kind, "turn": self.turn, **fields}
        _write(self._descriptor, (json.dumps(record) + "\n").encode())
        os.fsync(self._descriptor)
        self.records.append(record)

    @property
    def turn(self) -> int:
        """The number of the current turn. An interrupted turn is played again; those of a lost session are not.

        A call that was answered ends a turn. So does one without an answer if the program was killed before the end of the
        turn: its question was asked, and the answer is the next prompt.
        """
        ended, asked = 0, False
        for record in self.records:
            match record.get("type"):
                case "rebuilt":
                    ended += int(record["turns"])
                case "completed" | "call":
                    ended, asked = ended + 1, False
                case "tool" if record.get("answered") is False:
                    ended, asked = ended - 1, True
                case "prompt":
                    ended, asked = ended + asked, False
        is_next = len(self.records) == self._resumed_after
        return 1 + ended + (asked and is_next)


def new_id() -> str:
    """`ses-` and a random UUID (version 4), without importing `uuid`."""
    value = bytearray(os.urandom(16))
    value[6] = value[6] & 0x0F | 0x40
    value[8] = value[8] & 0x3F | 0x80
    digits = value.hex()
    return "ses-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _folder(home: str) -> str:
    return f"{home}/.scripted/sessions"


def _path(home: str, session_id: str) -> str:
    return f"{_folder(home)}/{session_id}.jsonl"


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read(descriptor: int) -> list[dict[str, Any]]:
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read()
    records = []
    for line in content.splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    if content and not content.endswith(b"\n"):
        # A writer was killed in the middle of a line. The next record must start on a new line.
        _write(descriptor, b"\n")
    return records
