"""What there is: skills, engines, and how the server itself is."""

from __future__ import annotations

import tempfile
from functools import partial
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from askback.core.errors import RefusalCode
from askback.http import models, openapi
from askback.http.auth import AccessScope
from askback.http.bodies import FORM, StrictRoute, form_file, media_type, while_connected
from askback.http.context import Administering, Reading, answer
from askback.http.files import FORM_WITH_FILE
from askback.http.metrics import CONTENT_TYPE
from askback.http.problems import RequestCode
from askback.process.pools import Pool
from askback.skills.library import Library, SkillListing
from askback.skills.package import SkillPackage

router = APIRouter(route_class=StrictRoute)

SkillPath = Annotated[str, Path(description="The skill's id.", examples=["trip-planner"])]
_ZIPS = ("application/zip", "application/x-zip-compressed", "application/octet-stream")
_BODY = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in _ZIPS} | FORM_WITH_FILE


@router.get(
    "/v1/skills",
    tags=["skills"],
    summary="List skills",
    **openapi.call(AccessScope.READ, answer=models.SkillsOut, says="All of them."),
)
async def list_skills(request: Request, here: Reading) -> Response:
    """The skills that can be run by their id, the broken ones with what is wrong."""
    found = await while_connected(request, here.pools.skills.run(_listings, here.service.skills))
    return answer({"items": [_skill(each) for each in found], "next_cursor": None})


@router.get(
    "/v1/skills/{skill_id}",
    tags=["skills"],
    summary="Get a skill",
    **openapi.call(
        AccessScope.READ,
        answer=models.SkillDetailsOut,
        says="The skill.",
        refusals=[RefusalCode.SKILL_NOT_FOUND, RefusalCode.SKILL_INVALID],
    ),
)
async def get_skill(here: Reading, skill_id: SkillPath) -> Response:
    """One skill with its text and schemas."""
    package, listing = await here.pools.skills.run(_find, here.service.skills, skill_id)
    schemas = {"input": package.input_schema, "parameter": package.parameter_schema, "output": package.output_schema}
    return answer(_skill(listing) | {"instructions": package.body, "schemas": schemas})


@router.post(
    "/v1/skills",
    tags=["skills"],
    summary="Install a skill",
    **openapi.call(
        AccessScope.ADMIN,
        answer=models.SkillOut,
        status=HTTPStatus.CREATED,
        says="The skill; runs take this version from now on.",
        headers={"Location": "The skill's address."},
        refusals=[*openapi.BODY, RequestCode.REQUEST_INVALID, RefusalCode.SKILL_INVALID],
        body=_BODY,
    ),
)
async def install_skill(request: Request, here: Administering) -> Response:
    """Install a skill from a zip: the body itself, or the form field `file`. What is refused leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="askback-skill-") as folder:
        path = FilePath(folder) / "skill.zip"
        await _receive(request, path, here.pools.files)
        installing = here.pools.skills.run_abandonable(partial(here.service.skills.install, path))
        package = await while_connected(request, installing)
    _, listing = await here.pools.skills.run(_find, here.service.skills, package.id, admitted=True)
    return answer(_skill(listing), HTTPStatus.CREATED, {"Location": f"/v1/skills/{package.id}"})


@router.delete(
    "/v1/skills/{skill_id}",
    tags=["skills"],
    summary="Delete a skill",
    **openapi.call(
        AccessScope.ADMIN,
        status=HTTPStatus.NO_CONTENT,
        says="It is no longer in the list.",
        refusals=[RefusalCode.SKILL_NOT_FOUND],
    ),
)
async def remove_skill(here: Administering, skill_id: SkillPath) -> Response:
    """Take a skill with all its versions from the list. Runs that use it go on."""
    await here.pools.skills.run(here.service.skills.remove, skill_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get(
    "/v1/engines",
    tags=["engines"],
    summary="List engines",
    **openapi.call(AccessScope.READ, answer=models.EnginesOut, says="All of them."),
)
async def list_engines(here: Reading) -> Response:
    """Each engine: found or not, version, how its runs wait, signed in or not, and what to do about it."""
    return answer({"items": await here.service.engines.views(), "next_cursor": None})


@router.get(
    "/healthz",
    tags=["server"],
    summary="Health",
    response_model=None,
    responses={
        200: {"model": models.HealthOut, "description": "All is well."},
        503: {
            "model": models.HealthOut,
            "description": "The server cannot do its work, or callers wait; `status` says which.",
        },
    },
    openapi_extra={"security": []},
)
async def health(request: Request) -> Response:
    """How the server is. Needs no token."""
    found: dict[str, Any] = await request.app.state.context.health()
    return answer(found, HTTPStatus.OK if found["status"] == "ok" else HTTPStatus.SERVICE_UNAVAILABLE)


@router.get(
    "/metrics",
    tags=["server"],
    summary="Metrics",
    **openapi.call(
        AccessScope.READ,
        says="Figures in Prometheus' text format.",
        content={"text/plain": {"schema": {"type": "string"}, "example": "askback_slots 4.0\n"}},
    ),
)
async def metrics(here: Reading) -> Response:
    """Figures for Prometheus."""
    return Response(here.metrics.text(), media_type=CONTENT_TYPE)


async def _receive(request: Request, path: FilePath, pool: Pool) -> None:
    """Write the zip to a file, whichever way it comes."""
    kind = media_type(request)
    if kind not in (*_ZIPS, FORM):
        told = "send a zip: application/zip, or a form with the field 'file'"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, told)
    with path.open("wb") as target:
        if kind in _ZIPS:
            async for chunk in request.stream():
                await pool.run(target.write, chunk, admitted=True)
            return
        async with form_file(request) as file:
            while chunk := await file.read(1 << 20):
                await pool.run(target.write, chunk, admitted=True)


def _listings(library: Library) -> list[SkillListing]:
    return [*library.installed(), *library.in_folders()]


def _find(library: Library, skill_id: str) -> tuple[SkillPackage, SkillListing]:
    """The package that a run of that name would take, and how it is listed."""
    package = library.find(skill_id, paths=False)
    listed = (each for each in _listings(library) if each.id == package.id and each.package is not None)
    return package, next(listed, SkillListing(id=package.id, source="", package=package))


def _skill(listing: SkillListing) -> dict[str, Any]:
    package = listing.package
    return {
        "id": listing.id,
        "version": package.version if package else None,
        "versions": [each.version for each in listing.versions],
        "name": package.name if package else None,
        "description": package.description if package else None,
        "execution_modes": list(package.execution_modes) if package else [],
        "engines": list(package.engines) if package and package.engines is not None else None,
        "installed": listing.source == "installed",
        "problem": listing.problem,
    }
