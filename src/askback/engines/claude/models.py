"""The models of Claude: its response to `initialize`, the first control request of a resident process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from askback.engines.base import Send, Stream
from askback.engines.model_lists import Dialog, Model, distinct, model, objects
from askback.engines.protocols.json_lines import decode_line, object_at, text_at

_ID = "models"
_DEFAULT = "default"


class ClaudeModels(Dialog):
    """Claude answers without a sign-in, too. No prompt is sent."""

    def begin(self) -> Iterator[Send]:
        request = {"type": "control_request", "request_id": _ID, "request": {"subtype": "initialize"}}
        yield Send(data=json.dumps(request).encode() + b"\n")

    def feed(self, stream: Stream, line: bytes) -> Iterator[Send]:
        if stream is Stream.STDERR:
            self._stderr.add(line)
        elif (event := decode_line(line)) is not None:
            self._read(object_at(event, "response"))
        return iter(())

    def _read(self, response: Mapping[str, Any]) -> None:
        if text_at(response, "request_id") != _ID:
            return
        listed = object_at(response, "response").get("models")
        if text_at(response, "subtype") == "success" and isinstance(listed, list):
            self._found = distinct(_model(each) for each in objects(listed))
        else:
            self._refusal = text_at(response, "error") or "this version does not list its models"


def _model(each: Mapping[str, Any]) -> Model | None:
    id_, levels = text_at(each, "value"), each.get("supportedEffortLevels")
    efforts = [level for level in levels if isinstance(level, str)] if isinstance(levels, list) else []
    return model(each, id_, text_at(each, "displayName"), efforts=efforts, is_default=id_ == _DEFAULT)
