"""Renewed sign-ins: which fields of a sign-in file an engine may change, and a merge that accepts only those.

An engine is not trusted with the user's own files. What it wrote is compared with the copy that it was given, and
only token fields that the engine's module declares are merged, each checked by type. Everything else must be
unchanged; otherwise the whole document is refused. Pure: documents in, a document or a refusal out.

The merge cannot verify an opaque token: an engine that replaces one by a token of another account, and leaves the rest
alone, is not noticed. Where a token is a JWT, its account claims are compared, but its signature is not verified.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

ANY = "*"
"""In a path: every key of that object."""
MAX_BYTES = 1 << 20
_MAX_CHARACTERS = 16_384
_MAX_ITEMS = 64
_PRINTABLE = re.compile(r"[\x20-\x7e]+", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_MAX_NUMBER = 2**53

Path = tuple[str, ...]


class Kind(StrEnum):
    """The type of a field that an engine may change in a sign-in file."""

    TEXT = "text"
    """Printable ASCII, not empty."""
    TEXTS = "texts"
    """A list of such texts."""
    INTEGER = "integer"
    """Positive; a point in time."""
    TIME = "time"
    """RFC 3339."""
    JWT = "jwt"
    """A text whose account claims must stay the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenField:
    """A field that an engine may change. `claims` are paths into the payload of a JWT that identify the account."""

    path: Path
    kind: Kind = Kind.TEXT
    claims: tuple[Path, ...] = ()
    optional: bool = False
    """Whether the field may be new."""
    where: tuple[str, str] | None = None
    """Only in objects in which this key has this value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """How one sign-in file may be renewed. `name` is its path below a home; its format is a JSON object.

    `account` are the fields that identify the account: those that were there must be there, unchanged.
    """

    name: str
    fields: tuple[TokenField, ...]
    account: tuple[Path, ...] = ()


class RenewalRefused(ValueError):
    """The document has a change that an engine may not make. The message names the place, never a value."""


def merge(rule: Renewal, old: bytes, new: bytes) -> bytes | None:
    """The old document with the renewed fields of the new one; None when no field was renewed."""
    before, after = _document(old), _document(new)
    for path in rule.account:
        for place, value in _values(before, path):
            if _at(after, place) != value:
                raise RenewalRefused(f"{_named(place)}: it belongs to another account")
    merged = deepcopy(before)
    try:
        _merge_object(rule, merged, after, ())
    except RecursionError as error:
        raise RenewalRefused("it is nested too deep") from error
    if merged == before:
        return None
    ending = "\n" if old.endswith(b"\n") else ""
    return (json.dumps(merged, indent=2) + ending).encode()


def _merge_object(rule: Renewal, old: dict[str, Any], new: Mapping[str, Any], place: Path) -> None:
    """Depth is bounded by the old document: a key that is not in it is refused."""
    for key, value in new.items():
        here = (*place, key)
        field = _field(rule, old, here)
        if field is not None and value is None:
            # Some programs write null for what they do not know; the known value is kept.
            continue
        if field is not None and (key in old or field.optional):
            old[key] = _checked(field, old.get(key), value, here)
        elif key not in old:
            raise RenewalRefused(f"{_named(here)}: there was no such key")
        elif isinstance(old[key], dict) and isinstance(value, dict):
            _merge_object(rule, old[key], value, here)
        elif not _same(old[key], value):
            raise RenewalRefused(f"{_named(here)}: it may not be changed")


def _field(rule: Renewal, siblings: Mapping[str, Any], place: Path) -> TokenField | None:
    for field in rule.fields:
        pairs = zip(field.path, place, strict=False)
        is_here = len(field.path) == len(place) and all(wanted in (ANY, given) for wanted, given in pairs)
        if is_here and (field.where is None or siblings.get(field.where[0]) == field.where[1]):
            return field
    return None


def _checked(field: TokenField, old: Any, new: Any, place: Path) -> Any:
    if _same(old, new):
        return old
    match field.kind:
        case Kind.INTEGER:
            fits, before_fits = type(new) is int and 0 < new < _MAX_NUMBER, isinstance(old, int | float)
        case Kind.TEXTS:
            fits, before_fits = (
                isinstance(new, list) and len(new) <= _MAX_ITEMS and all(map(_is_text, new)),
                isinstance(old, list),
            )
        case Kind.TIME:
            fits, before_fits = isinstance(new, str) and _TIME.fullmatch(new) is not None, isinstance(old, str)
        case Kind.TEXT | Kind.JWT:
            fits, before_fits = _is_text(new), isinstance(old, str)
    if not fits or not (before_fits or old is None):
        raise RenewalRefused(f"{_named(place)}: it is not of the type {field.kind}")
    if field.kind is Kind.JWT and old is not None:
        before, after = _claims(old), _claims(new)
        if any(_at(before, claim) != _at(after, claim) for claim in field.claims):
            raise RenewalRefused(f"{_named(place)}: it belongs to another account")
    return new


def _same(old: Any, new: Any) -> bool:
    """Equal, and of the same types: in Python `True == 1`."""
    return bool(json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_CHARACTERS and _PRINTABLE.fullmatch(value) is not None


def _claims(token: str) -> Mapping[str, Any]:
    """The payload of a JWT, unverified; empty if the token is not a JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = json.loads(payload, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _values(document: Any, path: Path, place: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value at a path, with its place."""
    if not path:
        yield place, document
    elif isinstance(document, dict):
        for key in document if path[0] == ANY else (path[0],):
            if key in document:
                yield from _values(document[key], path[1:], (*place, key))


def _at(document: Any, place: Path) -> Any:
    for key in place:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _document(content: bytes) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise RenewalRefused("it is too large")
    try:
        document = json.loads(content.decode(), object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RenewalRefused("it is not JSON") from error
    if not isinstance(document, dict):
        raise RenewalRefused("it is not a JSON object")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys: programs disagree on which of the two counts."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _named(place: Path) -> str:
    """The place, safe for a log: an engine chose the keys."""
    return ".".join(json.dumps(key)[1:-1][:60] for key in place[:6])
