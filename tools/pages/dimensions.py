"""docs/reference/dimensions.md: every closed set of the core in one place, and where to read the larger ones."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from types import ModuleType
from typing import get_args

from askback import core
from askback.core.errors import ErrorCode, RefusalCode, WarningCode
from askback.core.events import EventType
from askback.core.runs import ProfileKind
from askback.core.signals import Signal
from askback.core.values import OpenValue
from askback.engines.base import Engine
from askback.engines.registry import engines
from askback.settings.model import Settings
from askback.settings.types import paths
from askback.telemetry.metrics import Gauges, Metrics
from pages.markdown import code, table

INTRODUCTION = """# Dimensions

Everything that has a fixed number of values, in one place. Each is one table in the code, and this page is generated from it.

"""
LARGE = """## On separate pages

"""
SIGNALS = """## Signals

What happens to a run, as `lifecycle.decide` gets it. [The lifecycle](lifecycle.md) says what each does in each state.

"""
EVENTS = """## Events

The `type` of an event of a run. A client must ignore types that it does not know: newer versions add some.

"""
CAPABILITIES = """## Engine capabilities

What each engine module supports. What the installed version supports is probed: `askback engines` shows it.
[Engines](../explanation/engines.md) explains the capabilities.

"""
SETS = """## Sets of values

"""
_SHOWN_ABOVE = (ErrorCode, WarningCode, RefusalCode, EventType)
_OF_ENGINE: Mapping[str, str] = {
    "resumable": "A waiting run has no process; the reply starts one that resumes the session.",
    "sticky_process": "A waiting run keeps its process and its slot.",
    "can_stay": "A process accepts several prompts in sequence.",
    "warm": "A resumable run may keep its process for a while, as `warm_sec` says.",
    "takes_ask_tool": "The engine can ask by the tool `put_question`.",
    "lists_models": "`askback engines models NAME` asks the program for its models.",
    "moves_sessions": "Another run can continue the session.",
    "renewals": "A sign-in that the program renews in a turn is saved.",
}
"""Each is a profile or an attribute of `Engine`."""


def page() -> str:
    rows = [(f"[{name}]({file})", str(number)) for name, file, number in _large()]
    return "".join(
        (
            INTRODUCTION,
            LARGE,
            table(["set", "values"], rows),
            "\n",
            SIGNALS,
            table(["signal", "meaning"], [(code(each.__name__), _about(each)) for each in get_args(Signal)]),
            "\n",
            EVENTS,
            table(["event", "meaning"], [(code(each), each.meaning) for each in EventType]),
            "\n",
            CAPABILITIES,
            table(["engine", *map(code, _OF_ENGINE)], [_capabilities(each) for each in engines().values()]),
            "\n",
            table(["capability", "meaning"], [(code(name), meaning) for name, meaning in _OF_ENGINE.items()]),
            "\n",
            SETS,
            "\n".join(_set(each) for each in _sets()),
        )
    )


def _large() -> Iterator[tuple[str, str, int]]:
    yield "Error codes of runs", "errors.md#why-a-run-failed", len(ErrorCode)
    yield "Warnings of runs", "errors.md#warnings-of-a-run", len(WarningCode)
    yield "Refusals of requests", "errors.md#why-a-request-was-refused", len(RefusalCode)
    yield "Settings", "settings.md", len(list(paths(Settings)))
    yield "Metrics", "metrics.md", len(Metrics(Gauges()).descriptions)


def _about(signal: type) -> str:
    """The docstring in one line. A dataclass without one has its signature there."""
    about = " ".join((inspect.getdoc(signal) or "").split())
    assert not about.startswith(f"{signal.__name__}("), f"{signal.__name__} has no docstring"
    return about


def _capabilities(engine: Engine) -> list[str]:
    profiles = {kind.value: kind in engine.profiles for kind in ProfileKind}
    has = [profiles[name] if name in profiles else bool(getattr(engine, name)) for name in _OF_ENGINE]
    return [code(engine.name), *("yes" if each else "" for each in has)]


# The sets of the core.


def _sets() -> Iterator[type[Enum]]:
    for module in pkgutil.iter_modules(core.__path__):
        yield from _enums(importlib.import_module(f"askback.core.{module.name}"))


def _enums(module: ModuleType) -> Iterator[type[Enum]]:
    for each in vars(module).values():
        is_own = isinstance(each, type) and issubclass(each, Enum) and each.__module__ == module.__name__
        if is_own and each is not OpenValue and each not in _SHOWN_ABOVE:
            yield each


def _set(values: type[Enum]) -> str:
    about = vars(values).get("__doc__")
    assert about, f"{values.__name__} has no docstring"
    meanings = _meanings(values)
    lines = [
        f"- {code(str(each.value))}" + (f": {meanings[each.name]}" if each.name in meanings else "") for each in values
    ]
    where = values.__module__.removeprefix("askback.").replace(".", "/")
    head = f"### {values.__name__}\n\n" + f"{' '.join(about.split())} In `{where}.py`.\n\n"
    return head + "\n".join(lines) + "\n"


def _meanings(values: type[Enum]) -> dict[str, str]:
    """The docstrings below the members."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(values))).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for member, after in zip(made.body, made.body[1:], strict=False):
        match member, after:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found
