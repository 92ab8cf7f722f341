"""A skill package: a folder with a `SKILL.md`, read and validated as a whole.

One pass reports all problems, each with a fix. A plain Agent Skills folder is a package too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

from askback.core.errors import Invalid, RefusalCode, raise_if_temporary
from askback.skills.diagnostics import Problem, error, errors_of, format_path, in_one_line, short, warning
from askback.skills.files import MAX_JSON_BYTES, Entry, PackageFile, contents_of, list_files, read_bytes, read_json
from askback.skills.front_matter import FILE, MAX_SKILL_BYTES, SkillText, read_skill_text
from askback.skills.json_schema import Checker, SchemaInvalid, compile_schema
from askback.skills.manifest import PLACES, SCHEMA_KEYS, Manifest, read_manifest
from askback.skills.schema_files import (
    default_problems,
    file_keywords,
    input_keywords,
    marks_files,
    source_problems,
    type_problems,
    with_default_files,
    with_files_as_paths,
)
from askback.skills.skill_runner import INPUT, OUTPUT, FieldUse, schema_uses


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillPackage(Manifest):
    """What a run needs to know about its skill: the manifest, the text and the files. `digest` identifies the exact content."""

    id: str
    name: str
    description: str
    body: str
    input_schema: dict[str, Any] | None
    parameter_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    folder: Path
    digest: str
    files: tuple[PackageFile, ...] = field(default=(), repr=False)
    names_files: bool = False
    """Whether its output names files, which must exist."""
    checkers: Mapping[str, Checker] = field(default_factory=dict, compare=False, repr=False)
    """The compiled schemas that the package has, by `input`, `parameter` and `output`."""

    def allows_engine(self, name: str) -> bool:
        return (self.engines is None or name in self.engines) and name not in self.unsupported_engines

    def checks_quickly(self) -> bool:
        """Whether each of its schemas validates a small value quickly."""
        return all(checker.is_quick for checker in self.checkers.values())

    def moved(self, folder: Path) -> SkillPackage:
        """The same content in another folder."""
        return replace(self, folder=folder)


def check_package(folder: Path, config_names: frozenset[str] = frozenset()) -> tuple[Problem, ...]:
    """All problems of a package. It can be run if none has the severity `error`."""
    return _read(folder, config_names)[1]


def read_package(folder: Path, title: str | None = None, config_names: frozenset[str] = frozenset()) -> SkillPackage:
    """Read a package. Raises `Invalid` with all its errors; `title` is its name in the message."""
    package, problems = _read(folder, config_names)
    errors = errors_of(problems)
    if package is None or errors:
        message = f"{title or folder} is not a valid skill: {in_one_line(errors)}"
        raise Invalid(RefusalCode.SKILL_INVALID, message, [str(problem) for problem in errors])
    return package


def _read(folder: Path, config_names: frozenset[str]) -> tuple[SkillPackage | None, tuple[Problem, ...]]:
    try:
        return _Reading(folder.resolve(), config_names).read()
    except OSError as fault:
        raise_if_temporary(fault)
        where = _where(folder, fault.filename)
        return None, (error(where, f"cannot be read: {fault.strerror or fault}", "check the path and its permissions"),)


def _where(folder: Path, filename: Any) -> str:
    """The path of a file in its package. Problems are shown to clients, who do not learn where the package is."""
    if isinstance(filename, str):
        with suppress(ValueError):
            path = Path(filename).relative_to(folder.resolve()).as_posix()
            return folder.name if path == "." else path
    return folder.name


class _Reading:
    """Reads one folder and collects its problems."""

    def __init__(self, folder: Path, config_names: frozenset[str]) -> None:
        self._folder = folder
        self._config_names = config_names
        self._problems: list[Problem] = []
        self._files: dict[str, Entry] = {}
        self._documents: dict[str, dict[str, Any]] = {}
        self._checkers: dict[str, Checker] = {}
        self._uses: list[FieldUse] = []
        """Of the keywords for files in the schemas."""

    def read(self) -> tuple[SkillPackage | None, tuple[Problem, ...]]:
        if not self._folder.is_dir():
            return None, (error(self._folder.name, "is not a folder", "name the folder that contains SKILL.md"),)
        names = {path.name for path in self._folder.iterdir()}
        if FILE not in names:
            similar = next((name for name in sorted(names) if name.casefold() == FILE.casefold()), None)
            write = "write it: front matter with name and description, then instructions"
            return None, (error(FILE, "is missing", f"rename {similar} to {FILE}" if similar else write),)
        entries, problems = list_files(self._folder, self._config_names)
        self._problems.extend(problems)
        self._files = {entry.name: entry for entry in entries}
        text = self._skill_text()
        manifest = self._manifest(text)
        self._read_schemas(manifest)
        if errors_of(self._problems):
            return None, tuple(self._problems)
        return self._package(text, manifest, entries), tuple(self._problems)

    def _package(self, text: SkillText, manifest: Manifest, entries: tuple[Entry, ...]) -> SkillPackage:
        files, digest = contents_of(entries)
        validation = manifest.ask_user_validation
        defaults = {} if validation is None else {"ask_user_validation": validation}
        own: dict[str, Any] = {each.name: getattr(manifest, each.name) for each in fields(Manifest)}
        own |= {"id": manifest.id or text.name, "options": {**defaults, **manifest.options}}
        own["field_uses"] = (*manifest.field_uses, *self._uses) if manifest.for_skill_runner else ()
        return SkillPackage(
            **own,
            name=text.name,
            description=text.description,
            body=text.body,
            input_schema=self._documents.get("input"),
            parameter_schema=self._documents.get("parameter"),
            output_schema=self._documents.get("output"),
            folder=self._folder,
            digest=digest,
            files=files,
            names_files=marks_files(self._documents.get("output")),
            checkers=self._checkers,
        )

    def _skill_text(self) -> SkillText:
        empty = SkillText(name="", description="", body="")
        if FILE not in self._files:
            if not any(problem.where == FILE for problem in self._problems):
                self._problems.append(error(FILE, "is not a file", "write a file with this name"))
            return empty
        content = read_bytes(self._files[FILE].path, MAX_SKILL_BYTES)
        if len(content) > MAX_SKILL_BYTES:
            self._problems.append(error(FILE, "is larger than 1 MB", "move parts of it into references/"))
            return empty
        text, problems = read_skill_text(content, self._folder.name)
        self._problems.extend(problems)
        return text

    def _json(self, name: str) -> tuple[Any, bool]:
        """The document, and whether it could be parsed."""
        document, problems = read_json(read_bytes(self._files[name].path, MAX_JSON_BYTES), name)
        self._problems.extend(problems)
        return document, not errors_of(problems)

    def _manifest(self, text: SkillText) -> Manifest:
        present = [place for place in PLACES if place in self._files]
        if not present:
            return Manifest()
        place, *others = present
        for other in others:
            self._problems.append(warning(other, f"is ignored, because there is {place}", "keep one of the two"))
        document, readable = self._json(place)
        if not readable:
            return Manifest()
        manifest, problems = read_manifest(document, place)
        self._problems.extend(problems)
        if manifest.id and text.name and manifest.id != text.name:
            message = f"{short(manifest.id)} differs from the name {short(text.name)} in {FILE}"
            self._problems.append(warning(f"{place}: id", message, "give both the same name"))
        for key in SCHEMA_KEYS:
            if key in manifest.schemas:
                self._check_place(manifest.schemas[key], f"{place}: schemas.{key}", f"assets/{key}.schema.json")
        return manifest

    def _check_place(self, named: str, where: str, default: str) -> None:
        place = PurePosixPath(named)
        if place.is_absolute() or ".." in place.parts or "\\" in named:
            self._problems.append(error(where, f"{short(named)} is outside the package", f"use {default}"))
        elif str(place) not in self._files:
            message = f"there is no file {short(named)} in the package"
            self._problems.append(error(where, message, "write the schema there, or remove this line"))

    def _read_schemas(self, manifest: Manifest) -> None:
        for key in SCHEMA_KEYS:
            place = str(PurePosixPath(manifest.schemas.get(key, f"assets/{key}.schema.json")))
            if place not in self._files:
                continue
            document, readable = self._json(place)
            if not readable:
                continue
            schema, problems = _schema(key, place, document, files_by_default=manifest.for_skill_runner)
            self._problems.extend(problems)
            if schema is not None:
                self._documents[key], self._checkers[key] = schema
            if key == "output":
                self._uses += schema_uses(OUTPUT, file_keywords(document))
            elif key == "input":
                self._uses += schema_uses(INPUT, input_keywords(document, self._documents.get(key)))


def _schema(
    key: str, place: str, document: Any, *, files_by_default: bool
) -> tuple[tuple[dict[str, Any], Checker] | None, tuple[Problem, ...]]:
    """The schema with its checker, unless it has errors."""
    if not isinstance(document, dict):
        return None, (error(place, "is not an object", "write a JSON Schema"),)
    try:
        checker = compile_schema(document, place)
    except SchemaInvalid as invalid:
        # The file, then the path in it.
        inside = (format_path("", each.path[1:]).removeprefix(".") for each in invalid.problems)
        places = (f"{place}: {path}" if path else place for path in inside)
        fix = "see json-schema.org for the allowed values"
        return None, tuple(error(at, each.message, fix) for at, each in zip(places, invalid.problems, strict=True))
    if key == "output":
        return (document, checker), type_problems(place, document)
    types = document.get("type", "object")
    if "object" not in (types if isinstance(types, list) else [types]):
        return None, (error(f"{place}: type", f"{key} must be an object", 'write "type": "object"'),)
    if key == "parameter":
        return (document, checker), source_problems(place, document)
    problems = source_problems(place, document)
    if files_by_default:
        problems += default_problems(place, document)
    marked = with_default_files(document, by_default=files_by_default)
    paths = with_files_as_paths(marked)
    return (marked, checker if paths is document else compile_schema(paths, place)), problems
