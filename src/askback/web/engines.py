"""The engines of this machine as the pages show them: their condition, and what to do about it in the user's language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.web.page_context import PageContext
from askback.web.translations import Translations
from askback.wire.base import plain
from askback.wire.server import Engine, EngineProfile

CONDITIONS = ("ready", "signed_out", "missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do about an engine: a command to copy, and a note. `original` is set if there is no translation of it."""

    command: str | None = None
    note: str | None = None
    original: str | None = None


async def engines(context: PageContext, request: Request) -> Response:
    found = await usable_first(context, request)
    counts = {name: sum(view["condition"] == name for view in found) for name in CONDITIONS}
    # A token that is restricted to labels does not see the workers. An installation of one server has no list of them.
    restricted = bool(request.scope["grant"].labels)
    workers = None if context.workers is None or restricted else await context.workers()
    return context.show(request, "engines.html", engines=found, counts=counts, workers=workers)


async def usable_first(context: PageContext, request: Request) -> list[dict[str, Any]]:
    """All engines with their `condition` and `todo`, ready ones first."""
    t = context.translations_for(request)
    catalog = context.service.engines
    found = [
        _view(engine, catalog.advised_command(engine.name, installed=engine.found), t)
        for engine in await catalog.views()
    ]
    return sorted(found, key=lambda view: CONDITIONS.index(view["condition"]))


def _view(engine: Engine, command: str | None, t: Translations) -> dict[str, Any]:
    condition = condition_of(engine)
    profile = engine.interactive_profile
    view: dict[str, Any] = plain(engine)
    title, _, about = (engine.title or engine.name).partition(" (")
    view["title"], view["about"] = title, t.find(f"engines.about.{engine.name}") or about.rstrip(")")
    view["condition"] = condition
    in_fleet = engine.workers is not None
    text = engine.advice
    view["todo"] = text and advice(engine.name, condition, text, command, t, in_fleet=in_fleet)
    view["finding"] = finding(profile, t) if profile else None
    return view


def condition_of(engine: Engine) -> str:
    if not engine.found:
        return "missing"
    return "signed_out" if engine.signed_in is False else "ready"


def advice(name: str, condition: str, text: str, command: str | None, t: Translations, *, in_fleet: bool) -> Advice:
    """The engine's advice, in the user's language. Advice of third-party engines without a command is shown as it is."""
    own = t.find(f"engines.note.fleet.{name}.{condition}") if in_fleet else None
    note = own or t.find(f"engines.note.{name}.{condition}")
    return Advice(command=command, note=note, original=None if note or command else text)


def finding(profile: EngineProfile, t: Translations) -> str:
    """What the probe saw; in the engine's own words if there is no translation."""
    return t("engines.finding.offers", what=profile.offers) if profile.offers else profile.reason
