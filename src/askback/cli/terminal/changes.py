"""What a run has changed in a folder of the user, as text. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator

from askback.core.changes import ChangeStatus, NoSummary
from askback.text.formatting import count, one_line, printable
from askback.wire.artifacts import Changes

_WHY = {
    NoSummary.NOT_A_REPOSITORY: "it is not the top folder of a git repository, or it is a linked worktree",
    NoSummary.GIT_MISSING: "git is not installed",
    NoSummary.TOO_SLOW: "git could not compare the folder in time",
    NoSummary.UNREADABLE: "git could not read the repository",
    NoSummary.NOT_STARTED: "the run never started a turn there",
}
_MAX_SHOWN = 30
_MAX_PATH = 80


def changes_lines(workdir: str | None, found: Changes | None) -> Iterator[str]:
    """One line for each file, and one for all. Nothing if the run has no workdir."""
    if workdir is None or found is None:
        return
    place = printable(workdir)
    if found.unavailable is not None:
        yield f"no summary of the changes in {place}: {_WHY[found.unavailable]}"
        return
    if not found.total:
        yield f"nothing has changed in {place}"
        return
    yield f"changed in {place}:"
    paths = [one_line(each.path, _MAX_PATH) for each in found.files[:_MAX_SHOWN]]
    width = max(map(len, paths))
    for path, each in zip(paths, found.files, strict=False):
        lines = "binary" if each.insertions is None else f"+{each.insertions} -{each.deletions}"
        status = "" if each.status is ChangeStatus.MODIFIED else f" ({each.status})"
        yield f"  {path:<{width}} | {lines}{status}"
    if found.total > len(paths):
        yield f"  … and {found.total - len(paths):,} more"
    yield f"  {count(found.total, 'file')} changed, +{found.insertions} -{found.deletions}"
