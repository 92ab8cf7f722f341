"""Which folders of the user a run may work in, and whether such a folder can still be used.

A folder counts by the path that the kernel gives to the opened folder, never by the path that was written. Askback creates
`artifacts/` in it and nothing else, and removes nothing from it.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from askback.core.errors import FULL_DISK, Forbidden, Invalid, RefusalCode, raise_if_temporary
from askback.core.runs import Workdir
from askback.fs.repositories import in_repository
from askback.workspace.artifacts import ARTIFACTS_DIR

log = logging.getLogger(__name__)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_CHARS = 4096


class WorkdirUnavailable(Exception):
    """A folder that a run was admitted to can no longer be used. The message is for people."""


class Workdirs:
    def __init__(
        self,
        *,
        allowed: Iterable[Path] = (),
        data_dir: Path,
        homes: Iterable[Path] = (),
        own_folders: Iterable[Path] = (),
    ) -> None:
        """`allowed`: the folders of the settings. `homes`: of people. None is shown to an engine as a whole.

        `own_folders`: those of Askback beside its data folder.
        """
        self._allowed = tuple(allowed)
        self._own_folders = (data_dir, *own_folders)
        self._homes = tuple(homes)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The folders of the settings."""
        return tuple(str(each) for each in self._allowed)

    def admit(self, given: str, *, by_user: bool) -> Workdir:
        """The folder, if a run may work in it. `by_user`: a user of this machine named it, so no setting is needed."""
        if not by_user and not self._is_allowed(given):
            # The same whether the folder exists or not: a caller learns nothing about other folders.
            raise Forbidden(RefusalCode.WORKDIR_NOT_ALLOWED, _not_allowed(any_at_all=bool(self._allowed)))
        try:
            path = self._checked(given)
        except WorkdirUnavailable as problem:
            message = "the run cannot work in that folder"
            raise Invalid(RefusalCode.INPUT_INVALID, message, [f"workdir: {problem}"]) from None
        if not by_user and (reason := self._not_below_allowed(path)):
            log.warning("a run in %s is refused: %s", path, reason)
            raise Forbidden(RefusalCode.WORKDIR_NOT_ALLOWED, _not_allowed(any_at_all=True))
        return Workdir(path=str(path), by_user=by_user)

    def prepare(self, workdir: Workdir) -> Path:
        """The folder before a turn, with `artifacts/` in it. Raises `WorkdirUnavailable`."""
        path = self.check(workdir)
        with _opened(path) as folder:
            if _real_path(folder, str(path)) != path:
                raise WorkdirUnavailable(f"{path} was replaced by a link")
            _make_artifacts(folder, path)
        return path

    def check(self, workdir: Workdir) -> Path:
        """The folder of a run, if it is still the one that was admitted. Raises `WorkdirUnavailable`."""
        path = self._checked(workdir.path)
        if str(path) != workdir.path:
            raise WorkdirUnavailable(f"{workdir.path} leads to {path} now: it was replaced by a link")
        if not workdir.by_user and (reason := self._not_below_allowed(path)):
            raise WorkdirUnavailable(f"{path} is not allowed any more: {reason}")
        return path

    def _checked(self, given: str) -> Path:
        if not given.startswith("/") or "\0" in given or len(given) > _MAX_CHARS:
            raise WorkdirUnavailable("it must be an absolute path")
        with _opened(Path(given)) as folder:
            path = _real_path(folder, given)
            if not str(path).isprintable():
                raise WorkdirUnavailable("its path has characters that are not printable")
            if problem := self._unsuitable(path):
                raise WorkdirUnavailable(f"{path} {problem}")
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                raise WorkdirUnavailable(f"{path} cannot be written to")
            _check_artifacts(folder, path)
        return path

    def _unsuitable(self, path: Path) -> str | None:
        for folder in map(_resolved, self._own_folders):
            if path.is_relative_to(folder) or folder.is_relative_to(path):
                return "is in Askback's data folder, or contains it; choose another folder"
        if path == Path("/") or any(home.is_relative_to(path) for home in self._homes):
            return "is or contains a home folder; choose a folder inside it"
        if in_repository(path):
            return "is in git's own folder; choose the folder with your files"
        return None

    def _is_allowed(self, given: str) -> bool:
        try:
            return given.startswith("/") and "\0" not in given and bool(self._roots(_resolved(Path(given))))
        except WorkdirUnavailable:
            return False

    def _roots(self, path: Path) -> list[Path]:
        return [root for root in map(_resolved, self._allowed) if path.is_relative_to(root)]

    def _not_below_allowed(self, path: Path) -> str | None:
        """Why the settings do not allow this folder."""
        problem: str | None = "it is not below a folder in `workdirs` of the settings"
        for root in self._roots(path):
            around = (each for each in path.parents if each.is_relative_to(root))
            problem = next(filter(None, map(exposed, around)), None)
            if problem is None:
                return None
        return problem


def exposed(folder: Path) -> str | None:
    """Why another user could put something else in place of what is in this folder, such as a link that leads elsewhere.

    The sticky bit does not help: the owner of a folder may still replace it.
    """
    try:
        status = folder.stat()
    except OSError as error:
        raise_if_temporary(error)
        return f"{folder} {_why(error)}"
    if status.st_uid not in (0, os.geteuid()):
        return f"{folder} belongs to another user"
    if status.st_mode & stat.S_IWOTH:
        return f"every user can write to {folder}"
    if status.st_mode & stat.S_IWGRP and status.st_gid != os.getegid():
        return f"another group than the server's can write to {folder}"
    return None


def _not_allowed(*, any_at_all: bool) -> str:
    if any_at_all:
        return "that folder is not below a folder in `workdirs` of the server's settings"
    return "this server allows no run to work in a folder of its machine; `workdirs` in its settings can allow some"


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        folder = os.open(path, _FOLDER)
    except OSError as error:
        raise_if_temporary(error)
        raise WorkdirUnavailable(f"{path} {_why(error)}") from None
    try:
        yield folder
    finally:
        os.close(folder)


def _why(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "does not exist"
        case errno.ENOTDIR:
            return "is not a folder"
        case _:
            return f"cannot be opened: {(error.strerror or 'unknown error').lower()}"


def _real_path(folder: int, given: str) -> Path:
    """The path of an open folder, without links. Without `/proc`, it is resolved and compared."""
    try:
        path = Path(os.readlink(f"/proc/self/fd/{folder}"))  # noqa: PTH115
    except OSError:
        path = _resolved(Path(given))
    # A folder that was removed after it was opened, or a path that changed, is not this folder.
    try:
        same = os.path.samestat(path.lstat(), os.fstat(folder))
    except OSError as error:
        raise_if_temporary(error)
        same = False
    if not same:
        raise WorkdirUnavailable(f"{given} does not exist")
    return path


def _resolved(path: Path) -> Path:
    """Without links. Raises `WorkdirUnavailable` if a part of the path changes at that moment."""
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        raise_if_temporary(error)
        raise WorkdirUnavailable(f"{path} {_why(error)}") from None


def _check_artifacts(folder: int, path: Path) -> bool:
    """Whether `artifacts` exists. It is never replaced: it belongs to the user."""
    try:
        status = os.stat(ARTIFACTS_DIR, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise_if_temporary(error)
        raise WorkdirUnavailable(f"{path / ARTIFACTS_DIR} {_why(error)}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise WorkdirUnavailable(
            f"{path / ARTIFACTS_DIR} is not a folder; rename it, so that output files can go there"
        )
    return True


def _make_artifacts(folder: int, path: Path) -> None:
    if _check_artifacts(folder, path):
        return
    try:
        os.mkdir(ARTIFACTS_DIR, dir_fd=folder)
    except OSError as error:
        raise_if_temporary(error)
        if error.errno in FULL_DISK:
            raise
        raise WorkdirUnavailable(f"{path / ARTIFACTS_DIR} cannot be created: {error.strerror}") from None
