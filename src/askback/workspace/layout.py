"""The files of one run: the engine's working directory, its private home, and the output of every turn.

<run>/work/             the engine's working directory, unless the run works in a folder of the user
<run>/work/artifacts/   the run's files for the user
<run>/work/skill/       the skill package
<run>/env.pad           the key to the run's secret variables, which the store has sealed
<run>/package/          the skill package as it was uploaded for this run
<run>/work/inputs/      files that were given as input
<run>/home/             the engine's private HOME
<run>/snapshots/        the home before the current turn, from the second turn on; without sign-ins
<run>/workdir/          what is known of a user's folder that the engine works in: see `workdir_record.py`
<run>/tmp/              the engine's temporary files, and the socket of its ask tool
<run>/turn.lock         held while a process of the run is alive
<run>/database          the id of the database that has the run, once it is known to have it
<run>/turns/            prompt and raw output of every turn
<run>/versions/         the artifacts at the end of every turn; see `versions.py`
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypedDict, Unpack

from askback.background.pools import Checkpoint, unchecked
from askback.core.errors import Unavailable
from askback.core.runs import InheritedFiles, Workdir
from askback.fs import beneath
from askback.fs.atomic import write_private
from askback.fs.beneath import remove_tree
from askback.fs.copies import TreeCopy, copy_plain_tree
from askback.fs.paths import open_below, read_below
from askback.fs.walk import matching
from askback.workspace import snapshots
from askback.workspace.artifacts import ARTIFACTS_DIR, Artifact, artifacts_in
from askback.workspace.manifests import ForkPoints
from askback.workspace.run_objects import RunObjects
from askback.workspace.sign_ins import remove_copies

SKILL_DIR = "skill"
INPUTS_DIR = "inputs"
_DATABASE = "database"
_MAX_REWRITTEN = 128_000_000


class Rules(TypedDict, total=False):
    """What is the same for all runs of a machine."""

    sign_ins: Sequence[str]
    """The sign-in files of all engines, relative to the home."""
    fork_points: int
    database: str | None
    """The id of a database that other machines use as well; None if no other machine deletes its runs."""
    home_bytes: int
    """The size of a home that is saved; 0: any."""


class Workspace:
    def __init__(self, root: Path, objects: RunObjects | None = None, **rules: Unpack[Rules]) -> None:
        """`objects`: what every machine has of the run; None if all of it is here."""
        self.root = root
        self._database = rules.get("database")
        self._home_bytes = rules.get("home_bytes", 0)
        self.objects = objects
        self.most_fork_points = rules.get("fork_points", 0)
        self.sign_ins = rules.get("sign_ins", ())
        self.cwd = root / "work"
        self.home = root / "home"
        self.tmp = root / "tmp"
        self.turns = root / "turns"
        self.lock_path = root / "turn.lock"
        self.package = root / "package"
        self.comparison = root / "workdir" / "git"
        """The start of a run in a folder of the user, as git sees it."""
        self._pad = root / "env.pad"
        self.snapshots = root / "snapshots"
        self.storing = root / "storing"
        """Copies of large artifacts while they are stored. A program that was killed leaves them."""

    def engine_cwd(self, workdir: Workdir | None) -> Path:
        """Where the engine of the run works."""
        return self.cwd if workdir is None else Path(workdir.path)

    def prepare(self, package: Path) -> None:
        """Create what every turn needs. Idempotent."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.record_database()
        if self._make_new_folders():
            self._copy_skill(package)
            return
        for folder in (self.artifacts_path, self.tmp, self.turns):
            beneath.make_folder(self.root, self._below(folder))
        if not beneath.has_folder(self.root, self._below(self.cwd / SKILL_DIR)):
            self._copy_skill(package)

    def record_database(self) -> None:
        """Record that the database has the run. If it has the run no more, the run was deleted, and its folder must go."""
        if self._database is not None and not self.has_our_database:
            # It may be removed at this moment.
            with suppress(FileNotFoundError):
                (self.root / _DATABASE).write_text(self._database)

    @property
    def has_our_database(self) -> bool:
        """Whether the database of this program was known to have the run."""
        try:
            return (self.root / _DATABASE).read_text() == self._database
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _make_new_folders(self) -> bool:
        """Create the folders of a new run, in which nothing can be in the way. False if the run has some already."""
        try:
            self.cwd.mkdir(mode=0o700)
        except FileExistsError:
            return False
        for folder in (self.artifacts_path, self.tmp, self.turns):
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        return True

    def _copy_skill(self, package: Path) -> None:
        # Copied beside the engine's folders, where a sandboxed engine cannot write, then moved in as a whole.
        partial = self.root / f"{SKILL_DIR}.partial"
        if os.path.lexists(partial):
            remove_tree(partial)
        copy_plain_tree(package, partial)
        beneath.move_in(partial, self.root, self._below(self.cwd / SKILL_DIR))

    def _below(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def begin_first_turn(self, home_template: Path | None) -> None:
        """Create a new home. A restart of the first turn does the same: there is no session to lose yet."""
        if os.path.lexists(self.home):
            beneath.remove(self.root, self.home.name)
        if home_template is None:
            self.home.mkdir(mode=0o700)
        else:
            shutil.copytree(home_template, self.home, symlinks=True)

    def begin_later_turn(
        self, attempt_number: int, *, answers: bool = False, checkpoint: Checkpoint = unchecked
    ) -> None:
        """Save the home, or restore it if it was saved for this turn before. `answers`: the turn answers a question.

        This and the other ways to save the home raise `TreeTooLarge`.
        """
        # Every turn gets a new copy of the sign-in, so none is saved. Snapshots of old versions may contain one.
        self.remove_sign_ins()
        points, saving = self._saving(answers=answers, checkpoint=checkpoint)
        snapshots.begin_turn(self.home, self.snapshots, attempt_number, points, **saving)
        self.remove_sign_ins()

    def save_home_early(self, attempt_number: int, checkpoint: Checkpoint = unchecked) -> None:
        """Save the home for the turn that will answer the question that the run asks now."""
        self.remove_sign_ins()
        points, saving = self._saving(answers=True, checkpoint=checkpoint)
        snapshots.save_early(self.home, self.snapshots, attempt_number, points, **saving)

    def begin_live_turn(
        self, attempt_number: int, *, answers: bool = False, checkpoint: Checkpoint = unchecked
    ) -> None:
        """As `begin_later_turn`, for a process that is alive. Raises `snapshots.HomeChangedWhileSaving` if it writes meanwhile."""
        points, saving = self._saving(answers=answers, checkpoint=checkpoint)
        snapshots.begin_live_turn(self.home, self.snapshots, attempt_number, points, **saving)

    def save_between_turns(self, checkpoint: Checkpoint = unchecked) -> None:
        """Save the home while its run waits, in advance: the next turn then only saves what has changed since."""
        snapshots.save_between_turns(self.home, self.snapshots, **self._saving(answers=False, checkpoint=checkpoint)[1])

    def _saving(self, *, answers: bool, checkpoint: Checkpoint) -> tuple[int, snapshots.Saving]:
        """How many fork points stay, and how the home is saved."""
        beneath.make_folder(self.root, self.snapshots.name)
        # The session of a run with secret variables is never continued by another run.
        points = self.most_fork_points if answers and not self._pad.exists() else 0
        return points, {"max_bytes": self._home_bytes, "checkpoint": checkpoint, "leave_out": self.sign_ins}

    def discard_snapshot(self) -> None:
        """The home may have changed while it was saved: the next turn saves it again. Fork points stay."""
        snapshots.end(self.snapshots)

    def remove_sign_ins(self) -> None:
        """Remove the copies that an interrupted turn left. All processes of its engine must have ended."""
        remove_copies(self.home, self.sign_ins)

    def close(self) -> None:
        """The run is over: no turn restarts, and none needs a sign-in. Fork points stay."""
        self.remove_sign_ins()
        self.drop_env()
        beneath.remove(self.root, self._below(self.comparison))
        beneath.remove(self.root, self.storing.name)
        if beneath.has_folder(self.root, self._below(self.snapshots / "points")):
            snapshots.end(self.snapshots)
        else:
            beneath.remove(self.root, self._below(self.snapshots))

    @property
    def started(self) -> bool:
        """Whether a turn has ever started here, and the files have not been removed."""
        return beneath.has_folder(self.root, self._below(self.turns)) if self.root.is_dir() else False

    def copy_files(self, source: Workspace, files: InheritedFiles, copying: TreeCopy, config: Collection[str]) -> None:
        """Copy the files of another run in which nothing writes. What configures an engine is left out."""
        if files is InheritedFiles.ARTIFACTS:
            artifacts = self._below(self.artifacts_path)
            copying.copy(source.root, artifacts, artifacts, links=False)
        else:
            work = self._below(self.cwd)
            copying.copy(source.root, work, work, leave_out={SKILL_DIR, *config})

    def copy_home(self, source: Workspace, copying: TreeCopy) -> None:
        """Copy the home of another run, without sign-ins. No process of that run is alive."""
        copying.copy(source.root, self.home.name, self.home.name)
        self.remove_sign_ins()

    def copy_fork_point(self, source: Workspace, attempt_number: int, copying: TreeCopy) -> None:
        """Copy the home of another run as it was before that turn. It contains no sign-ins."""
        ForkPoints(source.snapshots).copy(attempt_number, copying, self.home.name)

    def fork_points(self) -> set[int]:
        """The turns before which the home was saved for forks."""
        return ForkPoints.turns(self.snapshots)

    def rename_in_home(self, old: str, new: str) -> None:
        """Rename a folder of a home that no process uses yet, if it exists."""
        if old != new and beneath.has_folder(self.home, old):
            beneath.move_in(self.home / old, self.home, new)

    def remove_in_home(self, pattern: str) -> None:
        for name in matching(self.home, pattern):
            beneath.remove(self.home, name)

    def rewrite_in_home(self, pattern: str, old: str, new: str) -> None:
        """Replace a text in the files that match a pattern, in a home that no process uses yet."""
        for name in matching(self.home, pattern):
            content = read_below(self.home, name, _MAX_REWRITTEN)
            if content is not None and len(content) <= _MAX_REWRITTEN and old.encode() in content:
                beneath.write(self.home, name, content.replace(old.encode(), new.encode()), durable=True)

    def present_in_home(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of these paths that are regular files in the home."""
        return tuple(name for name in names if beneath.has_file(self.root, f"{self.home.name}/{name}"))

    def seal_env(self, env: Mapping[str, str]) -> str:
        """The variables in a form that is useless without the pad, a file of this run. The pad is used only once."""
        plain = json.dumps(dict(env)).encode()
        pad = secrets.token_bytes(len(plain))
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self._pad, pad)
        return bytes(each ^ key for each, key in zip(plain, pad, strict=True)).hex()

    def read_pad(self) -> bytes:
        """Empty if there is none, or if it is in the file store."""
        with suppress(FileNotFoundError):
            return self._pad.read_bytes()
        return b""

    def empty_pad(self) -> None:
        """The pad is elsewhere. That there is one is still noted: the run has secrets."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self._pad, b"")

    def open_env(self, sealed: str, pad: bytes | None = None) -> dict[str, str]:
        """The variables of `seal_env`. Raises `OSError` if the pad is gone."""
        pad = self._pad.read_bytes() if pad is None else pad
        opened: dict[str, str] = json.loads(
            bytes(each ^ key for each, key in zip(bytes.fromhex(sealed), pad, strict=True))
        )
        return opened

    def drop_env(self) -> None:
        """The run is over: nobody can open its variables any more."""
        self._pad.unlink(missing_ok=True)

    def stage_input(self, key: str, source: Path) -> str:
        """Copy an input file into the run. Returns its path as the engine sees it.

        A resident process is alive at this moment, and may put links in the way.
        """
        name = f"{INPUTS_DIR}/{key}/{source.name}"
        self._put_input(source, name)
        if self.objects is not None:
            self.objects.add_input(name, source)
        return name

    def _put_input(self, source: Path, name: str) -> None:
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        beneath.copy(source, self.root, self._below(self.cwd / name))

    def fetch_inputs(self) -> None:
        """Fetch the input files that were staged on other machines."""
        if self.objects is not None:
            self.objects.fetch_inputs(
                lambda name: beneath.has_file(self.root, self._below(self.cwd / name)), self._put_input
            )

    def drop_input(self, key: str, name: str) -> None:
        """Remove a staged file that is not used after all."""
        with suppress(OSError):
            beneath.remove(self.root, self._below(self.cwd / INPUTS_DIR / key))
        if self.objects is not None:
            with suppress(Unavailable):
                self.objects.drop_inputs([f"{INPUTS_DIR}/{key}/{name}"])

    def write_home(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            beneath.write(self.root, self._below(self.home / name), content)

    def write_work(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            beneath.write(self.root, self._below(self.cwd / name), content)

    def prompt_path(self, turn_name: str) -> Path:
        return self.turns / f"{turn_name}.prompt"

    def write_prompt(self, turn_name: str, prompt: bytes) -> None:
        self.prompt_path(turn_name).write_bytes(prompt)

    def open_raw(self, turn_name: str, stream: str) -> BinaryIO:
        return open(self.turns / f"{turn_name}.{stream}", "wb")

    def raw_output(self, turn_name: str) -> list[str]:
        """The paths of prompt and output of a turn in the run's folder. `turn_name` may have wildcards."""
        return matching(self.root, f"{self.turns.name}/{turn_name}.*")

    @property
    def artifacts_path(self) -> Path:
        return self.cwd / ARTIFACTS_DIR

    def artifacts(self, checkpoint: Checkpoint = unchecked) -> Iterator[Artifact]:
        """Regular files only: links are neither listed nor followed. Names that are not valid text are skipped."""
        return artifacts_in(self.cwd, checkpoint)

    def open_artifact(self, path: str) -> BinaryIO | None:
        # From the run's folder: the engine could have replaced its working directory by a link.
        return open_below(self.root, f"{self._below(self.artifacts_path)}/{path}")

    def open_work(self, path: str) -> BinaryIO | None:
        """Open a file of the working directory."""
        return open_below(self.root, f"{self._below(self.cwd)}/{path}")

    def rename_artifact(self, old: str, new: str) -> None:
        """Give an artifact another path. An engine that is alive may put links in the way."""
        artifacts = self._below(self.artifacts_path)
        beneath.link_file(self.root, f"{artifacts}/{old}", f"{artifacts}/{new}")
        beneath.remove(self.root, f"{artifacts}/{old}")

    def add_artifact(self, path: str) -> None:
        """Put a file of the working directory under `artifacts/`, at the same path. Its old name stays."""
        work = self._below(self.cwd)
        beneath.link_file(self.root, f"{work}/{path}", f"{work}/{ARTIFACTS_DIR}/{path}")
