"""YAML that somebody else wrote, read as JSON values only: no aliases, no tags, no `yes` that becomes a truth value.

PyYAML is imported on the first call: most turns have no YAML in them.
"""

from __future__ import annotations

import re
from typing import Any

from askback.core.interactions import Json
from askback.text.json_text import MAX_DEPTH, NotJson, clean, loads

_LONGEST = 64_000
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None, "~": None, "": None}


class NotYaml(ValueError):
    """The text is not YAML that we take."""


def load(text: str) -> Json:
    """Read one YAML document, or raise `NotYaml`."""
    import yaml

    if len(text) > _LONGEST:
        raise NotYaml(f"it is longer than {_LONGEST} characters")
    try:
        node = _compose(text)
        return None if node is None else _value(node, 0)
    except yaml.YAMLError as error:
        raise NotYaml(" ".join(str(error).split())[:300]) from None
    except RecursionError:
        raise NotYaml("it is nested too deeply") from None
    # The parser lets through what Python says of a character or a version that does not exist.
    except (ValueError, OverflowError) as error:
        raise NotYaml(str(error)[:300]) from None


def _compose(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it has an alias, and aliases are not taken")
            return super().compose_node(parent, index)

    return yaml.compose(text, Loader=Loader)


def _value(node: Any, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise NotYaml("it is nested too deeply")
    if node.id == "sequence":
        return [_value(item, depth + 1) for item in node.value]
    if node.id == "mapping":
        return {_key(key): _value(item, depth + 1) for key, item in node.value}
    return _scalar(node)


def _key(node: Any) -> str:
    if node.id != "scalar":
        raise NotYaml("a key is not a text")
    return clean(node.value)


def _scalar(node: Any) -> Json:
    """Only what JSON would take is more than a text, and only where it is not quoted."""
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
