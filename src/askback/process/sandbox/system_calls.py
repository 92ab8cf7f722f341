"""The system calls that are refused in a sandbox, as a seccomp filter.

Only a few: those that namespaces do not isolate (the kernel's key rings, input for another terminal), and large parts of
the kernel that no engine needs. User namespaces are allowed, because browsers need them.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_I386, _X86_64, _ARM, _AARCH64 = 0x40000003, 0xC000003E, 0x40000028, 0xC00000B7
_MACHINES = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64, _ARM)}
# In this order: x86_64, i386, aarch64, arm.
_REFUSED = {
    "add_key": (248, 286, 217, 309),
    "request_key": (249, 287, 218, 310),
    "keyctl": (250, 288, 219, 311),
    "bpf": (321, 357, 280, 386),
    "perf_event_open": (298, 336, 241, 364),
    "userfaultfd": (323, 374, 282, 388),
    "io_uring_setup": (425, 425, 425, 425),
    "io_uring_enter": (426, 426, 426, 426),
    "io_uring_register": (427, 427, 427, 427),
}
_IOCTL = (16, 54, 29, 54)
_SOCKET = (41, 359, 198, 281)
_TO_THE_HYPERVISOR = 40
"""AF_VSOCK, which network namespaces do not isolate."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: both can type into a terminal."""
_ARCHITECTURES = (_X86_64, _I386, _AARCH64, _ARM)
_X32_CALLS = 0x40000000

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_ABSENT = _ERROR | errno.ENOSYS
_FORBIDDEN = _ERROR | errno.EPERM
_NO_FAMILY = _ERROR | errno.EAFNOSUPPORT

_Step = tuple[int, int, int, int]
"""Opcode, instructions to skip if true and if false, and a constant."""


def known() -> bool:
    """Whether there is a filter for this machine's processor."""
    return platform.machine() in _MACHINES


@contextmanager
def filter_file() -> Iterator[int]:
    """The filter as an open file."""
    file = os.memfd_create("askback-filter")
    try:
        os.write(file, program(platform.machine()))
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


@cache
def program(machine: str) -> bytes:
    steps: list[_Step] = []
    for architecture in _MACHINES[machine]:
        block = _block(_ARCHITECTURES.index(architecture))
        steps += [(_LOAD, 0, 0, _ARCHITECTURE), (_IF_EQUAL, 0, len(block), architecture), *block]
    steps.append((_RETURN, 0, 0, _ABSENT))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _block(column: int) -> list[_Step]:
    """For one architecture: each refused call returns an error, all others are allowed."""
    steps: list[_Step] = [(_LOAD, 0, 0, _NUMBER)]
    if _ARCHITECTURES[column] == _X86_64:
        steps += [(_IF_AT_LEAST, 0, 1, _X32_CALLS), (_RETURN, 0, 0, _ABSENT)]
    for numbers in _REFUSED.values():
        steps += [(_IF_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _ABSENT)]
    steps += [(_IF_EQUAL, 0, 4, _SOCKET[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    steps += [(_IF_EQUAL, 0, 1, _TO_THE_HYPERVISOR), (_RETURN, 0, 0, _NO_FAMILY), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_IF_EQUAL, 0, 5, _IOCTL[column]), (_LOAD, 0, 0, _SECOND_ARGUMENT)]
    for request in _TERMINAL_INPUT:
        steps += [(_IF_EQUAL, 0, 1, request), (_RETURN, 0, 0, _FORBIDDEN)]
    return [*steps, (_RETURN, 0, 0, _ALLOW)]
