"""Finds the engines: bundled ones by file name, third-party ones by entry point.

A bundled engine is a module of this package with the engine's name and a function `engine()`, or a preset `NAME.toml` of a
program that speaks ACP. A third party registers such a function in the entry-point group `askback.engines`. Whether the
program is installed is not checked here.
"""

from __future__ import annotations

import pkgutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources

from askback import engines as package
from askback.core.errors import Invalid, RefusalCode
from askback.engines.acp import AcpEngine, preset_of
from askback.engines.base import Engine
from askback.text.formatting import nearest

GROUP = "askback.engines"

_REQUIRED = ("name", "title", "default_command", "install", "sign_in", "signed_in", "read_probe", "launch", "parser")
"""What `Engine` has no default for."""


@dataclass(frozen=True, slots=True)
class Engines(Mapping[str, Engine]):
    """The engines by name. `broken` has the third-party engines that cannot be used, with the reason."""

    found: Mapping[str, Engine]
    broken: Mapping[str, str]

    def __getitem__(self, name: str) -> Engine:
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def config_names(self) -> frozenset[str]:
        """The casefolded names of all engines' configuration files and folders. No skill may contain one."""
        return frozenset(name.casefold() for engine in self.found.values() for name in engine.config_names)

    def choose(self, name: str) -> Engine:
        """The engine of that name, or a refusal that lists the known names."""
        if name in self.found:
            return self.found[name]
        if name in self.broken:
            raise Invalid(RefusalCode.ENGINE_UNKNOWN, f"engine '{name}' cannot be used: {self.broken[name]}")
        message = f"engine {name!r} is unknown; known: {', '.join(self.found)}"
        if near := nearest(name, self.found):
            message += f"; did you mean '{near}'?"
        raise Invalid(RefusalCode.ENGINE_UNKNOWN, message)


def engines() -> Engines:
    """All engines, sorted by name."""
    from importlib import metadata

    found = _bundled()
    broken: dict[str, str] = {}
    for point in metadata.entry_points(group=GROUP):
        if point.name in found:
            broken[point.name] = f"{point.value} has the name of another engine"
            continue
        try:
            found[point.name] = checked(point.name, point.load()())
        # Third-party code may raise anything, and must not break the other engines.
        except (Exception, SystemExit) as error:
            broken[point.name] = f"{point.value} failed: {type(error).__name__}: {error}"
    return Engines({name: found[name] for name in sorted(found)}, broken)


def get(name: str) -> Engine:
    return engines().choose(name)


def _bundled() -> dict[str, Engine]:
    found: dict[str, Engine] = {}
    for module in pkgutil.iter_modules(package.__path__):
        make: Callable[[], Engine] | None = getattr(import_module(f"{GROUP}.{module.name}"), "engine", None)
        if make is not None:
            found[module.name] = make()
    return found | _presets()


@cache
def _presets() -> dict[str, Engine]:
    files = [file for file in resources.files(package).iterdir() if file.name.endswith(".toml")]
    names = {file.name.removesuffix(".toml"): tomllib.loads(file.read_text("utf-8")) for file in files}
    return {name: AcpEngine(name, preset_of(values)) for name, values in names.items()}


def checked(name: str, engine: Engine) -> Engine:
    """Return the engine if it has all required attributes, otherwise raise an error that names what is missing."""
    missing = [part for part in _REQUIRED if not _has(engine, part)]
    if missing:
        raise TypeError(f"it does not return an engine: missing {', '.join(missing)}")
    if engine.name != name:
        raise ValueError(f"the engine's name is {engine.name!r}, but its entry point is {name!r}")
    for each in with_defaults(engine).config_names:
        # `.config/tool` would never match: a skill's entries are compared one path component at a time.
        if not isinstance(each, str) or each in ("", ".", "..") or "/" in each:
            raise ValueError(f"config_names: {each!r} is not the name of a single file or folder")
    return engine


def _has(engine: object, part: str) -> bool:
    return hasattr(engine, part) and getattr(type(engine), part, engine) is not getattr(Engine, part, None)


def with_defaults(engine: Engine) -> Engine:
    """Make `Engine` the last base of an engine that does not inherit from it, so that it has the default parts."""
    kind: type = type(engine)
    if not issubclass(kind, Engine):
        object.__setattr__(engine, "__class__", type(kind.__name__, (kind, Engine), {"__slots__": ()}))
    return engine
