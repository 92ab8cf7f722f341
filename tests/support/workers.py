"""Workers as their user starts them, and a second engine: `scripted` under another name, installed where a test wants it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx

from support.data_folder import World
from support.program import Started, until

_SECOND = """
from askback.engines.scripted import Scripted

class Second(Scripted):
    name = "second"
    title = "Second"
    default_command = ("second-engine", *Scripted.default_command[1:])

def engine():
    return Second()
"""


class Worker(Started):
    """`askback worker`, whose health is at any free port."""

    def __init__(self, world: World, *args: str, env: dict[str, str] | None = None, warm: bool = True) -> None:
        # On a busy machine a turn may take long to end.
        patient = {"ASKBACK_WORKER__DRAIN_SEC": "600"}
        super().__init__(world, "worker", "--json", "--port", "0", *args, env=patient | (env or {}), warm=warm)
        self.told: dict[str, Any] = json.loads(until(self._line, self._alive))

    def _line(self) -> str:
        text = self._out.read_text()
        return text if text.endswith("\n") else ""

    @property
    def url(self) -> str:
        return str(self.told["url"])

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=120)


def know_second_engine(folder: Path) -> dict[str, str]:
    """The variables of a program that knows the engine `second`. Its program is not installed yet."""
    info = folder / "site" / "second_engine-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: second-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[askback.engines]\nsecond = second_engine:engine\n")
    (folder / "site" / "second_engine.py").write_text(_SECOND)
    return {"PYTHONPATH": str(folder / "site")}


def machine_for_second_engine(folder: Path) -> dict[str, str]:
    """The variables of a program on whose machine it can be installed."""
    return {**know_second_engine(folder), "PATH": f"{folder / 'programs'}:{os.defpath}"}


def install_second_engine(folder: Path) -> None:
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    made = programs / "new"
    made.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    made.chmod(0o755)
    made.rename(programs / "second-engine")
