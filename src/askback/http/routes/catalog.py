"""Skills and engines."""

from __future__ import annotations

import tempfile
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from askback.background.pools import Pool
from askback.core.access import Action
from askback.core.errors import NotFound, RefusalCode
from askback.fs.paths import open_below
from askback.http.bodies import FORM, form_file, media_type, while_connected
from askback.http.context import Context, changed, json_response
from askback.http.routes.files import ATTACHMENT, BINARY, FORM_WITH_FILE, download
from askback.http.routing import ADMIN, READ, Router
from askback.skills.library import Library, SkillListing
from askback.skills.package import SkillPackage
from askback.wire import server as wire

skills_router = Router("skills")
engines_router = Router("engines")

_ZIPS = ("application/zip", "application/x-zip-compressed", "application/octet-stream")


@skills_router.add("GET /v1/skills", "List skills", READ)
async def list_skills(request: Request, context: Context) -> wire.SkillList:
    """The skills that a run can name. A skill that cannot be run has a `problem`."""
    library = context.service.skills
    listing = context.pools.skills.run(lambda: [*library.installed(), *library.in_folders()])
    found = await while_connected(request, listing)
    return wire.SkillList(items=tuple(wire.Skill(**_fields(each)) for each in found))


@skills_router.add("GET /v1/skills/{skill_id}", "Get a skill", READ, refusals=(RefusalCode.SKILL_INVALID,))
async def get_skill(request: Request, context: Context, *, skill_id: str) -> wire.SkillDetails:
    """The skill with its instructions and schemas."""
    package, listing = await context.pools.skills.run(_find, context.service.skills, skill_id)
    schemas = wire.SkillSchemas(
        input=package.input_schema, parameter=package.parameter_schema, output=package.output_schema
    )
    return wire.SkillDetails(**_fields(listing), instructions=package.body, schemas=schemas)


@skills_router.add(
    "GET /v1/skills/{skill_id}/files", "List the files of a skill", READ, refusals=(RefusalCode.SKILL_INVALID,)
)
async def list_skill_files(request: Request, context: Context, *, skill_id: str) -> wire.SkillFileList:
    """The files of the version that new runs use, with their digests."""
    library = context.service.skills
    listing = context.pools.skills.run(lambda: library.find(skill_id, paths=False).files)
    found = await while_connected(request, listing)
    return wire.SkillFileList.of(items=found)


@skills_router.add(
    "GET /v1/skills/{skill_id}/files/{path:any_path}",
    "Download a file of a skill",
    READ,
    description="The file. The media type depends on its extension.",
    content={"*/*": BINARY},
    response_headers=ATTACHMENT,
    refusals=(RefusalCode.SKILL_FILE_NOT_FOUND, RefusalCode.SKILL_INVALID),
)
async def get_skill_file(request: Request, context: Context, *, skill_id: str, path: str) -> Response:
    """One file of the version that new runs use, as a download."""
    opened = await context.pools.skills.run(_opened, context.service.skills, skill_id, path)
    return download(opened, path, context.pools.files)


@skills_router.add(
    "POST /v1/skills",
    "Install a skill",
    ADMIN,
    action=Action.SKILL_INSTALL,
    raw_body=dict.fromkeys(_ZIPS, BINARY) | FORM_WITH_FILE,
    status=HTTPStatus.CREATED,
    description="The skill. New runs use this version.",
    response_headers={"Location": "The path of the skill."},
    refusals=(RefusalCode.SKILL_INVALID,),
)
async def install_skill(request: Request, context: Context) -> Response | wire.Skill:
    """Install a skill from a zip file, sent as the body or as the form field `file`."""
    with tempfile.TemporaryDirectory(prefix="askback-skill-") as folder:
        path = Path(folder) / "skill.zip"
        await _receive(request, path, context.pools.files)
        installing = context.pools.skills.run_abandonable(partial(context.service.skills.install, path))
        package = await while_connected(request, installing)
    _, listing = await context.pools.skills.run(_find, context.service.skills, package.id, admitted=True)
    changed(request, package.id)
    location = {"Location": f"/v1/skills/{package.id}"}
    return json_response(wire.Skill(**_fields(listing)), HTTPStatus.CREATED, location)


@skills_router.add("DELETE /v1/skills/{skill_id}", "Delete a skill", ADMIN, action=Action.SKILL_REMOVE)
async def remove_skill(request: Request, context: Context, *, skill_id: str) -> None:
    """Delete all versions of a skill. Runs that use it are not affected."""
    await context.pools.skills.run(context.service.skills.remove, skill_id)
    changed(request, skill_id)


async def _receive(request: Request, path: Path, pool: Pool) -> None:
    """Write the uploaded zip to a file."""
    kind = media_type(request)
    if kind not in (*_ZIPS, FORM):
        message = "send a zip file as application/zip, or a form with the field 'file'"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
    with path.open("wb") as target:
        if kind in _ZIPS:
            async for chunk in request.stream():
                await pool.run(target.write, chunk, admitted=True)
            return
        async with form_file(request) as file:
            while chunk := await file.read(1 << 20):
                await pool.run(target.write, chunk, admitted=True)


def _find(library: Library, skill_id: str) -> tuple[SkillPackage, SkillListing]:
    """The package that a new run would use, and its entry in the list."""
    package = library.find(skill_id, paths=False)
    return package, library.listing(package)


def _opened(library: Library, skill_id: str, path: str) -> BinaryIO:
    """A file of the package; other files in the same folder, such as those of `.git`, are not part of it."""
    package = library.find(skill_id, paths=False)
    listed = any(each.path == path for each in package.files)
    opened = open_below(package.folder, path) if listed else None
    if opened is None:
        raise NotFound(RefusalCode.SKILL_FILE_NOT_FOUND, f"skill {skill_id!r} has no file {path[:200]!r}")
    return opened


def _fields(listing: SkillListing) -> dict[str, Any]:
    """The fields of a `wire.Skill`."""
    package = listing.package
    return {
        "id": listing.id,
        "version": package.version if package else None,
        "versions": tuple(each.version for each in listing.versions),
        "name": package.name if package else None,
        "description": package.description if package else None,
        "execution_modes": tuple(package.execution_modes) if package else (),
        "engines": tuple(package.engines) if package and package.engines is not None else None,
        "installed": listing.source == "installed",
        "problem": listing.problem,
    }


@engines_router.add("GET /v1/engines", "List engines", READ)
async def list_engines(request: Request, context: Context) -> wire.EngineList:
    """Every known engine: whether it is installed and signed in, its version, how its runs wait, and what to do."""
    return wire.EngineList(items=tuple(await context.service.engines.views()))


@engines_router.add(
    "GET /v1/engines/{name}/models",
    "List the models of an engine",
    READ,
    description="The models, or why there is no list.",
)
async def list_models(request: Request, context: Context, *, name: str) -> wire.EngineModels:
    """The models that a run on this engine can name, as its program lists them. The first call may take seconds."""
    return await context.service.engines.models(name)


@engines_router.add("GET /v1/workers", "List workers", READ, whole_server=True)
async def list_workers(request: Request, context: Context) -> wire.WorkerList:
    """The programs that execute runs: their machines, engines and slots. What they show is a few seconds old."""
    return wire.WorkerList(items=tuple(await context.workers()))
