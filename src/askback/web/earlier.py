"""What an earlier run was given, as far as a form can be filled with it: no files, no secrets, nothing it has no place for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from askback.core.runs import Run
from askback.process.workspace import INPUTS_DIR
from askback.service import Service
from askback.skills.package import SkillPackage

Schema = Mapping[str, Any]
_DEEPEST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The run, what of it goes into the form, and the names of what does not."""

    run: Run
    given: Mapping[str, Any]
    left_out: tuple[str, ...]


async def earlier(service: Service, run_id: str, package: SkillPackage) -> Earlier:
    run, request = await service.get(run_id), await service.request(run_id)
    texts = {name: value for name, value in request.input.items() if not _is_file(name, value)}
    input_ = _fitting(texts, package.input_schema)
    # The form has no part for parameters that the skill does not name.
    parameter = _fitting(request.parameter, package.parameter_schema or {"properties": {}}, every=True)
    left_out = [*(request.input.keys() - input_.keys()), *(request.parameter.keys() - parameter.keys())]
    given = {"input": input_, "parameter": parameter, "options": asdict(run.options)}
    return Earlier(run=run, given=given, left_out=tuple(sorted(left_out)))


def _is_file(name: str, value: Any) -> bool:
    """A file that was given stands in the request by where it was put."""
    return isinstance(value, str) and value.startswith(f"{INPUTS_DIR}/{name}/")


def _fitting(values: Mapping[str, Any], schema: Schema | None, *, every: bool = False) -> dict[str, Any]:
    """The values that the form has a field for, without secrets. A schema without fields takes what one likes."""
    fields = (schema or {}).get("properties") or {}
    if not fields and not every:
        return dict(values)
    return {name: each for name, each in values.items() if name in fields and not is_secret(each, fields[name], schema)}


def is_secret(value: Any, schema: Any, root: Any, depth: int = 0) -> bool:
    """Whether the value is one that is not shown, or holds one."""
    if depth > _DEEPEST:
        return True
    for form in _forms(schema, root):
        if form.get("format") == "password" or form.get("writeOnly") is True:
            return True
        if any(is_secret(each, part, root, depth + 1) for each, part in _parts(value, form)):
            return True
    return False


def _parts(value: Any, form: Schema) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        fields = form.get("properties") or {}
        yield from ((each, fields.get(name, form.get("additionalProperties"))) for name, each in value.items())
    elif isinstance(value, list):
        yield from ((each, form.get("items")) for each in value)


def _forms(schema: Any, root: Any, depth: int = 0) -> Iterator[Schema]:
    """The schema, what it refers to, and every one that may count beside it."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return
    yield schema
    if isinstance(schema.get("$ref"), str):
        yield from _forms(_look_up(schema["$ref"], root), root, depth + 1)
    for word in ("allOf", "anyOf", "oneOf"):
        for each in schema.get(word) or ():
            yield from _forms(each, root, depth + 1)


def _look_up(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found
