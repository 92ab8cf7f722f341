"""What a machine needs to execute turns: its folders, with some room, and the file that shows that this program is alive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from askback.app.fleet import is_shared
from askback.app.roles import Role
from askback.background.pools import Pools
from askback.blobs.marked import MarkedFiles
from askback.cluster.instances import Programs
from askback.core.errors import RefusalCode
from askback.fs.atomic import make_private
from askback.fs.usable import FolderProblem, code_of, problem_of
from askback.settings.model import Settings
from askback.worker.fitness import Fitness
from askback.worker.store_watch import StoreWatch
from askback.worker.turn.shortage import FLEET_PATIENCE_SEC, PATIENCE_SEC
from askback.workspace.workspaces import Workspaces


def make_store_watch(files: MarkedFiles | None, role: Role) -> StoreWatch | None:
    if files is None or not role.executes:
        return None

    async def look(thorough: bool) -> None:
        await (files.check() if thorough else files.confirm())

    return StoreWatch(look)


def make_fitness(
    settings: Settings,
    role: Role,
    programs: Programs,
    workspaces: Workspaces,
    pools: Pools,
    store_watch: StoreWatch | None,
) -> Fitness:
    return Fitness(
        look=partial(_look, settings, programs),
        size_of=workspaces.size,
        pool=pools.checking,
        has_others=_has_others(settings, role),
        files=store_watch,
    )


def start_patience_sec(settings: Settings, role: Role) -> float:
    """How long the start of an engine is repeated in a shortage."""
    return FLEET_PATIENCE_SEC if _has_others(settings, role) else PATIENCE_SEC


def _has_others(settings: Settings, role: Role) -> bool:
    return role.uses_shared_queue and is_shared(settings)


def _look(settings: Settings, programs: Programs, thorough: bool) -> FolderProblem | None:
    """What was removed is made again, and counts as a problem until the next look. Never the folder of an SQLite database,
    which somebody may have moved away with all its runs."""
    for folder in _folders(settings):
        found = problem_of(folder, min_free_bytes=settings.limits.min_free_disk_bytes, thorough=thorough)
        if found is not None:
            if is_shared(settings) and not os.path.lexists(folder):
                with suppress(OSError):
                    make_private(folder)
            return found
    try:
        if programs.restore_registration():
            return None
    except OSError as error:
        return FolderProblem(code=code_of(error), message=f"{settings.data_dir} cannot be used: {error}")
    return FolderProblem(code=RefusalCode.STORE_UNUSABLE, message=f"files in {settings.data_dir} were removed")


def _folders(settings: Settings) -> Iterator[Path]:
    yield settings.data_dir
    # The one in the data folder is made for the first run, and may be a separate disk.
    if settings.runs_dir is not None or settings.runs.exists():
        yield settings.runs
