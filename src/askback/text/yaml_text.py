"""Untrusted YAML, read as JSON values only: no aliases, no tags, and `yes` stays a string.

PyYAML is imported on the first call: most turns contain no YAML.
"""

from __future__ import annotations

import re
from typing import Any

from askback.core.interactions import Json
from askback.text.json_text import MAX_DEPTH, NotJson, clean, loads

_MAX_CHARS = 64_000
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None, "~": None, "": None}


class NotYaml(ValueError):
    """The text is not YAML, or uses a feature that we do not accept."""


def load(text: str) -> Json:
    """Parse one YAML document, or raise `NotYaml`."""
    import yaml

    if len(text) > _MAX_CHARS:
        raise NotYaml(f"it is longer than {_MAX_CHARS} characters")
    try:
        node = _compose(text)
        return None if node is None else _value(node, 0)
    except yaml.YAMLError as error:
        raise NotYaml(" ".join(str(error).split())[:300]) from None
    except RecursionError:
        raise NotYaml("it is nested too deeply") from None
    # PyYAML does not wrap Python's errors for invalid code points and version numbers.
    except (ValueError, OverflowError) as error:
        raise NotYaml(str(error)[:300]) from None


def _compose(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it has an alias, and aliases are not accepted")
            return super().compose_node(parent, index)

    return yaml.compose(text, Loader=Loader)


def _value(node: Any, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise NotYaml("it is nested too deeply")
    if node.id == "sequence":
        return [_value(item, depth + 1) for item in node.value]
    if node.id == "mapping":
        if any(key.id != "scalar" for key, _ in node.value):
            raise NotYaml("a key is not a string")
        return {clean(key.value): _value(item, depth + 1) for key, item in node.value}
    return _scalar(node)


def _scalar(node: Any) -> Json:
    """An unquoted scalar that JSON knows (a number, true, false, null) becomes that value; all others are strings."""
    text = clean(node.value)
    if node.style is not None:
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text):
        try:
            return loads(text)
        except NotJson:
            return text
    return text
