"""docs/reference/settings.md: every key of the settings, read from the model that checks them."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from askback.core.runs import RunState
from askback.settings.model import Settings
from askback.settings.trust import FILE_NAME
from pages.markdown import code, table

INTRODUCTION = f"""# Settings

Settings are read from `{FILE_NAME}`: in the working directory, over the one in the user's config folder
(`~/.config/askback`); with `--config FILE` from that file alone. Every key can also be set in the environment, with `__`
between the levels; the environment wins over the files, and the command line over both. Lists and tables are written as
JSON in the environment, unless the key says otherwise. Relative paths in a file are relative to the file's folder.

## Trust

Settings start programs and can switch the sandbox off, and a repository that you cloned may bring its own
`{FILE_NAME}`. A file in the working directory is therefore used in full only after you trusted it, once:

```
askback trust             # the file here, as it is now; FOLDER for another one
askback trust --list
askback trust --revoke
```

A file that has changed since has to be trusted again. Of a file that is not trusted only `default_engine` and
`engines.NAME.model` are used. `askback run`, `reply` and `serve` refuse to start where it sets anything else
(`SETTINGS_UNTRUSTED`); all other commands ignore those keys and say so. A file that is named with `--config` is trusted
by that. Programs are never looked for in the working directory, even if `PATH` has relative entries.

## Keys

"""
WORDS = {str: "text", int: "number", float: "number", bool: "true or false", Path: "folder", RunState: "state"}
ENTRY = "NAME"
"""Stands for the key of an entry in a table of sections, as an engine's name."""
ITEM = "[]"
"""Stands for the place of an entry in a list of sections."""


def page() -> str:
    rows = [_row(path, field) for path, field in _keys(Settings, ())]
    return INTRODUCTION + table(["key", "environment", "value", "default", "what it does"], rows)


def _keys(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    for name, field in model.model_fields.items():
        section, entries = _section(field.annotation)
        if section is None:
            yield (*path, name), field
            if (switched := _switched(field.annotation)) is not None:
                yield from _keys(switched, (*path, name))
        else:
            yield from _keys(section, (*path, name, *entries))


def _section(annotation: Any) -> tuple[type[BaseModel] | None, tuple[str, ...]]:
    """The model of a section, and what stands for one of them where there may be many, by name or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ()
    for origin, entry in ((dict, ENTRY), (tuple, ITEM)):
        if get_origin(annotation) is origin:
            arguments = [each for each in get_args(annotation) if _section(each)[0]]
            return (arguments[0], (entry,)) if arguments else (None, ())
    return None, ()


def _switched(annotation: Any) -> type[BaseModel] | None:
    """The model of a section that may be left out, or be `true` or `false` as a whole."""
    is_optional = get_origin(annotation) in (Union, types.UnionType)
    return next((each for each in get_args(annotation) if _section(each)[0]), None) if is_optional else None


def _row(path: tuple[str, ...], field: FieldInfo) -> tuple[str, ...]:
    prefix, delimiter = Settings.model_config["env_prefix"], Settings.model_config["env_nested_delimiter"]
    assert delimiter is not None
    # A list of sections is one JSON text in the environment.
    variable = prefix + delimiter.join(path[: path.index(ITEM)] if ITEM in path else path).upper()
    assert field.description, f"{'.'.join(path)} has no description"
    return (
        code(".".join(path).replace(f".{ITEM}", ITEM)),
        code(variable),
        _kind(field.annotation),
        _default(field),
        field.description,
    )


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(each) for each in arguments if each is not types.NoneType)
    if origin is Literal:
        return ", ".join(code(str(each)) for each in arguments)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin in (tuple, list):
        return f"list of {_kind(arguments[0])}s"
    if _section(annotation)[0]:
        return "true, false or table"
    return "table" if origin is dict else WORDS[annotation]


def _default(field: FieldInfo) -> str:
    """The default where it is the same on every machine; else the description says it."""
    if field.is_required():
        return "must be given"
    if field.default_factory is not None or field.default is None or field.default == ():
        return ""
    return code(str(field.default))
