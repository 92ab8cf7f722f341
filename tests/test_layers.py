"""Imports point down only, and the docs show the layers that are checked here.

Reads source text, never runs it: imports at the top, in functions, under TYPE_CHECKING, relative ones, and those that
are spelled as a string for `import_module` or `__import__`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/askback"

LAYERS = (
    ("__main__",),
    ("cli",),
    ("app",),
    ("web",),
    ("acp", "http", "mcp"),
    ("access",),
    ("notifications", "worker"),
    ("runs",),
    ("cluster",),
    ("catalog", "testing"),
    ("engines", "wire"),
    ("questions", "telemetry", "workspace"),
    ("process", "skills", "store"),
    ("blobs",),
    ("background", "fs"),
    ("text",),
    ("core",),
)
"""From the top. A unit imports units of lower layers only, never its neighbours."""
RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}

READS_SETTINGS = {"app", "cli"}
USES_CLIENT = {"acp", "cli", "mcp"}
"""The client is for programs outside; of ours only these talk to a server."""
NOT_FOR_WORKER = ("askback.runs.service", "askback.runs.submission")
"""The service and the worker never call each other: the store is between them."""
PROGRAM = "askback.engines.scripted.program"
"""A program of its own, run as a child: it may do what an engine may not, and shares no code with the rest."""
NOT_FOR_ENGINES = {"asyncio", "importlib", "io", "multiprocessing", "os", "pathlib", "pkgutil", "shutil", "socket"}
NOT_FOR_ENGINES |= {"subprocess", "tempfile", "threading"}
NOT_FOR_CORE = NOT_FOR_ENGINES | {"random", "time"}
REGISTRY = "engines/registry.py"
SETTINGS = "settings/environment.py"
FOR_REGISTRY = {"importlib", "pkgutil"}
ANY_NAME = {REGISTRY, "cli/main.py"}
"""Where a module may be imported by a name that is made at run time."""
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported module, by its full name; `None` where the name is made at run time."""

    line: int
    module: str | None


# Reading.


def imports(path: str, source: str) -> Iterator[Import]:
    """All imports of one file; `path` is relative to the package."""
    for node in ast.walk(ast.parse(source)):
        for module in _imported(path, node):
            yield Import(line=getattr(node, "lineno", 0), module=module)


def _imported(path: str, node: ast.AST) -> Iterator[str | None]:
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom():
            base = _absolute(path, node.module or "", node.level)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in ("import_module", "__import__"):
            yield _spelled(path, node)
        case _:
            return


def _absolute(path: str, module: str, level: int) -> str:
    if level == 0:
        return module
    folders = ("askback", *Path(path).parts[:-1])
    return ".".join((*folders[: len(folders) - level + 1], *([module] if module else [])))


def _spelled(path: str, call: ast.Call) -> str | None:
    """The module that a string names; of an f-string the part that stands fast, if it ends with a dot."""
    match call.args[0] if call.args else None:
        case ast.Constant(value=str(name)):
            level = len(name) - len(name.lstrip("."))
            return _absolute(path, name.lstrip("."), level)
        case ast.JoinedStr(values=[ast.Constant(value=str(start)), *_]) if "." in start:
            return start.rpartition(".")[0]
        case _:
            return None


def _unit(module: str) -> str | None:
    """The part of Askback that a module belongs to; the package itself, which only has the version, is ''."""
    parts = module.split(".")
    if parts[0] != "askback":
        return None
    return parts[1] if len(parts) > 1 and parts[1] != "__version__" else ""


def _unit_of_file(path: str) -> str:
    return "" if path == "__init__.py" else Path(path).parts[0].removesuffix(".py")


def _of_program(module: str) -> bool:
    return f"{module}.".startswith(f"{PROGRAM}.")


# Judging.


def violations(path: str, source: str) -> list[str]:
    found = [complaint for each in imports(path, source) for complaint in _judge(path, each)]
    found += _environment_reads(path, source)
    if _unit_of_file(path) == "core":
        found += _impurities(source)
    return [f"{path}: {complaint}" for complaint in found]


def _judge(path: str, imported: Import) -> Iterator[str]:
    unit, where = _unit_of_file(path), f"line {imported.line}"
    if imported.module is None:
        if path not in ANY_NAME:
            yield f"{where} imports a module whose name is made at run time; only {', '.join(sorted(ANY_NAME))} may"
        return
    target, top = _unit(imported.module), imported.module.split(".")[0]
    if target is not None and _of_program(_module(path)) != _of_program(imported.module):
        yield f"{where} imports {imported.module}; the scripted program shares no code with the rest"
    elif unit == "worker" and f"{imported.module}.".startswith(tuple(f"{name}." for name in NOT_FOR_WORKER)):
        yield f"{where} imports {imported.module}; the store is between the worker and the service"
    elif target is not None:
        yield from _judge_unit(unit, target, where)
    elif unit == "core" and (top not in sys.stdlib_module_names or top in NOT_FOR_CORE):
        yield f"{where} imports {top}; core is pure and knows only the standard library"
    elif unit == "engines" and not _of_program(_module(path)) and top in _forbidden_for_engine(path):
        yield f"{where} imports {top}; engines do no I/O"


def _forbidden_for_engine(path: str) -> set[str]:
    return NOT_FOR_ENGINES - FOR_REGISTRY if path == REGISTRY else NOT_FOR_ENGINES


def _judge_unit(unit: str, target: str, where: str) -> Iterator[str]:
    if target == "settings" and unit != "settings":
        if unit not in READS_SETTINGS:
            yield f"{where} imports settings; only {' and '.join(sorted(READS_SETTINGS))} may, others are given values"
    elif unit == "settings":
        if target not in ("core", "fs", "settings", "text", ""):
            yield f"{where} imports {target}; settings knows only core, fs and text"
    elif target == "client" and unit != "client":
        if unit not in USES_CLIENT:
            yield f"{where} imports client; only {' and '.join(sorted(USES_CLIENT))} may"
    elif unit == "client":
        if target not in ("core", "client", "wire", ""):
            yield f"{where} imports {target}; the client knows only core and wire"
    elif unit == "engines":
        if target not in ("core", "engines", "questions", "text", ""):
            yield f"{where} imports {target}; engines know only core, questions and text"
    elif unit == "wire":
        if target not in ("core", "text", "wire", ""):
            yield f"{where} imports {target}; wire knows only core and text"
    elif target not in ("", unit) and unit not in RANK:
        yield f"{where}: {unit or 'the package itself'} has no place among the layers and may import nothing of askback"
    elif target not in ("", unit) and target not in RANK:
        yield f"{where} imports {target}, which has no place among the layers"
    elif target not in ("", unit) and RANK[target] <= RANK[unit]:
        yield f"{where}: {unit} imports {target}, which is not below it"


def _environment_reads(path: str, source: str) -> Iterator[str]:
    if path == SETTINGS or _of_program(_module(path)):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=name) if name in ENVIRONMENT:
                yield f"line {node.lineno} uses {name}; only {SETTINGS} reads the environment"
            case ast.ImportFrom(module="os", names=names):
                taken = [alias.name for alias in names if alias.name in ENVIRONMENT]
                yield from (f"line {node.lineno} uses {name}; only {SETTINGS} reads the environment" for name in taken)
            case _:
                pass


def _impurities(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AsyncFunctionDef() | ast.Await():
                yield f"line {node.lineno} awaits; core is pure"
            case ast.Call(func=ast.Attribute(attr="now" | "utcnow" | "today")):
                yield f"line {node.lineno} reads the clock; core is given its times"
            case ast.Call(func=ast.Name(id="open" | "print" | "input")):
                yield f"line {node.lineno} does I/O; core is pure"
            case _:
                pass


def cycle(sources: Mapping[str, str]) -> list[str] | None:
    """Modules that import one another in a ring, be it for their types alone."""
    modules = {_module(path): path for path in sources}
    graph = {name: _needed(name, path, sources[path], modules) for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def _module(path: str) -> str:
    return ".".join(("askback", *Path(path).with_suffix("").parts)).removesuffix(".__init__")


def _needed(name: str, path: str, source: str, modules: Mapping[str, str]) -> set[str]:
    """The modules that one imports: `from a.b import c` may mean the module `a.b.c`, else it means `a.b`."""
    needed = set()
    for each in imports(path, source):
        if each.module:
            base = each.module.rpartition(".")[0]
            needed |= {each.module if each.module in modules else base} & modules.keys()
    return needed - {name}


# The claims.


def package_sources() -> dict[str, str]:
    files = sorted(PACKAGE.rglob("*.py"))
    return {file.relative_to(PACKAGE).as_posix(): file.read_text(encoding="utf-8") for file in files}


def test_every_import_of_the_package_points_down() -> None:
    sources = package_sources()
    assert len(sources) > 10
    assert [complaint for path, source in sources.items() for complaint in violations(path, source)] == []


def test_no_modules_import_one_another_in_a_ring() -> None:
    assert cycle(package_sources()) is None


IMPORT = re.compile(r"\bfrom (askback(?:\.\w+)*) import ([\w, ]+)|\bimport (askback(?:\.\w+)+)")


@cache
def defined_names(source: Path) -> frozenset[str]:
    """What can be imported from a module: functions, classes, variables, and what it imports itself."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.add(asname or name.split(".")[0])
    return frozenset(names)


def missing_imports(text: str) -> list[str]:
    """Imports of Askback that do not exist, also in programs that are written as strings."""
    missing = []
    for module, names, plain in IMPORT.findall(text):
        file = PACKAGE.parent.joinpath(*(module or plain).split("."))
        source = next((each for each in (file.with_suffix(".py"), file / "__init__.py") if each.is_file()), None)
        if source is None:
            missing.append(module or plain)
            continue
        for name in (each.split(" as ")[0].strip() for each in names.split(",") if each.strip()):
            submodule = (file / name).is_dir() or (file / f"{name}.py").is_file()
            if not submodule and name not in defined_names(source):
                missing.append(f"{module}.{name}")
    return missing


def test_programs_that_tests_and_benchmarks_write_import_what_exists() -> None:
    folders = ("tests", "tools", "benchmarks", "examples")
    files = [each for folder in folders for each in (ROOT / folder).rglob("*.py") if "node_modules" not in each.parts]
    found = {str(each): missing_imports(each.read_text(encoding="utf-8")) for each in files if each != Path(__file__)}
    assert {file: names for file, names in found.items() if names} == {}


def test_an_import_that_does_not_exist_is_found() -> None:
    text = "x = 'from askback.core import nothing_here'\nfrom askback.core.errors import ErrorCode\nimport askback.gone"
    assert missing_imports(text) == ["askback.core.nothing_here", "askback.gone"]


def test_the_page_shows_the_same_layers() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    shown = page.partition("## The layers\n\n```\n")[2].partition("\n```")[0].splitlines()
    assert [tuple(line.split(" | ")) for line in shown] == list(LAYERS[1:])


def test_contributing_shows_the_same_layers() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = page.partition("Imports point down only:\n\n")[2].partition("\n\n")[0].split(">")
    assert [tuple(layer.strip().strip("`").split("|")) for layer in shown] == list(LAYERS[1:])


VIOLATING = {
    "core-imports-store": ("core/x.py", "from askback.store import base"),
    "core-imports-a-dependency": ("core/x.py", "import msgspec"),
    "core-imports-asyncio": ("core/x.py", "import asyncio.events"),
    "core-imports-a-path": ("core/x.py", "from pathlib import Path"),
    "core-awaits": ("core/x.py", "async def f(): ..."),
    "core-reads-the-clock": ("core/x.py", "from datetime import datetime\ndatetime.now()"),
    "core-opens-a-file": ("core/x.py", "open('f')"),
    "upward": ("store/x.py", "import askback.runs.service"),
    "upward-from-the-package": ("store/x.py", "from askback import runs"),
    "upward-with-a-new-name": ("store/x.py", "import askback.worker.turn as turn"),
    "in-a-function": ("skills/x.py", "def f():\n    from askback.worker import turn"),
    "in-a-class-in-a-try": (
        "skills/x.py",
        "class A:\n    try:\n        import askback.cli\n    except ImportError: ...",
    ),
    "for-types-only": (
        "engines/x.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from askback.process.child import Child",
    ),
    "relative-to-the-parent": ("engines/x.py", "from ..process import child"),
    "relative-to-the-package": ("engines/x.py", "from .. import skills"),
    "relative-from-a-subfolder": ("store/sqlite/x.py", "from ...worker import turn"),
    "as-a-string": ("process/x.py", "import importlib\nimportlib.import_module('askback.store.base')"),
    "as-a-string-by-a-bare-name": (
        "process/x.py",
        "from importlib import import_module\nimport_module('askback.http')",
    ),
    "as-a-relative-string": ("process/x.py", "import_module('..store', __package__)"),
    "as-an-f-string": ("process/x.py", "import_module(f'askback.store.{name}')"),
    "as-a-builtin-call": ("process/x.py", "__import__('askback.runs.service')"),
    "by-a-name-made-at-run-time": ("worker/x.py", "import importlib\nimportlib.import_module(name)"),
    "neighbours-engines-wire": ("engines/x.py", "from askback.wire import runs"),
    "neighbours-store-process": ("store/x.py", "from askback.process import child"),
    "neighbours-skills-process": ("skills/x.py", "from askback.process import child"),
    "runs-import-the-worker": ("runs/service.py", "from askback.worker.worker import Worker"),
    "the-worker-imports-the-service": ("worker/x.py", "from askback.runs.service import Service"),
    "the-worker-imports-the-submission": ("worker/x.py", "from askback.runs import submission"),
    "neighbours-http-web": ("http/x.py", "from askback.web import page"),
    "probes-import-the-service": ("catalog/probes.py", "from askback.runs import service"),
    "app-imports-cli": ("app/x.py", "import askback.cli.main"),
    "settings-in-the-service": ("runs/service.py", "from askback.settings.model import Settings"),
    "settings-in-the-store-for-types": (
        "store/x.py",
        "if TYPE_CHECKING:\n    from askback.settings.model import Settings",
    ),
    "setting-sections-in-the-service": ("runs/service.py", "from askback.settings.sections import Limits"),
    "setting-types-in-the-worker": ("worker/x.py", "from askback.settings.types import with_paths"),
    "settings-import-the-store": ("settings/model.py", "from askback.store import base"),
    "client-in-the-service": ("runs/service.py", "from askback.client import Client"),
    "client-in-app": ("app/x.py", "import askback.client"),
    "client-imports-the-store": ("client/x.py", "from askback.store import base"),
    "client-imports-http": ("client/x.py", "def f():\n    from askback.http.app import api"),
    "wire-imports-the-store": ("wire/x.py", "from askback.store import base"),
    "wire-imports-files": ("wire/x.py", "from askback.fs import atomic"),
    "the-store-imports-wire": ("store/x.py", "from askback.wire import runs"),
    "client-reads-settings": ("client/x.py", "from askback.settings.model import load"),
    "the-package-imports-a-part": ("__init__.py", "from askback.runs.service import Service"),
    "a-unit-without-a-place": ("utils.py", "from askback.core import runs"),
    "an-import-of-a-unit-without-a-place": ("cli/x.py", "from askback.utils import thing"),
    "engine-starts-a-process": ("engines/x.py", "import subprocess"),
    "engine-opens-a-socket": ("engines/x.py", "def f():\n    import socket"),
    "engine-awaits": ("engines/x.py", "import asyncio"),
    "engine-uses-os": ("engines/x.py", "from os import path"),
    "engine-uses-paths": ("engines/x.py", "from pathlib import PurePath"),
    "engine-uses-importlib": ("engines/x.py", "from importlib import resources"),
    "registry-uses-os": ("engines/registry.py", "import os"),
    "scripted-program-imports-askback": ("engines/scripted/program/play.py", "from askback.core import runs"),
    "scripted-program-imports-an-engine": ("engines/scripted/program/play.py", "from ..base import Turn"),
    "engine-imports-the-scripted-program": ("engines/scripted.py", "from askback.engines.scripted.program import play"),
    "environ": ("process/x.py", "import os\nos.environ['HOME']"),
    "getenv": ("cli/x.py", "import os as o\no.getenv('HOME')"),
    "environ-by-name": ("app/x.py", "from os import environ as e"),
}


@pytest.mark.parametrize("case", VIOLATING)
def test_a_violation_is_found(case: str) -> None:
    path, source = VIOLATING[case]
    found = violations(path, source)
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}: line ")


ALLOWED = {
    "down": ("cli/x.py", "from askback import app, runs\nfrom askback.core.runs import Run"),
    "down-by-several-layers": ("worker/x.py", "from askback.engines.base import Turn\nimport askback.process.child"),
    "within-a-unit": ("store/x.py", "from askback.store.base import Store\nfrom .writes import write"),
    "within-core": ("core/x.py", "from . import runs\nimport re, json, datetime, urllib.parse"),
    "the-version": ("http/x.py", "from askback import __version__"),
    "settings-at-the-top": ("app/x.py", "from askback.settings.model import Settings"),
    "settings-read-core": (
        "settings/environment.py",
        "import os\nfrom askback.core.errors import Invalid\nos.environ.get('HOME')",
    ),
    "the-client-knows-core": (
        "client/x.py",
        "import httpx\nfrom askback.core.runs import RunState\nfrom . import calls",
    ),
    "commands-use-the-client": ("cli/x.py", "from askback.client import Client"),
    "registry-by-name": ("engines/registry.py", "import importlib, pkgutil\nimportlib.import_module(name)"),
    "registry-by-f-string": (
        "engines/registry.py",
        "import importlib\nimportlib.import_module(f'askback.engines.{n}')",
    ),
    "the-program-does-io": ("engines/scripted/program/play.py", "import os, pathlib, subprocess\nos.environ['HOME']"),
    "the-program-within-itself": (
        "engines/scripted/program/play.py",
        "from askback.engines.scripted.program.input import HELP",
    ),
    "late-commands": ("cli/main.py", "importlib.import_module(f'askback.cli.{name}')"),
    "os-without-environment": ("process/x.py", "import os\nos.kill(1, 2)"),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_allowed_is_not_complained_of(case: str) -> None:
    assert violations(*ALLOWED[case]) == []


def test_a_ring_is_found_also_where_only_types_make_it() -> None:
    one = {"core/a.py": "from askback.core import b", "core/b.py": "def f():\n    from askback.core.a import thing"}
    assert set(cycle(one) or []) == {"askback.core.a", "askback.core.b"}
    typed = one | {"core/b.py": "if TYPE_CHECKING:\n    from askback.core.a import thing"}
    assert set(cycle(typed) or []) == {"askback.core.a", "askback.core.b"}
    assert cycle(one | {"core/b.py": "import json"}) is None
