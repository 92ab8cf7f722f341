"""The skills: all that can be run by name, and one with its text and schemas."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.core.errors import NotFound, RefusalCode
from askback.service import Service
from askback.skills.library import DEMO, SkillListing
from askback.web import schema_table
from askback.web.desk import Desk, Page
from askback.web.markdown import rendered

INSTALLED = "installed"


async def skills(desk: Desk, request: Request) -> Response:
    found = await listed(desk.service)
    wanted = request.query_params.get("q", "").strip()
    fitting = [each for each in found if fits(each, wanted)]
    return desk.show(request, "skills.html", skills=fitting, wanted=wanted, any=bool(found))


async def skill(desk: Desk, request: Request) -> Response:
    listing = await find(desk.service, request.path_params["skill_id"])
    package = listing.package
    if package is None:
        return desk.show(request, "skill.html", skill=listing, text="", schemas=[])
    schemas = {"input": package.input_schema, "parameter": package.parameter_schema, "output": package.output_schema}
    pool = desk.service.pools.skills
    shown = await pool.run(_shown, schemas)
    text = await pool.run(rendered, package.body)
    return desk.show(request, "skill.html", skill=listing, text=text, schemas=shown)


def _shown(schemas: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    return [
        (name, schema_table.rows(schema), json.dumps(schema, ensure_ascii=False, indent=2))
        for name, schema in schemas.items()
        if schema is not None
    ]


async def demo_skill(desk: Desk, request: Request) -> Response:
    """The skill that comes with Askback, to be installed like any other."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(DEMO.rglob("*")):
            if path.is_file():
                archive.write(path, f"{DEMO.name}/{path.relative_to(DEMO).as_posix()}")
    headers = {"Content-Disposition": f'attachment; filename="{DEMO.name}.zip"'}
    return Response(packed.getvalue(), headers=headers, media_type="application/zip")


async def listed(service: Service) -> Sequence[SkillListing]:
    """Each skill once, as a run of that name would take it."""
    library = service.skills
    found = await service.pools.skills.run(lambda: [*library.installed(), *library.in_folders()])
    return sorted({each.id: each for each in reversed(found)}.values(), key=lambda each: each.id)


async def find(service: Service, skill_id: str) -> SkillListing:
    for each in await listed(service):
        if each.id == skill_id:
            return each
    raise NotFound(RefusalCode.SKILL_NOT_FOUND, f"there is no skill {skill_id!r}")


def fits(listing: SkillListing, wanted: str) -> bool:
    """Whether every word that is looked for stands in its names or its description."""
    package = listing.package
    text = " ".join([listing.id, package.name if package else "", package.description if package else ""]).lower()
    return all(word in text for word in wanted.lower().split())


PAGES = (
    Page(path="/skills", show=skills),
    Page(path="/skills/{skill_id}", show=skill),
    Page(path="/demo-skill.zip", show=demo_skill),
)
