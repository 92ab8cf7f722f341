"""The engines that an instance knows: those that are bundled or installed, and those that its settings make."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from askback.core.errors import Invalid, RefusalCode
from askback.engines import registry
from askback.engines.acp import AcpEngine, Preset
from askback.engines.registry import Engines, checked
from askback.settings.model import Settings
from askback.settings.trust import key_name

_ENGINE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_PRESET_KEYS = {
    "auth_method": "auth_method",
    "mode": "mode",
    "resume": "resume",
    "config_names": "config_names",
    "sign_in_files": "credentials",
    "caches": "caches",
}
"""The settings that only an engine with a preset has, with their names there."""


def known_engines(settings: Settings) -> Engines:
    """The engines that are bundled or installed, and those that the settings make."""
    engines = registry.engines()
    found, problems = dict(engines.found), list[str]()
    for name, given in settings.engines.items():
        key, engine = key_name(("engines", name)), found.get(name)
        values = {key: getattr(given, key) for key in _PRESET_KEYS}
        changes: dict[str, Any] = {_PRESET_KEYS[key]: value for key, value in values.items() if value is not None}
        if engine is None and given.protocol is not None:
            if given.command is None:
                problems.append(f"{key}.command: name the program and its arguments, such as ['{name}', 'acp']")
            elif _ENGINE_NAME.fullmatch(name) is None:
                problems.append(f"{key}: the name of an engine has small letters, digits, '-' and '_', at most 40")
            else:
                found[name] = AcpEngine(name, replace(Preset(command=given.command), **changes))
        elif isinstance(engine, AcpEngine):
            found[name] = AcpEngine(name, replace(engine.preset, **changes))
        elif engine is not None and (changes or given.protocol):
            keys = ", ".join(each for each in ("protocol", *_PRESET_KEYS) if getattr(given, each) is not None)
            problems.append(
                f"{key}: {name} is not driven by a preset; leave out {keys}, or give your engine another name"
            )
        try:
            if name in found and changes:
                checked(name, found[name])
        except ValueError as error:
            problems.append(f"{key}.{error}")
    if problems:
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings of engines are not complete", problems)
    return Engines({name: found[name] for name in sorted(found)}, engines.broken)
