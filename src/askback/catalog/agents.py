"""Programs on this machine that speak the Agent Client Protocol and are no engine yet."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Collection, Iterable
from importlib import resources
from pathlib import Path

_ENDING = "-acp"


def unconfigured(commands: Iterable[tuple[str, ...]], taken: Collection[str]) -> dict[str, list[str]]:
    """The command of each, by the name that its engine could have.

    `commands` are those of the engines, whose names are `taken`. Known programs are found by their names, others only if
    their name ends with `-acp`. None is started.
    """
    used = {Path(command[0]).name for command in commands}
    known: dict[str, list[str]] = tomllib.loads(
        resources.files("askback.catalog").joinpath("agents.toml").read_text("utf-8")
    )
    others = {name.removesuffix(_ENDING): [name] for name in _programs() if name.endswith(_ENDING)}
    programs = {command[0] for command in known.values()}
    found = known | {name: command for name, command in others.items() if command[0] not in programs}
    return {
        name: command
        for name, command in sorted(found.items())
        if command[0] not in used and name not in taken and shutil.which(command[0]) is not None
    }


def _programs() -> set[str]:
    folders = [Path(folder) for folder in os.get_exec_path() if Path(folder).is_dir()]
    return {path.name for folder in folders for path in folder.iterdir()}
