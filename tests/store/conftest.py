"""What the tests of the store share: a store of each kind, and other programs on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from stores import STORES, OpenStore, Program, opened

from support import postgres
from support.postgres import databases

OTHER_PROGRAM = Path(__file__).with_name("other_program.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of the Protocol runs on every store, or on that of the database that was chosen."""
    if "store_kind" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--database")
        metafunc.parametrize("store_kind", sorted(STORES) if chosen is None else [chosen], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "store_kind" in item.fixturenames:
            item.add_marker(pytest.mark.contract("M-1"))


@pytest.fixture
def store_kind(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind = str(request.param)
    if kind == "postgres":
        if (reason := postgres.missing()) is not None:
            pytest.skip(reason)
        databases.make(tmp_path)
    return kind


@pytest.fixture
def open_store(store_kind: str, tmp_path: Path) -> OpenStore:
    return partial(opened, store_kind, tmp_path)


@pytest.fixture
def start_program(store_kind: str, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts another program on the same store; `other_program.py` says what it can do."""
    programs: list[Program] = []

    def start(*args: str) -> Program:
        command = [sys.executable, str(OTHER_PROGRAM), store_kind, str(tmp_path), *args]
        programs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True))
        return programs[-1]

    yield start
    for program in programs:
        with program:
            program.kill()
