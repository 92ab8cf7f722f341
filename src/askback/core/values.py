"""Values that know nothing of runs: JSON Pointers, and sets of texts to which newer versions add."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self
from urllib.parse import unquote

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


def at_pointer(document: Any, pointer: str) -> Any:
    """The value at a pointer such as `/$defs/name`; None if there is none. An empty pointer is the document."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, Mapping) and name in document:
            document = document[name]
        elif isinstance(document, list) and _INDEX.fullmatch(name) and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


def referenced(document: Any, reference: str) -> Any:
    """The target of a reference within the document. None if there is none, or if it is an anchor or elsewhere."""
    target, separator, fragment = reference.partition("#")
    pointer = unquote(fragment)
    if target or not separator or (pointer and not pointer.startswith("/")):
        return None
    return at_pointer(document, pointer)


class OpenValue(StrEnum):
    """A text of a set to which newer versions add, such as error codes.

    During an upgrade, instances of two versions work on one database. A text that this version does not know is a value as
    well: it is stored and shown, and means nothing here. So what the newer version writes stays readable for the older one.
    """

    meaning: str
    """For the reference; empty if the name says it."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name

    def __new__(cls, value: str, meaning: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        made = str.__new__(cls, value)
        made._name_ = made._value_ = value
        made.meaning = ""
        return made

    @property
    def known(self) -> bool:
        return self._name_ in type(self).__members__
