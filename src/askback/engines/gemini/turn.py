"""Parses the output of one Gemini turn: events, one JSON object per line, or one document from older versions.

Gemini's own verdict is not enough: it reports success for truncated answers, and exits with 0 when it was killed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.runs import Usage
from askback.engines.base import (
    Completed,
    EngineEvent,
    Exit,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.failures import ended_badly, failure_of, failure_of_status
from askback.engines.parser import MAX_ID, JsonLinesParser, Messages, Pieces, Recent, tool_detail, usage_of
from askback.engines.protocols.json_lines import as_detail, count_at, count_or_none, decode_line, object_at, text_at

_NOT_SIGNED_IN = 41
_MAX_TROUBLES = 20
_MAX_TROUBLE = 4_000
_NOISE = re.compile(r"YOLO mode is enabled|Ripgrep is not available|Warning: .*color|\[STARTUP\]")
_RETRY = re.compile(r"Attempt \d+ failed")
_RETRY_GOES_ON = "Suggested retry after"
_CUT = "stdin input truncated"
_GIVEN_UP = re.compile(r"loop detected|maximum session turns", re.IGNORECASE)


def is_noise(words: str) -> bool:
    """Whether a line of stderr is unrelated to errors."""
    return _NOISE.match(words) is not None


def retry_in(words: str, session: str = "") -> str:
    """The line of stderr, if it reports a failed request that is retried; otherwise empty."""
    return words if _RETRY.match(words) else ""


class GeminiParser(JsonLinesParser):
    """Reads the output of one process. Success is a `result` or a document with success and without errors."""

    unknown_session = re.compile(r"^Error resuming session", re.MULTILINE)

    def __init__(self, *, resuming: bool) -> None:
        super().__init__(resuming=resuming)
        self._messages = Messages()
        self._parts = Pieces()
        self._tools: Recent[str] = Recent()
        self._tools_used = False
        self._documents = {stream: Document() for stream in Stream}
        self._succeeded = False
        self._failure: tuple[ErrorCode, str] | None = None
        self._troubles: deque[str] = deque(maxlen=_MAX_TROUBLES)
        self._retrying = ""
        self._usage = Usage()

    def feed(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        if stream is Stream.STDERR:
            yield from self._listen(line)
        event = decode_line(line) if stream is Stream.STDOUT else None
        if event is not None and text_at(event, "type"):
            yield from self._read(event)
            return
        document = self._documents[stream].take(line)
        if document is not None:
            for event in events_of(document, may_succeed=stream is Stream.STDOUT):
                yield from self._read(event)

    def _listen(self, line: bytes) -> Iterator[EngineEvent]:
        words = line.decode("utf-8", "replace")
        if not is_noise(words):
            self._stderr.add(line)
        self._retrying = retry_in(words) or self._retrying
        if words.startswith(_RETRY_GOES_ON):
            self._retrying = f"{self._retrying[:_MAX_TROUBLE]}\n{words}"
        if _CUT in words:
            self._troubles.append(words[:_MAX_TROUBLE])
        return iter(())

    def _read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        kind = text_at(event, "type")
        if kind == "message" and text_at(event, "role") == "assistant":
            self._retrying = ""
            if event.get("delta") is not True:
                yield from self._flush()
            self._parts.add(text_at(event, "content"))
            return
        yield from self._flush()
        match kind:
            case "init" if session := text_at(event, "session_id"):
                yield SessionNamed(value=session)
            case "tool_use" | "tool_result":
                self._retrying, self._tools_used = "", True
                yield self._tool(event)
            case "error":
                words = text_at(event, "message")
                if text_at(event, "severity") == "error" or _GIVEN_UP.search(words):
                    self._troubles.append(words[:_MAX_TROUBLE])
            case "result":
                yield from self._end(event)

    def _flush(self) -> Iterator[EngineEvent]:
        """Complete the current message. Its pieces have no id, so it ends when another event arrives."""
        yield from self._messages.take(self._parts)

    def _tool(self, event: Mapping[str, Any]) -> EngineEvent:
        call_id = text_at(event, "tool_id")
        if text_at(event, "type") == "tool_use":
            name = text_at(event, "tool_name")[:MAX_ID]
            self._tools.put(call_id, name)
            return ToolStarted(call_id=call_id, name=name, detail=tool_detail(object_at(event, "parameters")))
        return ToolEnded(
            call_id=call_id,
            name=self._tools.pop(call_id) or "",
            ok=text_at(event, "status") == "success",
            output=text_at(event, "output") or text_at(event, "error", "message"),
        )

    def _end(self, result: Mapping[str, Any]) -> Iterator[EngineEvent]:
        if text_at(result, "status") == "success":
            self._succeeded = True
        else:
            words = text_at(result, "error", "message") or "\n".join(self._troubles) or "it did not say why"
            # The code is an HTTP status or an exit code.
            code = count_at(result, "error", "code")
            self._failure = failure_of_status(code if code >= 400 else 0, words), words
        stats = object_at(result, "stats")
        self._usage = _usage(stats)
        models = {name: _usage(each) for name, each in object_at(stats, "models").items() if isinstance(each, dict)}
        yield UsageSeen(usage=self._usage, models=models)
        yield TurnOver()

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        if self._failure is not None:
            return ended_badly(*self._failure)
        if self._succeeded:
            return self._answer()
        said = self._stderr.text
        if ended.code == _NOT_SIGNED_IN and not self._unknown(said):
            return TurnFailed(
                code=ErrorCode.ENGINE_AUTH_REQUIRED, message="the engine is not signed in", detail=as_detail(said)
            )
        return self._unfinished(ended, self._retrying)

    def _answer(self) -> Completed | TurnFailed:
        if self._troubles:
            words = "\n".join(self._troubles)
            message = "the engine gave up its turn, but reported success"
            return TurnFailed(code=failure_of(words), message=message, detail=as_detail(words))
        if not self._messages and not self._tools_used and not self._usage.output_tokens:
            message = "the engine ended its turn without an answer from the model"
            return TurnFailed(code=ErrorCode.ENGINE_CRASHED, message=message, detail=as_detail(self._stderr.text))
        return self._messages.completed()


def _usage(stats: Mapping[str, Any]) -> Usage:
    """Input tokens include cached ones. Thinking tokens are only in the total."""
    sent, total = count_at(stats, "input_tokens"), count_at(stats, "total_tokens")
    generated = max(count_at(stats, "output_tokens"), total - sent)
    return usage_of(sent, generated, count_or_none(stats, "cached"))


_COUNTS = {"prompt": "input_tokens", "candidates": "output_tokens", "cached": "cached", "total": "total_tokens"}
_MAX_CHARS = 2_000_000
_MAX_LINES = 100_000


class Document:
    """Collects a JSON object that spans several lines. It starts and ends with a brace alone on its line."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0

    def take(self, line: bytes) -> dict[str, Any] | None:
        """Add a line. Returns the object once it is complete."""
        line = line.rstrip()
        if line == b"{":
            self._lines, self._size = [line], 1
        elif self._lines:
            self._lines.append(line)
            self._size += len(line) + 1
            if self._size > _MAX_CHARS or len(self._lines) > _MAX_LINES:
                # Too large to be Gemini's document: drop it.
                self._lines = []
            elif line == b"}":
                whole, self._lines = b"\n".join(self._lines), []
                return decode_line(whole)
        return None


def events_of(document: Mapping[str, Any], *, may_succeed: bool) -> Iterator[dict[str, Any]]:
    """The equivalent events of a document; none if the object is something else."""
    error, response = object_at(document, "error"), document.get("response")
    if not error and not (may_succeed and isinstance(response, str)):
        return
    yield {"type": "init", "session_id": document.get("session_id")}
    if isinstance(response, str):
        yield {"type": "message", "role": "assistant", "content": response}
    warnings = document.get("warnings")
    for warning in warnings if isinstance(warnings, list) else []:
        yield {"type": "error", "severity": "warning", "message": warning}
    status = "error" if error else "success"
    models = object_at(document, "stats", "models").values()
    counts = [object_at(model, "tokens") for model in models if isinstance(model, dict)]
    stats = {name: sum(count_at(each, key) for each in counts) for key, name in _COUNTS.items()}
    yield {"type": "result", "status": status, "error": error, "stats": stats}
