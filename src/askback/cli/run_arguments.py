"""The arguments of `askback run`: converted to the types of the skill's schemas, and asked for if they are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from askback.cli import options, output
from askback.cli.connection import system_user
from askback.cli.terminal.forms import ask_fields
from askback.cli.terminal.prompt import Abandoned, discard_typed
from askback.core.errors import FieldCode, FieldProblem, Invalid, RefusalCode
from askback.core.interactions import Json
from askback.fs.paths import is_kind
from askback.runs.submission import Submission
from askback.skills.field_values import FILE_PATH, describe, description
from askback.skills.package import SkillPackage
from askback.skills.validation import check_request, file_inputs, typed_value
from askback.text.formatting import printable

_NEEDED = "a value is required (Ctrl-C: stop)"
_MAX_FILE_BYTES = 4_000_000


def submission(
    package: SkillPackage,
    *,
    may_ask: bool,
    max_bytes: int,
    mode: str | None,
    inputs: Sequence[str],
    params: Sequence[str],
    run_options: Sequence[str],
    **other: Any,
) -> Submission:
    """Convert the values to the types of the skill's schemas. `may_ask`: there is a terminal, or an answer in advance."""
    if mode is None and may_ask and "interactive" in package.execution_modes:
        mode = "interactive"
    given = options.pairs(inputs, "--input")
    files = _files(package, given)
    values = {key: value for key, value in given.items() if key not in files}
    typed_options = {name: options.typed_option(word) for name, word in options.pairs(run_options, "--option").items()}
    return Submission(
        by=system_user(),
        mode=mode,
        input=_typed(package.input_schema, values, "--input", max_bytes),
        parameter=_typed(package.parameter_schema, options.pairs(params, "--param"), "--param", max_bytes),
        options=typed_options,
        files=files,
        **other,
    )


def _files(package: SkillPackage, given: Mapping[str, str]) -> dict[str, Path]:
    """The inputs that the schema declares as files."""
    wanted = [key for key in given if key in file_inputs(package)]
    files = {key: options.path_of(given[key][1:]) for key in wanted if given[key].startswith("@")}
    problems = [f"input.{key}: must be a file; write --input {key}=@FILE" for key in wanted if key not in files]
    absent = [(key, path) for key, path in files.items() if not is_kind(path, Path.is_file)]
    problems += [f"input.{key}: there is no file {path}" for key, path in absent]
    if problems:
        raise Invalid(RefusalCode.INPUT_INVALID, f"the input of skill '{package.id}' is invalid", problems)
    return files


def _typed(schema: dict[str, Json] | None, given: Mapping[str, str], option: str, max_bytes: int) -> dict[str, Json]:
    """Convert texts to the types of the schema. Without a schema they stay text."""
    properties = (schema or {}).get("properties", {})
    typed: dict[str, Json] = {}
    for key, value in given.items():
        if value.startswith("@@"):
            text = value[1:]
        else:
            is_file = value.startswith("@")
            text = options.read_file(value[1:], f"{option} {key}", max_bytes) if is_file else value
        typed[key] = typed_value(text, properties.get(key))
    return typed


def run_variables(words: Sequence[str], files: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by name; `--env` overrides files, and later files earlier ones. Problems never contain a value."""
    found: dict[str, str] = {}
    problems: list[str] = []
    for file in files:
        for place, line in enumerate(options.read_file(file, "--env-file", _MAX_FILE_BYTES).splitlines(), start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, equals, value = line.partition("=")
            if equals and name.strip():
                found[name.strip()] = value
            else:
                problems.append(f"--env-file {file}, line {place}: write it as NAME=VALUE")
    given: set[str] = set()
    for word in words:
        name, equals, value = word.partition("=")
        if name in given:
            problems.append(f"--env {name}: given more than once")
        given.add(name)
        if equals:
            found[name] = value
        elif name in environment:
            found[name] = environment[name]
        else:
            problems.append(f"--env {name}: there is no such variable here; export it, or use --env-file")
    if problems:
        raise Invalid(RefusalCode.INPUT_INVALID, "the variables of the run are invalid", problems)
    return found


async def ask_missing(wanted: Submission, package: SkillPackage) -> Submission:
    """The submission with the required inputs that it lacks. A request that is wrong otherwise is left to its check."""
    given = {**wanted.input, **{key: path.name for key, path in wanted.files.items()}}
    problems = check_request(package, given, wanted.parameter, wanted.files.keys())
    missing = [name for name in _fields(package) if any(_is_missing(each, name) for each in problems)]
    if not missing or len(missing) < len(problems):
        return wanted
    output.to_stderr(f"{printable(package.id)} needs input:")
    discard_typed()
    try:
        for name in missing:
            wanted = await _ask_one(wanted, package, name)
    except Abandoned:
        # The check reports what is still missing.
        pass
    return wanted


async def _ask_one(wanted: Submission, package: SkillPackage, name: str) -> Submission:
    if name not in file_inputs(package):
        return replace(wanted, input={**wanted.input, name: await _value(name, _fields(package)[name])})
    field = {"type": "string", "format": FILE_PATH, "description": description(_fields(package)[name])}
    while not is_kind(path := options.path_of(await _value(name, field)), Path.is_file):
        output.to_stderr(f"      there is no file {printable(str(path))}")
    return replace(wanted, files={**wanted.files, name: Path(path)})


async def _value(name: str, field: Mapping[str, Any]) -> Any:
    schema = {"properties": {name: field}, "required": [name]}
    # Nothing else settles it.
    answered = await ask_fields(schema, None, output.to_stderr, asyncio.Future, needed=_NEEDED)
    assert answered is not None
    return answered[name]


def described(problems: Sequence[str], package: SkillPackage) -> list[str]:
    """The problems, with what is known about each missing input and how to give it."""
    fields, found = _fields(package), []
    for each in problems:
        name = next((name for name in fields if _is_missing(each, name)), None)
        if name is None:
            found.append(each)
        else:
            value = "@FILE" if name in file_inputs(package) else "VALUE"
            found.append(f"{each}: --input {printable(name)}={value}, {describe(fields[name])}")
    return found


def _fields(package: SkillPackage) -> dict[str, Any]:
    properties = (package.input_schema or {}).get("properties", {})
    return {name: field for name, field in properties.items() if isinstance(field, Mapping)}


def _is_missing(problem: str, name: str) -> bool:
    """Whether the problem is that the input with this name was not given."""
    known = FieldProblem.of(problem)
    return known.code == FieldCode.REQUIRED and known.path == ("input", name)
