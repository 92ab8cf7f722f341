"""What a run has changed in the user's folder, as `git diff --stat` would say it, without trusting the repository.

A repository can name programs in its configuration that git runs even for a plain diff: filters, external diffs, a file
system monitor, hooks. The engine can write that configuration. So git never reads it: it works with a separate git folder,
which borrows only the objects and the index of the repository. No submodule is entered. In the user's `.git`, nothing
changes but the times of objects. The work is done in the sandbox of the engines, if there is one, and has limits on its
time and its output.

The folder is recorded as a tree when the run starts, with uncommitted and untracked files, and again after each turn; the
summary compares the two. It covers everything in the folder that the repository does not ignore, except `artifacts/`.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from askback.core.changes import ChangedFile, Changes, ChangeStatus, NoSummary
from askback.fs import beneath
from askback.process.child import NotStarted, Printed, Starter, call
from askback.process.isolation import ResourceLimits
from askback.workspace.artifacts import open_below
from askback.workspace.layout import ARTIFACTS_DIR, Workspace

MAX_SEC = 20.0
"""How long the start and the end of a turn wait for git."""
MAX_LISTED = 200
"""Files that a summary lists."""
MAX_OBJECT_BYTES = 1 << 30
"""Bytes of uncommitted content that are kept for the comparison."""
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

_STATUSES = {"A": ChangeStatus.ADDED, "D": ChangeStatus.DELETED}


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
        files=tuple(files[:MAX_LISTED]),
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
    raw = _ESCAPE.sub(lambda found: _unescaped(found[1]), name[1:-1].encode())
    return raw.decode(errors="replace")


def _unescaped(escape: bytes) -> bytes:
    return bytes([int(escape, 8) & 255]) if len(escape) == 3 else _ESCAPES.get(escape, escape)
