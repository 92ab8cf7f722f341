"""JSON in untrusted text: parsed strictly, found anywhere in the text, in linear time.

Knows nothing of markers, questions or schemas. However hostile the text, functions raise only `NotJson`.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from askback.core.interactions import Json

MAX_DEPTH = 100
"""Deeper values are refused: no output needs them, and not every serializer that we use can write them."""

_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"
_MAX_READ_CHARS = 32_000_000
_MAX_SEARCHED_CHARS = 8_000_000
_STRIDE = 65_536
_MAX_FENCED = 64
_MAX_EMBEDDED = 64
_MAX_HITS = 20_000
_MAX_MISSES = 2_000
_MAX_DIGITS = 1_001
MAX_VALUES = 250_000
"""The most values in one document: 8 MB of `[],` would become 200 MB of lists."""
_MAX_STRUCTURAL = 4 * MAX_VALUES
MAX_INDENTED = 2_000_000
"""Characters of a document that is written with indentation, which grows with the depth of every value."""
_OPENINGS = ",:[{"
# Possessive quantifiers: a whole block on one line is not a fence, and must be rejected without backtracking.
_FENCE = re.compile(r"^[ \t>]*+(`{3,}|~{3,})[ \t]*+([^\s`]*+)[^\n`]*+$", re.MULTILINE)
# An array counts only at the start of a line: `[1]` inside a sentence is a footnote.
_OPENING = re.compile(r'\{\s*+(?:\}|"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+:)|^[ \t]*+(\[)', re.MULTILINE | re.DOTALL)


class NotJson(ValueError):
    """The text is not a JSON value that every parser accepts."""


class Place(StrEnum):
    WHOLE = "whole"
    FENCED = "fenced"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A JSON value and its position in the text. The fences around a block count as part of it."""

    value: Json
    place: Place
    start: int
    end: int


def clean(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode. A surrogate pair becomes its character."""
    if is_encodable(text):
        return text
    # In parts, so that other threads can run in between.
    parts = (text[at : at + _STRIDE] for at in range(0, len(text), _STRIDE))
    return "".join(part.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for part in parts)


def loads(text: str) -> Json:
    """Parse one JSON value, or raise `NotJson`. Raw line breaks in strings are accepted: models write them."""
    if len(text) > _MAX_READ_CHARS:
        raise NotJson("the text is too long")
    if _has_too_many_values(text):
        raise NotJson(f"it has more than {MAX_VALUES} values")
    try:
        value = _decoder().decode(text)
    except RecursionError:
        raise NotJson(_TOO_DEEP) from None
    except ValueError as error:
        raise NotJson(str(error)) from None
    if not _is_shallow(value):
        raise NotJson(_TOO_DEEP)
    return _cleaned(value) if "\\u" in text else value


def find(text: str) -> tuple[Found, ...]:
    """The JSON values in a text, most likely first: the whole text, or fenced blocks and then values in the prose.

    Within each kind, the last in the text comes first.
    """
    try:
        return (Found(value=loads(text.strip()), place=Place.WHOLE, start=0, end=len(text)),)
    except NotJson:
        fenced = [found for pair in _fences(text) if (found := _read_fenced(text, *pair)) is not None]
    return (*reversed(fenced), *reversed(_embedded(text, fenced)))


def _fences(text: str) -> Sequence[tuple[re.Match[str], re.Match[str]]]:
    pairs: deque[tuple[re.Match[str], re.Match[str]]] = deque(maxlen=_MAX_FENCED)
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None or fence[2]:
            opening = fence
        elif fence[1].startswith(opening[1]):
            pairs.append((opening, fence))
            opening = None
    return pairs


def _read_fenced(text: str, opening: re.Match[str], closing: re.Match[str]) -> Found | None:
    language = opening[2].lower()
    if language not in ("", "json", "jsonc", "json5"):
        return None
    try:
        value = loads(text[opening.end() : closing.start()].strip())
    except NotJson:
        return None
    if not language and not isinstance(value, dict | list):
        return None
    return Found(value=value, place=Place.FENCED, start=opening.start(), end=closing.end())


def _embedded(text: str, fenced: Sequence[Found]) -> Sequence[Found]:
    """Objects and arrays in the prose; none at all if the limits are reached before the last one is known."""
    found: deque[Found] = deque(maxlen=_MAX_EMBEDDED)
    if len(text) > _MAX_SEARCHED_CHARS:
        return found
    budget, hits, misses, at = 4 * len(text) + 100_000, 0, 0, _searched_from(text)
    rest, base = text, 0
    while (opening := _OPENING.search(text, at)) is not None:
        start = opening.start(1) if opening[1] else opening.start()
        fence = next((found for found in fenced if found.start <= start < found.end), None)
        if fence is not None:
            at = fence.end
            continue
        if start - base > _STRIDE:
            # JSONDecodeError counts the lines before its position. Slicing keeps that count short.
            rest, base = text[start:], start
        value, length, cost = _read_at(rest, start - base)
        budget -= cost
        if length is None:
            misses, at = misses + 1, start + 1
        else:
            hits, at = hits + 1, start + length
            found.append(Found(value=value, place=Place.EMBEDDED, start=start, end=at))
        if budget < 0 or hits > _MAX_HITS or misses > _MAX_MISSES:
            return ()
    return found


def _read_at(text: str, start: int) -> tuple[Json, int | None, int]:
    """The value at `start`, its length (None: no value), and how many characters were parsed for nothing."""
    try:
        value, end = _decoder().raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, None, error.pos - start
    except (ValueError, RecursionError):
        return None, None, len(text) - start
    if not _is_shallow(value):
        return None, None, len(text) - start
    return _cleaned(value) if text.find("\\u", start, end) >= 0 else value, end - start, 0


def _value_openings(text: str, start: int = 0) -> int:
    """How many characters can start a value: an upper bound on the number of values."""
    return sum(text.count(sign, start) for sign in _OPENINGS)


def _has_too_many_values(text: str) -> bool:
    """Check before parsing. Strings are left out, but only if the quick count exceeds the limit."""
    if _value_openings(text) <= MAX_VALUES:
        return False
    bare = text.replace("\\\\", "").replace('\\"', "")
    if bare.count('"') > _MAX_STRUCTURAL:
        return True
    return _value_openings("".join(bare.split('"')[::2])) > MAX_VALUES


def _searched_from(text: str) -> int:
    """The start of a tail of the text that cannot hold too many values."""
    start = 0
    while _value_openings(text, start) > MAX_VALUES:
        start = (start + len(text) + 1) // 2
    return start


@cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(parse_constant=refuse_constant, parse_float=_finite, parse_int=_whole, strict=False)


def is_encodable(text: str) -> bool:
    """False for text with a lone surrogate, such as a file's name that is not valid text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_constant(name: str) -> Any:
    """For `parse_constant`: Python accepts NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not a JSON number")


def _whole(digits: str) -> int:
    """Parsers differ in how many digits they accept, and every parser that we use must read what we store."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number is too long")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _is_shallow(value: Json) -> bool:
    """Level by level rather than recursively, so that deep values cannot exhaust the stack."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        found = (inner for each in level for inner in (each.values() if isinstance(each, dict) else each))
        level = [inner for inner in found if isinstance(inner, dict | list)]
        if not level:
            return True
    return False


def _cleaned(value: Json) -> Json:
    """The value with `clean` applied to every string in it."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): _cleaned(item) for key, item in value.items()}
    return value


_LARGE = 65_536
_PER_VALUE = 16


def is_large(*documents: Any) -> bool:
    """Whether the documents take about 64 KB or more as JSON. Stops counting at that size."""
    weight, pending = 0, list(documents)
    while pending and weight < _LARGE:
        value = pending.pop()
        weight += _PER_VALUE
        if isinstance(value, str):
            weight += len(value)
        elif isinstance(value, dict):
            weight += _PER_VALUE * len(value)
            if weight < _LARGE:
                pending.extend(value)
                pending.extend(value.values())
        elif isinstance(value, list | tuple):
            weight += _PER_VALUE * len(value)
            if weight < _LARGE:
                pending.extend(value)
    return weight >= _LARGE


def indented(value: Any) -> str:
    """The document for people, two spaces per level; on one line if it would be longer than `MAX_INDENTED`."""
    pieces, left = [], MAX_INDENTED
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            return json.dumps(value, ensure_ascii=False)
    return "".join(pieces)
