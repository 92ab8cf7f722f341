"""The arguments of `askback run`: converted to the types of the skill's schemas, and asked for if they are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from askback.cli import options, output
from askback.cli.connection import system_user
from askback.cli.terminal.forms import ask_fields
from askback.cli.terminal.prompt import Abandoned, discard_typed
from askback.core.errors import FieldCode, FieldProblem, Invalid, RefusalCode
from askback.core.interactions import Json
from askback.core.runs import Origin
from askback.runs.submission import Submission
from askback.skills.field_values import FILE_PATH, describe, description
from askback.skills.package import SkillPackage
from askback.skills.validation import check_request, file_inputs, typed_value
from askback.text.formatting import printable

_NEEDED = "a value is required (Ctrl-C: stop)"
_MAX_FILE_BYTES = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The values of the command line, unparsed."""

    skill: str
    engine: str | None
    mode: str | None
    inputs: Sequence[str]
    params: Sequence[str]
    run_options: Sequence[str]
    origin: Origin | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    workdir: str | None = None
    permissions: object = None
    labels: Mapping[str, str] | None = None


def submission(arguments: Arguments, package: SkillPackage, *, may_ask: bool, max_bytes: int) -> Submission:
    """Convert the values to the types of the skill's schemas. `may_ask`: there is a terminal, or an answer in advance."""
    mode = arguments.mode
    if mode is None and may_ask and "interactive" in package.execution_modes:
        mode = "interactive"
    given = options.pairs(arguments.inputs, "--input")
    files = _files(package, given)
    values = {key: value for key, value in given.items() if key not in files}
    params = options.pairs(arguments.params, "--param")
    return Submission(
        by=system_user(),
        skill=arguments.skill,
        engine=arguments.engine,
        mode=mode,
        input=_typed(package.input_schema, values, "--input", max_bytes),
        parameter=_typed(package.parameter_schema, params, "--param", max_bytes),
        options=options.typed_options(options.pairs(arguments.run_options, "--option")),
        files=files,
        env=arguments.env,
        origin=arguments.origin,
        workdir=arguments.workdir,
        permissions=arguments.permissions,
        labels=arguments.labels,
    )


def _files(package: SkillPackage, given: Mapping[str, str]) -> dict[str, Path]:
    """The inputs that the schema declares as files."""
    wanted = [key for key in given if key in file_inputs(package)]
    files = {key: options.path_of(given[key][1:]) for key in wanted if given[key].startswith("@")}
    problems = [f"input.{key}: must be a file; write --input {key}=@FILE" for key in wanted if key not in files]
    problems += [f"input.{key}: there is no file {path}" for key, path in files.items() if not options.is_file(path)]
    if problems:
        raise Invalid(RefusalCode.INPUT_INVALID, f"the input of skill '{package.id}' is invalid", problems)
    return files


def _typed(schema: dict[str, Json] | None, given: Mapping[str, str], option: str, max_bytes: int) -> dict[str, Json]:
    """Convert texts to the types of the schema. Without a schema they stay text."""
    properties = (schema or {}).get("properties", {})
    texts = {key: _text(value, f"{option} {key}", max_bytes) for key, value in given.items()}
    return {key: typed_value(text, properties.get(key)) for key, text in texts.items()}


def _text(value: str, option: str, max_bytes: int) -> str:
    if value.startswith("@@"):
        return value[1:]
    return options.read_file(value[1:], option, max_bytes) if value.startswith("@") else value


def run_variables(words: Sequence[str], files: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by name. Those of `--env` override those of files, and later files earlier ones.

    Problems name the variable or the line, never a value.
    """
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
    while not options.is_file(path := options.path_of(await _value(name, field))):
        output.to_stderr(f"      there is no file {printable(str(path))}")
    return replace(wanted, files={**wanted.files, name: Path(path)})


async def _value(name: str, field: Mapping[str, Any]) -> Any:
    schema = {"properties": {name: field}, "required": [name]}
    answered = await ask_fields(schema, None, output.to_stderr, _never, needed=_NEEDED)
    assert answered is not None, "nothing else settles it"
    return answered[name]


async def _never() -> None:
    await asyncio.Event().wait()


def described(problems: Sequence[str], package: SkillPackage) -> list[str]:
    """The problems, with what is known about each missing input and how to give it."""
    fields = _fields(package)
    found = [(each, next((name for name in fields if _is_missing(each, name)), None)) for each in problems]
    return [each if name is None else f"{each}: {_description(package, name)}" for each, name in found]


def _description(package: SkillPackage, name: str) -> str:
    value = "@FILE" if name in file_inputs(package) else "VALUE"
    return f"--input {printable(name)}={value}, {describe(_fields(package)[name])}"


def _fields(package: SkillPackage) -> dict[str, Any]:
    """The inputs that the schema describes."""
    properties = (package.input_schema or {}).get("properties", {})
    return {name: field for name, field in properties.items() if isinstance(field, Mapping)}


def _is_missing(problem: str, name: str) -> bool:
    """Whether the problem is that the input with this name was not given."""
    known = FieldProblem.of(problem)
    return known.code == FieldCode.REQUIRED and known.path == ("input", name)
