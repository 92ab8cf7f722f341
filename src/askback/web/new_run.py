"""The page for a new run: the form of a skill's schemas, optionally with the values of an earlier run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from askback.core.errors import Forbidden, NotFound, RefusalCode, WarningCode
from askback.core.runs import InheritedFiles, Mode, Run, RunOptions
from askback.runs.service import Service
from askback.skills.manifest import OPTION_SCHEMAS, merge_options
from askback.skills.package import SkillPackage
from askback.skills.templates import Schema, secret_inputs
from askback.web.engines import usable_first
from askback.web.page_context import READ, PageContext
from askback.web.skills import find
from askback.web.translations import Translations
from askback.workspace.layout import INPUTS_DIR

_CHOICES = (
    "interactive_require_user_reply",
    "interactive_profile",
    "ask_user_validation",
    "on_lost_session",
    "on_limit",
)
"""Options with a few fixed values, each with its own text."""


async def new_run(context: PageContext, request: Request) -> Response:
    skill_id = request.query_params.get("skill")
    # A new run starts from the list of skills.
    return await _form(context, request, skill_id) if skill_id else RedirectResponse("/skills", HTTPStatus.SEE_OTHER)


async def _form(context: PageContext, request: Request, skill_id: str) -> Response:
    listing = await find(context.service, skill_id)
    package = listing.package
    if package is None:
        return context.show(request, "skill.html", skill=listing, text="", schemas=[], past=None)
    given = {
        "skill": package.id,
        "input": package.input_schema,
        "parameter": package.parameter_schema,
        "options": option_schema(package, context.service.usual_options, context.translations_for(request)),
        "engine": await context.service.engines.first_for(package),
    }
    again, follows = await _again(context, request, package), None
    if again is not None and "follow" in request.query_params:
        follows, given["engine"] = continuation(again.run), again.run.engine
        if not (package.input_schema or {}).get("properties"):
            # The input was for the earlier run.
            again = replace(again, given={**again.given, "input": {}}, left_out=())
    engines = [view | {"allowed": package.allows_engine(view["name"])} for view in await usable_first(context, request)]
    return context.show(
        request,
        "new_run.html",
        skill=package,
        engines=engines,
        usable=[view["name"] for view in engines if view["found"] and view["allowed"]],
        by_itself=given["engine"],
        given=given | {"again": again.given if again else None, "follow_up": follows},
        again=again,
        follows=follows is not None,
        workdirs=() if follows else context.service.workdirs,
    )


async def _again(context: PageContext, request: Request, package: SkillPackage) -> EarlierRun | None:
    """The run to fill the form from. It requires the scope to read runs."""
    run_id = request.query_params.get("follow") or request.query_params.get("again")
    if not run_id:
        return None
    if not request.scope["grant"].allows(READ):
        raise Forbidden(RefusalCode.SCOPE_MISSING, "this token may start runs, but not read the input of earlier runs")
    return await earlier(context.service, run_id, package)


def option_schema(package: SkillPackage, usual: RunOptions, t: Translations) -> dict[str, Any]:
    """The run options as a schema for a form, in the user's language, with the defaults of this skill."""
    defaults = asdict(merge_options(package.options, {}, usual=usual))
    properties = {name: _option(name, schema, defaults[name], t) for name, schema in OPTION_SCHEMAS.items()}
    return {"type": "object", "properties": properties}


def _option(name: str, schema: Mapping[str, Any], default: Any, t: Translations) -> dict[str, Any]:
    made: dict[str, Any] = {"title": t(f"new.option.{name}"), "description": t(f"new.option.{name}.help")}
    if name in _CHOICES:
        values = [True, False] if schema["type"] == "boolean" else schema["enum"]
        named = [(value, t(f"new.option.{name}.{str(value).lower()}")) for value in values]
        made |= {"oneOf": [{"const": value, "title": title} for value, title in named]}
    else:
        made |= schema
    if name == "model":
        # It may be long, but is one line.
        made["format"] = "one-line"
    return made if default is None else made | {"default": default}


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """An earlier run, its values for the form, and the names of values that are left out."""

    run: Run
    given: Mapping[str, Any]
    left_out: tuple[str, ...]


async def earlier(service: Service, run_id: str, package: SkillPackage) -> EarlierRun:
    run, request = await service.store.get(run_id), await service.store.request(run_id)
    shown = await service.secrets.shown_request(run, request)
    # The value of an uploaded file is its path in the run's folder.
    texts = {
        name: value
        for name, value in shown.input.items()
        if not (isinstance(value, str) and value.startswith(f"{INPUTS_DIR}/{name}/"))
    }
    input_ = _fitting(texts, package.input_schema)
    # The form has no fields for parameters that the schema does not define.
    parameter = _fitting(shown.parameter, package.parameter_schema or {"properties": {}}, every=True)
    left_out = [*(request.input.keys() - input_.keys()), *(request.parameter.keys() - parameter.keys())]
    given = {"input": input_, "parameter": parameter, "options": asdict(run.options)}
    return EarlierRun(run=run, given=given, left_out=tuple(sorted(left_out)))


def _fitting(values: Mapping[str, Any], schema: Schema | None, *, every: bool = False) -> dict[str, Any]:
    """The values that the form has a field for, without secrets. A schema without fields allows any value."""
    fields = (schema or {}).get("properties") or {}
    hidden = secret_inputs(values, schema)
    fitting = fields if fields or every else values
    return {name: each for name, each in values.items() if name in fitting and name not in hidden}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunActions:
    again: bool
    """Whether the form of a new run can be filled from this one."""
    follow_up: bool
    fork: str
    """As JSON: the body of a request that forks the run, and the questions at which it can."""


async def actions_of(service: Service, run: Run) -> RunActions:
    skills = await service.pools.skills.run(service.skills.names)
    in_folder = run.workdir is None or bool(service.workdirs)
    again = run.skill.id in skills and not run.skill.uploaded and in_folder
    possible = await service.continuable(run)
    questions = possible.questions if again else ()
    body = {"skill": run.skill.id, "mode": Mode.INTERACTIVE, "options": _options(run), **continuation(run)}
    return RunActions(
        again=again,
        follow_up=again and run.state.final and possible.session,
        fork=json.dumps({"questions": questions, "body": body}),
    )


def _options(run: Run) -> dict[str, Any]:
    """The options that a fork copies from its source. A fork is always resumable."""
    left_out = {"interactive_profile"}
    if any(warning.code is WarningCode.EFFORT_IGNORED for warning in run.warnings):
        left_out.add("effort")
    defaults = asdict(RunOptions())
    given = asdict(run.options).items()
    return {name: value for name, value in given if name not in left_out and value != defaults[name]}


async def source_of(service: Service, run: Run) -> str | None:
    """The run that this one continues, unless it was deleted."""
    if run.origin is None:
        return None
    try:
        return (await service.store.get(run.origin.run_id)).id
    except NotFound:
        return None


def continuation(source: Run) -> dict[str, Any]:
    """The part of a request that continues the session where it is: with copies of its files, or in the same folder."""
    origin: dict[str, Any] = {"run_id": source.id, "session": True}
    if source.workdir is not None:
        return {"from_run": origin, "workdir": source.workdir.path}
    return {"from_run": origin | {"files": InheritedFiles.WORKSPACE}}


async def actions(context: PageContext, request: Request) -> Response:
    run = await context.service.store.get(request.path_params["run_id"])
    return context.show(request, "actions.html", run=run, actions=await actions_of(context.service, run))
