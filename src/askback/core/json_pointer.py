"""JSON Pointers, and local references that are one: `#/$defs/name`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
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
