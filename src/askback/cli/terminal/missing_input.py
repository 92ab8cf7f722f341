"""Required inputs that were not given: asked for on a terminal, else described in the error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from askback.cli import options, output
from askback.cli.terminal.fields import ask_fields
from askback.cli.terminal.prompt import Abandoned, discard_typed
from askback.runs.submission import Submission
from askback.skills.diagnostics import format_path
from askback.skills.field_values import FILE_PATH, describe, description
from askback.skills.package import SkillPackage
from askback.skills.validation import check_request, file_inputs
from askback.text.formatting import printable

_NEEDED = "a value is required (Ctrl-C: stop)"


async def ask_missing(wanted: Submission, package: SkillPackage) -> Submission:
    """The submission with the required inputs that it lacks. A request that is wrong otherwise is left to its check."""
    given = {**wanted.input, **{key: path.name for key, path in wanted.files.items()}}
    problems = check_request(package, given, wanted.parameter, wanted.files.keys())
    missing = [name for name in _fields(package) if _is_required(name) in problems]
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
    known = {_is_required(name): name for name in _fields(package)}
    return [f"{each}: {_description(package, known[each])}" if each in known else each for each in problems]


def _description(package: SkillPackage, name: str) -> str:
    value = "@FILE" if name in file_inputs(package) else "VALUE"
    return f"--input {printable(name)}={value}, {describe(_fields(package)[name])}"


def _fields(package: SkillPackage) -> dict[str, Any]:
    """The inputs that the schema describes."""
    properties = (package.input_schema or {}).get("properties", {})
    return {name: field for name, field in properties.items() if isinstance(field, Mapping)}


def _is_required(name: str) -> str:
    return f"{format_path('input', [name])}: is required"
