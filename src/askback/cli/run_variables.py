"""The secret variables of a run on the command line: `--env NAME`, `--env NAME=VALUE` and `--env-file FILE`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from askback.cli import options
from askback.core.errors import Invalid, RefusalCode

_MAX_FILE_BYTES = 4_000_000


def run_variables(words: Sequence[str], files: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by name. Those of `--env` override those of files, and later files earlier ones.

    Problems name the variable or the line, never a value.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    for file in files:
        for place, line in _lines(options.read_file(file, "--env-file", _MAX_FILE_BYTES)):
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


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Every line with its number, without empty lines and comments."""
    for place, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield place, line
