"""The pages for skills: the list, and one skill with its text and schemas."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.core.errors import NotFound, RefusalCode
from askback.core.runs import Run, RunState
from askback.runs.service import Service
from askback.skills.library import DEMO, SkillListing
from askback.store.pages import RunFilter
from askback.text.formatting import MAX_SEARCH_CHARACTERS, folded, has_all, words_in
from askback.text.json_text import indented
from askback.web.page_context import PageContext, rendered

INSTALLED = "installed"
_RECENT = 50


async def skills(context: PageContext, request: Request) -> Response:
    found = await listed(context.service)
    wanted = request.query_params.get("q", "")[:MAX_SEARCH_CHARACTERS].strip()
    fitting = await context.service.pools.skills.run(matching, found, wanted)
    return context.show(request, "skills.html", skills=fitting, wanted=wanted, any=bool(found))


async def skill(context: PageContext, request: Request) -> Response:
    listing = await find(context.service, request.path_params["skill_id"])
    package = listing.package
    if package is None:
        return context.show(request, "skill.html", skill=listing, text="", schemas=[], past=None)
    schemas = {"input": package.input_schema, "parameter": package.parameter_schema, "output": package.output_schema}
    pool = context.service.pools.skills
    shown = await pool.run(
        lambda: [(name, rows(schema), indented(schema)) for name, schema in schemas.items() if schema is not None]
    )
    text = await pool.run(rendered, package.body)
    recent = await context.service.store.list_runs(RunFilter(skill=listing.id), limit=_RECENT)
    return context.show(request, "skill.html", skill=listing, text=text, schemas=shown, past=past(recent.items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The latest runs of a skill: the last one, and how many of those that ended on their own succeeded."""

    last: Run
    succeeded: int
    ended: int


def past(recent: Sequence[Run]) -> Past | None:
    """Summarize the latest runs; None if there are none. Canceled runs do not count."""
    if not recent:
        return None
    states = [run.state for run in recent]
    succeeded = states.count(RunState.SUCCEEDED)
    return Past(last=recent[0], succeeded=succeeded, ended=succeeded + states.count(RunState.FAILED))


async def demo_skill(context: PageContext, request: Request) -> Response:
    """The bundled demo skill as a zip file, to be installed like any other."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(DEMO.rglob("*")):
            if path.is_file():
                archive.write(path, f"{DEMO.name}/{path.relative_to(DEMO).as_posix()}")
    headers = {"Content-Disposition": f'attachment; filename="{DEMO.name}.zip"'}
    return Response(packed.getvalue(), headers=headers, media_type="application/zip")


async def listed(service: Service) -> Sequence[SkillListing]:
    """Every skill once: of several with one id, the one that a run would use."""
    library = service.skills
    found = await service.pools.skills.run(lambda: [*library.installed(), *library.in_folders()])
    return sorted({each.id: each for each in reversed(found)}.values(), key=lambda each: each.id)


async def find(service: Service, skill_id: str) -> SkillListing:
    for each in await listed(service):
        if each.id == skill_id:
            return each
    raise NotFound(RefusalCode.SKILL_NOT_FOUND, f"there is no skill {skill_id!r}")


def matching(listings: Sequence[SkillListing], search: str) -> list[SkillListing]:
    """Those with every word of the search in the name or the description."""
    words = words_in(search)
    return [each for each in listings if has_all(folded(_texts(each)), words)]


def _texts(listing: SkillListing) -> tuple[str, ...]:
    package = listing.package
    return (listing.id,) if package is None else (listing.id, package.name, package.description)


MAX_ROWS = 200
_MAX_DEPTH = 5
_LIMITS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "pattern", "format", "default"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    path: str
    kind: str
    required: bool
    is_file: bool
    about: str
    choices: tuple[str, ...]
    limits: tuple[tuple[str, str], ...]
    """Keywords of the schema with their values."""


def rows(schema: Mapping[str, Any] | None) -> list[Row]:
    """At most `MAX_ROWS`; the page shows the raw schema as well."""
    found: list[Row] = []
    for row in _rows(schema or {}, "", 0):
        found.append(row)
        if len(found) >= MAX_ROWS:
            break
    return found


def _rows(schema: Mapping[str, Any], path: str, depth: int) -> Iterator[Row]:
    required = _list(schema.get("required"))
    for name, inner in _mapping(schema.get("properties")).items():
        here = f"{path}.{name}" if path else name
        known = _mapping(inner)
        yield _row(known, here, name in required)
        if depth < _MAX_DEPTH:
            yield from _rows(known, here, depth + 1)
            yield from _rows(_mapping(known.get("items")), f"{here}[]", depth + 1)


def _row(schema: Mapping[str, Any], path: str, required: bool) -> Row:
    return Row(
        path=path,
        kind=_kind(schema),
        required=required,
        is_file=schema.get("x-input-source") == "file",
        about=str(schema.get("description") or schema.get("title") or ""),
        choices=tuple(_choices(schema)),
        limits=tuple((word, _text(schema[word])) for word in _LIMITS if word in schema),
    )


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(map(str, kind))
    if kind == "array" and (of := _mapping(schema.get("items")).get("type")) is not None:
        return f"{of}[]"
    return str(kind) if kind is not None else ""


def _choices(schema: Mapping[str, Any]) -> list[str]:
    place = _mapping(schema.get("items")) if schema.get("type") == "array" else schema
    titled = _list(place.get("oneOf")) or _list(place.get("anyOf"))
    if titled and all("const" in _mapping(each) for each in titled):
        return [_text(each["const"]) for each in titled]
    return [_text(each) for each in _list(place.get("enum"))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
