"""The fields of stored documents that only newer versions know. Who changes a document keeps them as they are.

Only those of the document itself: a nested object is written as this version knows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cache
from typing import Any

import msgspec

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@cache
def known_fields(kind: type[Any]) -> frozenset[str]:
    """The names of the fields of a dataclass or a struct."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.DataclassType | msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in info.fields)


def newer_fields(doc: str, known: Set[str]) -> dict[str, str]:
    """The other fields of a document: JSON by name."""
    try:
        found = _FIELDS.decode(doc)
    except msgspec.MsgspecError:
        # It has no fields, or it is damaged: who decodes it says so.
        return {}
    if found.keys() <= known:
        return {}
    return {name: bytes(raw).decode() for name, raw in found.items() if name not in known}


def with_fields(doc: str, newer: Mapping[str, str]) -> str:
    """The document with these fields added, which it does not have."""
    added = ",".join(f"{msgspec.json.encode(name).decode()}:{value}" for name, value in newer.items())
    return f"{doc[:-1]}{',' if len(doc) > 2 else ''}{added}}}" if added else doc
