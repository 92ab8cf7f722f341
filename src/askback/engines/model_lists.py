"""What queries for the models of an engine share: one process and a short dialog, as data and without I/O, like a turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from askback.engines.base import Model, NoModels
from askback.engines.protocols.json_lines import Tail, plain, text_at
from askback.text.formatting import one_line

MAX_MODELS = 1_000
_MAX_ID = 200
_MAX_WORDS = 300


class Dialog:
    """What the queries share: the answer, and the reason if there is none."""

    def __init__(self) -> None:
        self._found: Sequence[Model] | None = None
        self._refusal = ""
        self._stderr = Tail()

    @property
    def is_over(self) -> bool:
        return self._found is not None or bool(self._refusal)

    def finish(self, exit_code: int | None) -> Sequence[Model] | NoModels:
        if self._found is not None:
            return self._found
        words = one_line(self._refusal or plain(self._stderr.text), _MAX_WORDS)
        ended = "it did not answer" if exit_code is None else f"it ended with {exit_code}"
        return NoModels(reason=words or ended)


def model(each: Any, id_: str, title: str, *, efforts: Iterable[str] = (), is_default: bool = False) -> Model | None:
    """A model from an object of a program's answer. None: it has no usable id."""
    if not id_ or len(id_) > _MAX_ID or not id_.isprintable():
        return None
    return Model(
        id=id_,
        title=one_line(title, _MAX_ID) or None,
        description=one_line(text_at(each, "description"), _MAX_WORDS) or None,
        efforts=tuple(one_line(effort, _MAX_ID) for effort in efforts if effort),
        is_default=is_default,
    )


def objects(listed: Any) -> list[Mapping[str, Any]]:
    """The objects of a list in a program's answer."""
    return [each for each in listed[:MAX_MODELS] if isinstance(each, dict)] if isinstance(listed, list) else []


def distinct(models: Iterable[Model | None]) -> tuple[Model, ...]:
    """Models by their ids, the first of each."""
    found: dict[str, Model] = {}
    for each in models:
        if each is not None:
            found.setdefault(each.id, each)
    return tuple(found.values())
