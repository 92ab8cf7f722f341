"""The models of Codex: `model/list` of its app server, which answers without a sign-in, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from askback.engines.base import Send, Stream
from askback.engines.codex.app_server import CLIENT
from askback.engines.model_lists import MAX_MODELS, Dialog, Model, distinct, model, objects
from askback.engines.protocols.json_lines import decode_line, object_at, text_at
from askback.engines.protocols.json_rpc import JsonRpcChannel


class CodexModels(Dialog):
    """With a key it signs in first: the list depends on the account."""

    def __init__(self, *, api_key: str | None) -> None:
        super().__init__()
        self._api_key = api_key
        self._channel = JsonRpcChannel(header={})
        self._pages: list[Model | None] = []

    def begin(self) -> Iterator[Send]:
        yield self._channel.request("initialize", CLIENT)

    def feed(self, stream: Stream, line: bytes) -> Iterator[Send]:
        if stream is Stream.STDERR:
            self._stderr.add(line)
            return
        message = decode_line(line)
        if message is None or self.is_over or text_at(message, "method"):
            return
        step = self._channel.answered(message)
        if step is None:
            return
        if "error" in message:
            self._refusal = text_at(message, "error", "message") or f"it refused {step}"
            return
        yield from self._read(step, object_at(message, "result"))

    def _read(self, step: str, result: Mapping[str, Any]) -> Iterator[Send]:
        match step:
            case "initialize":
                yield self._channel.notify("initialized")
                if self._api_key:
                    yield self._channel.request("account/login/start", {"type": "apiKey", "apiKey": self._api_key})
                else:
                    yield self._channel.request("model/list", {})
            case "account/login/start":
                yield self._channel.request("model/list", {})
            case _:
                yield from self._collect(result)

    def _collect(self, result: Mapping[str, Any]) -> Iterator[Send]:
        before = len(self._pages)
        self._pages += [_model(each) for each in objects(result.get("data")) if each.get("hidden") is not True]
        cursor = text_at(result, "nextCursor")
        if cursor and before < len(self._pages) < MAX_MODELS:
            yield self._channel.request("model/list", {"cursor": cursor})
        else:
            self._found = distinct(self._pages)


def _model(each: Mapping[str, Any]) -> Model | None:
    efforts = [text_at(effort, "reasoningEffort") for effort in objects(each.get("supportedReasoningEfforts"))]
    is_default = each.get("isDefault") is True
    return model(each, text_at(each, "model"), text_at(each, "displayName"), efforts=efforts, is_default=is_default)
