"""What follows from the type of a setting needs no list, so a new setting cannot be missing from one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, Field

from askback.settings import types as setting_types
from askback.settings.files import load
from askback.settings.model import Settings
from askback.settings.trust import Shown

HERE = "x"
HIDDEN = {
    "database": Shown.NOTHING,
    "server.token": Shown.NOTHING,
    "webhooks": Shown.NOTHING,
    "telegram.token": Shown.NOTHING,
    "engines.name.env": Shown.NAMES,
    "notifications.email.password": Shown.NOTHING,
    "telemetry.otlp_headers": Shown.NAMES,
}
"""Every other setting is shown with its value when its file is trusted."""
NO_SECRETS = {"quotas.tokens"}
"""Settings that sound like a secret and are none."""


class Folders(BaseModel):
    one: Path | None = None
    by_name: dict[str, Path] = Field(default_factory=dict)


class Model(BaseModel):
    plain: Path
    listed: tuple[Annotated[Path, "mark"], ...] = ()
    section: Folders
    sections: dict[str, Folders]
    section_list: tuple[Folders, ...]
    command: Annotated[tuple[str, ...], setting_types.Program()]
    text: str
    words: tuple[str, ...]


def moved(key: str, path: Any) -> Any:
    return f"/base/{path}"


def test_a_path_is_found_wherever_it_is_in_the_model() -> None:
    folders = {"one": "a", "by_name": {"n": "b"}, "unknown": "c"}
    changed = {"one": "/base/a", "by_name": {"n": "/base/b"}, "unknown": "c"}
    document = {
        "plain": "p",
        "listed": ["q"],
        "section": folders,
        "sections": {"n": folders},
        "section_list": [folders],
        "command": ["./run", "./argument"],
        "text": "t",
        "words": ["./w"],
    }
    assert setting_types.with_paths(Model, document, (), moved) == {
        "plain": "/base/p",
        "listed": ["/base/q"],
        "section": changed,
        "sections": {"n": changed},
        "section_list": [changed],
        "command": ["/base/./run", "./argument"],
        "text": "t",
        "words": ["./w"],
    }


@pytest.mark.parametrize("document", [{"section": 1}, {"sections": [1]}, {"listed": "a"}, {"command": [1]}], ids=str)
def test_a_value_of_another_type_is_left_to_the_validation(document: dict[str, Any]) -> None:
    assert setting_types.with_paths(Model, document, (), moved) == document


def sample(kind: Any) -> Any:
    """A value for each key of a document, with the same text for every path."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: sample(field.annotation) for name, field in kind.model_fields.items()}
    if origin in (Union, UnionType):
        return sample(next(each for each in arguments if each is not NoneType))
    if origin is dict:
        return {"name": sample(arguments[1])}
    if origin is tuple:
        return [sample(arguments[0])]
    return HERE if kind is Path else "text"


def test_every_path_of_the_settings_is_relative_to_its_file() -> None:
    seen: list[str] = []
    setting_types.with_paths(Settings, sample(Settings), (), lambda key, path: seen.append(f"{key}={path}"))
    # What pydantic itself says about the model.
    paths = json.dumps(Settings.model_json_schema()).count('"format": "path"')
    assert paths > 4
    assert len([each for each in seen if each.endswith(f"={HERE}")]) == paths


def keys(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield (*path, name)
            yield from keys(field.annotation, (*path, name))
    elif get_origin(kind) is dict:
        yield from keys(get_args(kind)[1], (*path, "name"))


def test_trusting_shows_every_setting_but_the_secret_ones() -> None:
    found = {".".join(path): setting_types.shown(Settings, path) for path in keys(Settings)}
    assert {key: shown for key, shown in found.items() if shown is not Shown.VALUE} == HIDDEN
    words = ("token", "secret", "password", "key", "credential")
    suspicious = {key for key in found if any(word in key.rpartition(".")[2] for word in words)}
    assert suspicious - NO_SECRETS <= set(HIDDEN)


@pytest.mark.parametrize("path", ["tokn", "server.tokn", "engines.codex.tokn", "slots.deep"])
def test_nothing_is_shown_of_an_unknown_key(path: str) -> None:
    assert setting_types.shown(Settings, path.split(".")) is Shown.NOTHING


def test_a_command_stays_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "askback.toml"
    file.write_text('[engines.codex]\ncommand = ["./run", "x"]\n')
    assert load(file).engines["codex"].command == (f"{tmp_path}/run", "x")
