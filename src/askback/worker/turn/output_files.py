"""The files that an output names: whether they exist, and their places under `artifacts/`.

An engine may name any path. Only regular files below the working directory count, and no link is followed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from askback.core.errors import raise_if_temporary
from askback.core.interactions import Json
from askback.core.runs import Workdir
from askback.fs.paths import open_below
from askback.skills.diagnostics import format_path, short
from askback.skills.package import SkillPackage
from askback.skills.schema_files import FileSearch, NamedFile, TooLarge, with_names
from askback.text.json_text import refuse_constant
from askback.workspace.artifacts import ARTIFACTS_DIR
from askback.workspace.layout import Workspace

MAX_FILES = 1000
MAX_LOOKS = 10_000
"""How many files are looked for in one turn."""
_LOOKS_FOR_MANIFEST = 100
"""Reading a manifest costs as much as looking for this many files."""
MAX_MANIFEST_BYTES = 1_000_000
_MAX_PROBLEMS = 50
_OUTSIDE = "is not a path in the working directory; write the file under `artifacts/`, and name it from there"

Check = Callable[[Json], tuple[str, ...]]


class _Invalid(ValueError):
    """A file that the output names is not there, or is not what it should be."""


class OutputFiles:
    """The files of the outputs of one turn. The work for all of them is bounded."""

    def __init__(self, package: SkillPackage, workspace: Workspace, workdir: Workdir | None = None) -> None:
        self._schema = package.output_schema
        self._workspace = workspace
        self._workdir = workdir
        """A folder of the user, in which files stay where they are."""
        self._search = FileSearch(self._schema)
        self._looks_left = MAX_LOOKS

    def with_files(self, check: Check) -> Check:
        """The check of an output, and then of the files that it names."""
        return lambda output: check(output) or self.problems(output)

    def problems(self, output: Json) -> tuple[str, ...]:
        try:
            named = self._search.named_in(output)
        except TooLarge:
            return ("output: it is too large to look for the files that it names",)
        if len(named) > MAX_FILES:
            return (f"output: it names more than {MAX_FILES:,} files",)
        found = (problem for each in named for problem in self._problems_of(each))
        return tuple(itertools.islice(found, _MAX_PROBLEMS))

    def _problems_of(self, named: NamedFile) -> Iterator[str]:
        where = format_path("output", named.path)
        if not named.name.strip():
            if named.required:
                yield f"{where}: must name a file; write it under `artifacts/`"
            return
        try:
            path = self._found(named.name)
            for key, name in self._listed(path).items() if named.is_manifest else ():
                self._found_in(path, key, name)
        except _Invalid as invalid:
            yield f"{where}: {invalid}"

    def _found(self, name: str) -> str:
        """The path of an existing file from the working directory."""
        self._look(1)
        path = self._relative(name)
        file = self._open(path)
        if file is None:
            raise _Invalid(f"there is no file {short(name)}; write it, then send the result again")
        file.close()
        return path

    def _open(self, path: str) -> BinaryIO | None:
        if self._workdir is not None:
            return open_below(Path(self._workdir.path), path)
        return self._workspace.open_work(path)

    def _look(self, times: int) -> None:
        self._looks_left -= times
        if self._looks_left < 0:
            raise _Invalid("too many files are named in this turn")

    def _relative(self, name: str) -> str:
        path = PurePosixPath(name.strip())
        cwd = self._workspace.engine_cwd(self._workdir)
        for base in (cwd, cwd.resolve()) if path.is_absolute() else ():
            if path.is_relative_to(base.as_posix()):
                path = path.relative_to(base.as_posix())
                break
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise _Invalid(f"{short(name)} {_OUTSIDE}")
        return path.as_posix()

    def _found_in(self, manifest: str, key: str, name: Any) -> str:
        if not isinstance(name, str) or not name.strip():
            raise _Invalid(f"{short(manifest)} must be a JSON object of paths; {short(key)} is none")
        try:
            return self._found(name)
        except _Invalid as invalid:
            raise _Invalid(f"{short(key)} in {short(manifest)}: {invalid}") from None

    def _listed(self, manifest: str) -> Mapping[str, Any]:
        self._look(_LOOKS_FOR_MANIFEST)
        file = self._open(manifest)
        content = b""
        if file is not None:
            with file:
                content = file.read(MAX_MANIFEST_BYTES + 1)
        try:
            document = json.loads(content[: MAX_MANIFEST_BYTES + 1], parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or len(content) > MAX_MANIFEST_BYTES:
            raise _Invalid(f"{short(manifest)} must be a JSON object of paths, of at most 1 MB")
        if len(document) > MAX_FILES:
            raise _Invalid(f"{short(manifest)} lists more than {MAX_FILES:,} files")
        return document

    def collect(self, output: Json) -> tuple[Json, tuple[str, ...]]:
        """Put the files of a valid output under `artifacts/`. Returns the output with their paths there.

        A resident engine is alive at this moment, and may remove a file that was just found.
        """
        names: dict[tuple[str | int, ...], str] = {}
        self._looks_left = MAX_LOOKS
        for named in FileSearch(self._schema).named_in(output):
            if not named.name.strip():
                continue
            try:
                names[named.path] = self._collected(named)
            except (_Invalid, OSError) as fault:
                if isinstance(fault, OSError):
                    raise_if_temporary(fault)
                where = format_path("output", named.path)
                return output, (f"{where}: {short(named.name)} cannot be put under `artifacts/`; write it there",)
        return with_names(output, names), ()

    def _collected(self, named: NamedFile) -> str:
        path = self._relative(named.name)
        for key, name in self._listed(path).items() if named.is_manifest else ():
            self._add(self._found_in(path, key, name))
        return self._add(path)

    def _add(self, path: str) -> str:
        if self._workdir is not None or PurePosixPath(path).parts[0] == ARTIFACTS_DIR:
            return path
        self._workspace.add_artifact(path)
        return f"{ARTIFACTS_DIR}/{path}"
