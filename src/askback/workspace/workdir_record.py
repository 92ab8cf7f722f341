"""What a run records of the user's folder that it works in: copies of its artifacts, and a summary of its changes.

<run>/workdir/found.json     the files that `artifacts/` had before the run
<run>/workdir/git.json       the git repositories that the folder had before the run
<run>/workdir/changes.json   what has changed in the folder since then, without `artifacts/`
<run>/workdir/git/           a separate git folder, while the run is not over; see `Comparison`
<run>/work/artifacts/        copies of the files that the run left in `artifacts/`

The copies stay as they are when the user, or a later run, changes the folder. They are deleted with the run, and the
folder is not. An engine without a sandbox can change these records, so nothing that is read here is trusted.

The summary says what `git diff --stat` would say, without trusting the repository, which can name programs in its configuration
that git runs even for a plain diff: filters, external diffs, a file system monitor, hooks. The engine can write that configuration.
So git never reads it: it works with a separate git folder, which borrows only the objects and the index of the repository. No
submodule is entered. In the user's `.git`, nothing changes but the times of objects. The work is done in the sandbox of the
engines, if there is one, and has limits on its time and its output. The folder is recorded as a tree when the run starts, with
uncommitted and untracked files, and again after each turn; the summary compares the two. It covers everything in the folder that
the repository does not ignore, except `artifacts/`.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from askback.background.pools import Checkpoint, unchecked
from askback.core.changes import ChangedFile, Changes, ChangeStatus, NoSummary
from askback.fs import beneath
from askback.fs.atomic import write_private
from askback.fs.copies import CopyLimits, CopyRefused, TreeCopy
from askback.fs.paths import open_below, read_below
from askback.fs.repositories import identities
from askback.fs.walk import FileState
from askback.process.child import NotStarted, Printed, Starter, call
from askback.process.isolation import ResourceLimits
from askback.workspace.artifacts import ARTIFACTS_DIR, Artifact, artifacts_in, bounded
from askback.workspace.layout import Workspace

_FOLDER = "workdir"
_FOUND = f"{_FOLDER}/found.json"
_REPOSITORIES = f"{_FOLDER}/git.json"
_CHANGES = f"{_FOLDER}/changes.json"
_MAX_BYTES = 50_000_000


T = TypeVar("T")
_Found = dict[str, tuple[int, int]]
_Repositories = dict[str, tuple[int, int]]
MAX_SEC = 20.0
"""How long the start and the end of a turn wait for git."""
MAX_SUMMARIZED = 200
"""Files that a summary lists."""
MAX_OBJECT_BYTES = 1 << 30
"""Bytes of uncommitted content for the comparison."""
_MAX_INDEX_BYTES = 1 << 28
_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = false\n"
_TREE = re.compile(r"[0-9a-f]{40}")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}

# `$1` is git, `$2` a tree or nothing. Entries for submodules are dropped first: git would run itself in each of them,
# with the configuration that it finds there.
_SCRIPT = f"""
git=$1 start=$2
"$git" ls-files -s | while IFS= read -r line; do
    case $line in 160000\\ *) printf '%s\\n' "${{line#*\t}}" ;; esac
done | "$git" update-index --force-remove --stdin || exit 1
"$git" add --all --ignore-errors -- . ':(exclude,top){ARTIFACTS_DIR}' >&2
tree=$("$git" write-tree) || exit 1
echo "$tree"
[ -z "$start" ] && exit 0
exec "$git" diff-tree -r --no-renames --no-ext-diff --no-textconv --no-color --ignore-submodules=dirty \\
    --raw --numstat "$start" "$tree" -- . ':(exclude,top){ARTIFACTS_DIR}'
"""
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "core.quotePath": "true",
    "core.pager": "cat",
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.looseCompression": "1",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "advice.addEmbeddedRepo": "false",
    "gc.auto": "0",
    "safe.directory": "*",
}
_STATUSES = {"A": ChangeStatus.ADDED, "D": ChangeStatus.DELETED}


class WorkdirRecord:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    # The artifacts.

    def record_found(self, workdir: Path, checkpoint: Checkpoint = unchecked) -> None:
        """Record the files that are in `artifacts/` before the run, once: they are not the run's."""
        if self._read(_FOUND, _Found) is None:
            found = bounded(artifacts_in(workdir, checkpoint))
            self._write(_FOUND, {each.path: (each.size, each.modified_ns) for each in found})

    def collect(self, workdir: Path, limits: CopyLimits, checkpoint: Checkpoint = unchecked) -> None:
        """Copy what the run left in `artifacts/`, and remove the copies of files that it removed.

        Raises `CopyRefused` if there is too much.
        """
        found = self._read(_FOUND, _Found) or {}
        copying = TreeCopy(self._workspace.root, limits, checkpoint)
        copied: set[str] = set()
        for artifact in bounded(artifacts_in(workdir, checkpoint)):
            checkpoint()
            if found.get(artifact.path) != artifact.state.portable[:2]:
                copied.add(artifact.path)
                self._copy(workdir, artifact, copying)
        for copy in list(bounded(self._workspace.artifacts(checkpoint))):
            if copy.path not in copied:
                beneath.remove(self._workspace.root, self._copy_of(copy.path))
        copying.sync()

    def _copy(self, workdir: Path, artifact: Artifact, copying: TreeCopy) -> None:
        copy = beneath.status_of(self._workspace.root, self._copy_of(artifact.path))
        is_file = copy is not None and stat.S_ISREG(copy.st_mode)
        if copy is not None and is_file and FileState.of(copy).portable == artifact.state.portable:
            return
        try:
            file = open_below(workdir, f"{ARTIFACTS_DIR}/{artifact.path}")
        except PermissionError:
            raise CopyRefused(f"{ARTIFACTS_DIR}/{artifact.path} cannot be read") from None
        if file is None:
            return
        with file:
            status = os.fstat(file.fileno())
            mode = stat.S_IMODE(status.st_mode) & 0o777
            copying.copy_open_file(file.fileno(), self._copy_of(artifact.path), mode, status.st_mtime_ns)

    def _copy_of(self, path: str) -> str:
        return f"{self._workspace.artifacts_path.relative_to(self._workspace.root).as_posix()}/{path}"

    # The repositories.

    def record_repositories(self, workdir: Path, checkpoint: Checkpoint = unchecked) -> None:
        """Record the git repositories that are there before the run, once. Raises `TooManyFolders`."""
        if self._read(_REPOSITORIES, _Repositories) is None:
            self._write(_REPOSITORIES, identities(workdir, checkpoint))

    def new_repositories(self, workdir: Path, checkpoint: Checkpoint = unchecked) -> list[str]:
        """Those that have appeared since, or were replaced. Raises `TooManyFolders`."""
        before = self._read(_REPOSITORIES, _Repositories)
        if before is None:
            return []
        return [name for name, identity in identities(workdir, checkpoint).items() if before.get(name) != identity]

    # The changes.

    def changes(self) -> Changes | None:
        """The last summary; None if there is none yet."""
        return self._read(_CHANGES, Changes)

    def write_changes(self, changes: Changes) -> None:
        self._write(_CHANGES, changes)

    # Files.

    def _read(self, name: str, kind: type[T]) -> T | None:
        content = read_below(self._workspace.root, name, _MAX_BYTES)
        try:
            return None if content is None else msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _write(self, name: str, value: object) -> None:
        beneath.make_folder(self._workspace.root, _FOLDER)
        write_private(self._workspace.root / name, msgspec.json.encode(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of one run's folder, by programs that `starter` starts."""

    starter: Starter
    workspace: Workspace
    workdir: Path
    resources: ResourceLimits
    mark: str

    def prepare(self) -> NoSummary | None:
        """Make the separate git folder. Returns why there will be no summary, or None."""
        if shutil.which("git") is None:
            return NoSummary.GIT_MISSING
        if not _is_folder(self.workdir / ".git"):
            return NoSummary.NOT_A_REPOSITORY
        root, name = self.workspace.root, self._folder
        beneath.remove(root, name)
        for folder in ("objects/info", "refs"):
            beneath.make_folder(root, f"{name}/{folder}")
        beneath.write(root, f"{name}/HEAD", b"ref: refs/heads/none\n")
        beneath.write(root, f"{name}/config", _CONFIG)
        objects = os.fsencode(self.workdir / ".git" / "objects")
        beneath.write(root, f"{name}/objects/info/alternates", objects + b"\n")
        self._copy_index(root, f"{name}/index")
        return None

    @property
    def _folder(self) -> str:
        return self.workspace.comparison.relative_to(self.workspace.root).as_posix()

    def _copy_index(self, root: Path, name: str) -> None:
        """The index knows which files are tracked, and their times, so that unchanged files are not read."""
        file = open_below(self.workdir, ".git/index")
        if file is None:
            return
        with file:
            status = os.fstat(file.fileno())
            content = file.read(_MAX_INDEX_BYTES + 1)
        if len(content) <= _MAX_INDEX_BYTES:
            with beneath.create(root, name) as copy:
                copy.write(content)
                copy.flush()
                # Git compares the time of the index with those of the files.
                os.utime(copy.fileno(), ns=(status.st_mtime_ns, status.st_mtime_ns))

    async def start_tree(self) -> str | NoSummary:
        """The folder as it is now, as a tree."""
        printed = await self._run("")
        if isinstance(printed, NoSummary):
            return printed
        tree = printed.stdout.partition("\n")[0]
        return tree if _TREE.fullmatch(tree) else NoSummary.UNREADABLE

    async def changes_since(self, tree: str) -> Changes:
        printed = await self._run(tree)
        if isinstance(printed, NoSummary):
            return Changes(unavailable=printed)
        return read_changes(printed.stdout.splitlines()[1:])

    async def _run(self, tree: str) -> Printed | NoSummary:
        try:
            printed = await self._call(tree)
        except NotStarted:
            return NoSummary.UNREADABLE
        if printed.exit_code is None:
            return NoSummary.TOO_SLOW
        return printed if printed.exit_code == 0 else NoSummary.UNREADABLE

    async def _call(self, tree: str) -> Printed:
        git = shutil.which("git")
        if git is None or not self.workspace.comparison.is_dir():
            raise NotStarted("git, or its folder, is not there any more")
        # Git that was ended leaves a lock.
        beneath.remove(self.workspace.root, f"{self._folder}/index.lock")
        disk = min(self.resources.disk_bytes or MAX_OBJECT_BYTES, MAX_OBJECT_BYTES)
        return await call(
            self.starter,
            ("/bin/sh", "-c", _SCRIPT, "sh", git, tree),
            env=self._environment(),
            cwd=self.workspace.comparison,
            workdir=self.workdir,
            timeout_sec=MAX_SEC,
            mark=self.mark,
            resources=replace(self.resources, disk_bytes=disk),
        )

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's environment. Without a PATH, git finds no other git to run."""
        given = {**_SETTINGS, "core.excludesFile": f"{self.workdir}/.git/info/exclude"}
        settings = {f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(given)}
        settings |= {f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(given.values())}
        return {
            "PATH": "",
            "HOME": str(self.workspace.comparison),
            "LC_ALL": "C",
            "GIT_DIR": str(self.workspace.comparison),
            "GIT_WORK_TREE": str(self.workdir),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_COUNT": str(len(given)),
            **settings,
        }


def _is_folder(path: Path) -> bool:
    """A linked worktree has a file, which may lead anywhere."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


# What git prints.


def read_changes(lines: list[str]) -> Changes:
    """The output of `git diff-tree --raw --numstat`: first one line with a status for each file, then one with counts."""
    statuses: dict[str, ChangeStatus] = {}
    files: list[ChangedFile] = []
    for line in lines:
        if line.startswith(":"):
            about, _, quoted = line.partition("\t")
            statuses[quoted] = _STATUSES.get(about.rpartition(" ")[2], ChangeStatus.MODIFIED)
        elif (counted := line.split("\t", 2)) and len(counted) == 3:
            added, removed, quoted = counted
            files.append(
                ChangedFile(
                    path=_unquoted(quoted),
                    status=statuses.get(quoted, ChangeStatus.MODIFIED),
                    insertions=_count(added),
                    deletions=_count(removed),
                )
            )
    return Changes(
        files=tuple(files[:MAX_SUMMARIZED]),
        total=len(files),
        insertions=sum(each.insertions or 0 for each in files),
        deletions=sum(each.deletions or 0 for each in files),
    )


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _unquoted(name: str) -> str:
    """Git quotes a name with special characters as in C."""
    if not (name.startswith('"') and name.endswith('"') and len(name) > 1):
        return name

    def unescaped(found: re.Match[bytes]) -> bytes:
        octal = len(found[1]) == 3
        return bytes([int(found[1], 8) & 255]) if octal else _ESCAPES.get(found[1], found[1])

    return _ESCAPE.sub(unescaped, name[1:-1].encode()).decode(errors="replace")
