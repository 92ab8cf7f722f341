"""The way to a session of a program that speaks the Agent Client Protocol, and the models that it offers there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from askback.core.interactions import Json
from askback.engines.base import Model, Send, Stream
from askback.engines.parser import Dialog, distinct, model
from askback.engines.protocols.acp_turn import Dialect, words_of
from askback.engines.protocols.json_lines import (
    JSON_RPC_VERSION,
    JsonRpcChannel,
    decode_line,
    object_at,
    objects_at,
    text_at,
)

PROTOCOL_VERSION = 1
_CAPABILITIES = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False, "elicitation": {"form": {}}}
AUTH_REQUIRED = -32000
RESUME, LOAD = "session/resume", "session/load"
_OPENING = ("session/new", RESUME, LOAD)


class Handshake:
    """The way to a session: `initialize`, `authenticate` if the program asks for it, then the session.

    `session`: the one to continue; empty for a new one. `servers`: the MCP servers that the program gets.
    """

    def __init__(
        self, *, cwd: str, dialect: Dialect, session: str = "", servers: Sequence[Mapping[str, Json]] = ()
    ) -> None:
        self._place = {"cwd": cwd, "mcpServers": list(servers)}
        self._dialect = dialect
        self._session = session
        self._tried_to_sign_in = False
        self._offered: Mapping[str, Any] = {}
        self.channel = JsonRpcChannel(JSON_RPC_VERSION)

    def begin(self) -> Send:
        return self.channel.request(
            "initialize", {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": _CAPABILITIES}
        )

    def proceed(self, step: str, result: Mapping[str, Any]) -> Send | None:
        """The request after the result of `initialize` or `authenticate`. None: the session cannot be continued."""
        sign_in = self._dialect.sign_in
        if step == "initialize":
            self._offered = result
            if result.get("isAuthenticated") is False and sign_in is not None:
                return self._authenticate(sign_in)
        if not self._session:
            return self.channel.request("session/new", self._place)
        way = continuation(self._offered, self._dialect.resume)
        return None if way is None else self.channel.request(way, {"sessionId": self._session, **self._place})

    def retry(self, step: str, error: Mapping[str, Any]) -> Send | None:
        """The request that follows a refusal, if a sign-in may help."""
        may_help = error.get("code") == AUTH_REQUIRED and step in _OPENING and not self._tried_to_sign_in
        sign_in = self._dialect.sign_in
        return self._authenticate(sign_in) if may_help and sign_in is not None else None

    def _authenticate(self, way: str) -> Send:
        self._tried_to_sign_in = True
        return self.channel.request("authenticate", {"methodId": way})

    @property
    def closes_sessions(self) -> bool:
        """Whether the program can be asked to close a session, and so to store all of it."""
        return "close" in object_at(self._offered, "agentCapabilities", "sessionCapabilities")


def continuation(initialized: Mapping[str, Any], wanted: str) -> str | None:
    """The request that continues a session, by what `initialize` says and the setting `resume`. None: there is none."""
    capabilities = object_at(initialized, "agentCapabilities")
    offered = {
        RESUME: "resume" in object_at(capabilities, "sessionCapabilities"),
        LOAD: capabilities.get("loadSession"),
    }
    ways = (RESUME, LOAD) if wanted == "auto" else (f"session/{wanted}",)
    return next((way for way in ways if offered.get(way)), None)


def option_of(session: Mapping[str, Any], *categories: str) -> Mapping[str, Any]:
    """The first configuration option of a session with one of these categories; empty if there is none."""
    options = objects_at(session, "configOptions")
    return next((each for each in options if text_at(each, "category") in categories), {})


class AcpModels(Dialog):
    """Creates a session, and reads its `models`. No prompt is sent.

    `option`: turns the id of a model in the protocol into the name that the program's command line takes.
    """

    def __init__(self, *, cwd: str, dialect: Dialect, option: Callable[[str], str] = str) -> None:
        super().__init__()
        self._dialect = dialect
        self._option = option
        self._handshake = Handshake(cwd=cwd, dialect=dialect)

    def begin(self) -> Iterator[Send]:
        yield self._handshake.begin()

    def feed(self, stream: Stream, line: bytes) -> Iterator[Send]:
        if stream is Stream.STDERR:
            if not self._dialect.noise(line.decode("utf-8", "replace")):
                self._stderr.add(line)
            return
        message, channel = decode_line(line), self._handshake.channel
        if message is None or self.is_over:
            return
        if method := text_at(message, "method"):
            if "id" in message:
                yield channel.refuse(message["id"], method)
        elif (step := channel.answered(message)) is not None:
            yield from self._read(step, message)

    def _read(self, step: str, response: Mapping[str, Any]) -> Iterator[Send]:
        if "result" not in response:
            error = object_at(response, "error")
            if (retry := self._handshake.retry(step, error)) is not None:
                yield retry
            else:
                self._refusal = words_of(error) or f"it refused {step}"
        elif step == "session/new":
            session = object_at(response, "result")
            models, option = object_at(session, "models"), option_of(session, "model")
            self._found = (
                self._listed(objects_at(models, "availableModels"), "modelId", text_at(models, "currentModelId"))
                or self._listed(objects_at(option, "options"), "value", text_at(option, "currentValue"))
                or None
            )
            self._refusal = "" if self._found else "this version does not list its models"
        elif (request := self._handshake.proceed(step, object_at(response, "result"))) is not None:
            yield request

    def _listed(self, models: list[Mapping[str, Any]], key: str, current: str) -> tuple[Model, ...]:
        return distinct(
            model(
                each, self._option(text_at(each, key)), text_at(each, "name"), is_default=text_at(each, key) == current
            )
            for each in models
        )
