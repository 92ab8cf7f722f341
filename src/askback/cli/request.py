"""What `askback run` is asked to do, from the words of its command line to a submission that the service checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from askback.cli import options
from askback.core.errors import Invalid, RefusalCode
from askback.core.interactions import Json
from askback.service import Submission
from askback.skills.package import SkillPackage
from askback.skills.schemas import file_inputs, typed_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The command line as it was typed."""

    skill: str
    engine: str | None
    mode: str | None
    inputs: Sequence[str]
    params: Sequence[str]
    run_options: Sequence[str]


def submission(words: Words, package: SkillPackage, *, may_ask: bool, most_bytes: int) -> Submission:
    """Values as the skill's schemas want them. `may_ask`: somebody is there, or has answered in advance."""
    mode = words.mode
    if mode is None and may_ask and "interactive" in package.execution_modes:
        mode = "interactive"
    given = options.pairs(words.inputs, "--input")
    files = _files(package, given)
    values = {key: value for key, value in given.items() if key not in files}
    params = options.pairs(words.params, "--param")
    return Submission(
        skill=words.skill,
        engine=words.engine,
        mode=mode,
        input=_typed(package.input_schema, values, "--input", most_bytes),
        parameter=_typed(package.parameter_schema, params, "--param", most_bytes),
        options=options.typed_options(options.pairs(words.run_options, "--option")),
        files=files,
    )


def _files(package: SkillPackage, given: Mapping[str, str]) -> dict[str, Path]:
    """The inputs that the skill wants as files."""
    wanted = [key for key in given if key in file_inputs(package)]
    files = {key: options.path_of(given[key][1:]) for key in wanted if given[key].startswith("@")}
    problems = [f"input.{key}: is to be a file; write --input {key}=@FILE" for key in wanted if key not in files]
    problems += [f"input.{key}: there is no file {path}" for key, path in files.items() if not options.is_file(path)]
    if problems:
        raise Invalid(RefusalCode.INPUT_INVALID, f"skill '{package.id}' cannot be run like this", problems)
    return files


def _typed(schema: dict[str, Json] | None, given: Mapping[str, str], option: str, most_bytes: int) -> dict[str, Json]:
    """Texts as the schema wants them: a number where it says number. Without a schema a text stays a text."""
    properties = (schema or {}).get("properties", {})
    texts = {key: _text(value, f"{option} {key}", most_bytes) for key, value in given.items()}
    return {key: typed_value(text, properties.get(key)) for key, text in texts.items()}


def _text(value: str, option: str, most_bytes: int) -> str:
    if value.startswith("@@"):
        return value[1:]
    return options.read_file(value[1:], option, most_bytes) if value.startswith("@") else value
