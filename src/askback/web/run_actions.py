"""What a user can do with a run that works no more: run it again, follow it up, answer a question differently, delete it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.core.errors import NotFound, WarningCode
from askback.core.runs import InheritedFiles, Mode, Run, RunOptions
from askback.runs.service import Service
from askback.web.page_context import Page, PageContext


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
    """What a fork needs to be like its source. It is resumable in any case."""
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


PAGES = (Page(path="/runs/{run_id}/actions", show=actions),)
