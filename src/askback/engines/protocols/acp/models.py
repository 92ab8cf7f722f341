"""The models of a program that speaks the Agent Client Protocol: it lists them when a session is created."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from askback.engines.base import Send, Stream
from askback.engines.model_lists import Dialog, Model, distinct, model, objects
from askback.engines.protocols.acp.conversation import AUTH_REQUIRED, INITIALIZE
from askback.engines.protocols.acp.turn import Dialect, words_of
from askback.engines.protocols.json_lines import decode_line, object_at, text_at
from askback.engines.protocols.json_rpc import VERSION, JsonRpcChannel


def _unchanged(model_id: str) -> str:
    return model_id


class AcpModels(Dialog):
    """Creates a session, and reads its `models`. No prompt is sent.

    `option`: turns the id of a model in the protocol into the name that the program's command line takes.
    """

    def __init__(self, *, cwd: str, dialect: Dialect, option: Callable[[str], str] = _unchanged) -> None:
        super().__init__()
        self._cwd = cwd
        self._dialect = dialect
        self._option = option
        self._channel = JsonRpcChannel(VERSION)
        self._tried_to_sign_in = False

    def begin(self) -> Iterator[Send]:
        yield self._channel.request("initialize", INITIALIZE)

    def feed(self, stream: Stream, line: bytes) -> Iterator[Send]:
        if stream is Stream.STDERR:
            if not self._dialect.noise(line.decode("utf-8", "replace")):
                self._stderr.add(line)
            return
        message = decode_line(line)
        if message is None or self.is_over:
            return
        if method := text_at(message, "method"):
            if "id" in message:
                yield self._channel.refuse(message["id"], method)
            return
        step = self._channel.answered(message)
        if step is not None:
            yield from self._read(step, message)

    def _read(self, step: str, response: Mapping[str, Any]) -> Iterator[Send]:
        if "result" not in response:
            yield from self._refused(step, object_at(response, "error"))
        elif step == "session/new":
            self._found = self._listed(object_at(response, "result", "models"))
            if not self._found:
                self._found, self._refusal = None, "this version does not list its models"
        elif step == "initialize" and self._dialect.sign_in and _is_signed_out(object_at(response, "result")):
            yield self._sign_in(self._dialect.sign_in)
        else:
            yield self._channel.request("session/new", {"cwd": self._cwd, "mcpServers": []})

    def _sign_in(self, way: str) -> Send:
        self._tried_to_sign_in = True
        return self._channel.request("authenticate", {"methodId": way})

    def _refused(self, step: str, error: Mapping[str, Any]) -> Iterator[Send]:
        way = self._dialect.sign_in
        if error.get("code") == AUTH_REQUIRED and step == "session/new" and way and not self._tried_to_sign_in:
            yield self._sign_in(way)
        else:
            self._refusal = words_of(error) or f"it refused {step}"

    def _listed(self, models: Mapping[str, Any]) -> tuple[Model, ...]:
        current = text_at(models, "currentModelId")
        return distinct(
            model(
                each,
                self._option(text_at(each, "modelId")),
                text_at(each, "name"),
                is_default=text_at(each, "modelId") == current,
            )
            for each in objects(models.get("availableModels"))
        )


def _is_signed_out(result: Mapping[str, Any]) -> bool:
    return result.get("isAuthenticated") is False
