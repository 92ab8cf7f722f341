"""A new run: choose a skill, then fill in the form that its schemas make. The script on the page sends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.core.errors import Forbidden, RefusalCode
from askback.skills.options import OPTION_SCHEMAS, merge_options
from askback.skills.package import SkillPackage
from askback.web.desk import READ, SUBMIT, Desk, Page
from askback.web.earlier import Earlier, earlier
from askback.web.engines import usable_first
from askback.web.skills import find, fits, listed
from askback.web.words import Words

_CHOICES = ("interactive_require_user_reply", "interactive_profile", "ask_user_validation")
"""Options that are a choice between a few things, each with words of its own."""


async def new_run(desk: Desk, request: Request) -> Response:
    skill_id = request.query_params.get("skill")
    return await (_form(desk, request, skill_id) if skill_id else _choice(desk, request))


async def _choice(desk: Desk, request: Request) -> Response:
    found = await listed(desk.service)
    wanted = request.query_params.get("q", "").strip()
    fitting = [each for each in found if fits(each, wanted)]
    return desk.show(request, "new_choice.html", skills=fitting, wanted=wanted, any=bool(found))


async def _form(desk: Desk, request: Request, skill_id: str) -> Response:
    listing = await find(desk.service, skill_id)
    package = listing.package
    if package is None:
        return desk.show(request, "skill.html", skill=listing, text="", schemas=[])
    given = {
        "skill": package.id,
        "input": package.input_schema,
        "parameter": package.parameter_schema,
        "options": option_schema(package, desk.speech(request)),
    }
    again = await _again(desk, request, package)
    engines = [view | {"allowed": package.allows_engine(view["name"])} for view in await usable_first(desk)]
    return desk.show(
        request,
        "new_run.html",
        skill=package,
        engines=engines,
        usable=[view["name"] for view in engines if view["found"] and view["allowed"]],
        by_itself=await desk.service.engines.first_for(package),
        given=given | {"again": again.given if again else None},
        again=again,
    )


async def _again(desk: Desk, request: Request, package: SkillPackage) -> Earlier | None:
    """The run that the form is to be filled from, for those who may also read it."""
    run_id = request.query_params.get("again")
    if not run_id:
        return None
    if not request.scope["grant"].allows(READ):
        raise Forbidden(RefusalCode.SCOPE_MISSING, "this token may start runs, but not read what others were given")
    return await earlier(desk.service, run_id, package)


def option_schema(package: SkillPackage, t: Words) -> dict[str, Any]:
    """The options of a run as a schema for a form, in the reader's language, with the defaults of this skill."""
    defaults = asdict(merge_options(package, {}))
    properties = {name: _option(name, schema, defaults[name], t) for name, schema in OPTION_SCHEMAS.items()}
    return {"type": "object", "properties": properties}


def _option(name: str, schema: Mapping[str, Any], default: Any, t: Words) -> dict[str, Any]:
    made: dict[str, Any] = {"title": t(f"new.option.{name}"), "description": t(f"new.option.{name}.help")}
    if name in _CHOICES:
        values = [True, False] if schema["type"] == "boolean" else schema["enum"]
        named = [(value, t(f"new.option.{name}.{str(value).lower()}")) for value in values]
        made |= {"oneOf": [{"const": value, "title": title} for value, title in named]}
    else:
        made |= schema
    return made if default is None else made | {"default": default}


PAGES = (Page(path="/new", show=new_run, scopes=(SUBMIT,)),)
