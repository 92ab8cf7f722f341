"""What parsers and queries for models share: the base of parsers of JSON lines, bounded buffers, and the list of models.

The newest messages of a turn are stored, and the rest is only counted. The marker, questions and outputs are searched
for in the stored messages.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar

from askback.core.runs import Usage
from askback.engines.base import AssistantMessage, Completed, EngineEvent, Exit, Model, NoModels, Stream, TurnFailed
from askback.engines.failures import crashed, stopped, unknown_session
from askback.engines.protocols.json_lines import Tail, as_detail, decode_line, plain, text_at
from askback.text.formatting import one_line
from askback.text.json_text import clean

MAX_TEXT = 8_000_000
"""The most characters of assistant messages that are stored per turn."""
MAX_MESSAGES = 5_000
MAX_ID = 200

MAX_MODELS = 1_000
_MAX_MODEL_ID = 200
_MAX_WORDS = 300
_MAX_RECENT = 10_000
_PIECES_AT_ONCE = 4_096

V = TypeVar("V")


class JsonLinesParser:
    """Reads events on stdout, one JSON object per line, and the end of stderr. Subclasses read the events."""

    unknown_session: ClassVar[re.Pattern[str] | None] = None
    """How the program says that it does not have the session to resume."""

    def __init__(self, *, resuming: bool = False) -> None:
        self._resuming = resuming
        self._stderr = Tail()

    def feed(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        if stream is Stream.STDERR:
            yield from self._listen(line)
        elif (event := decode_line(line)) is not None:
            yield from self._read(event)

    def _listen(self, line: bytes) -> Iterator[EngineEvent]:
        """Read a line of stderr."""
        self._stderr.add(line)
        return iter(())

    def _read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        raise NotImplementedError

    def _unknown(self, words: str) -> TurnFailed | None:
        """The result if the program says that it does not have the session."""
        is_unknown = self._resuming and self.unknown_session is not None and self.unknown_session.search(words)
        return unknown_session(words) if is_unknown else None

    def _unfinished(self, ended: Exit, retrying: str = "", said: str = "") -> TurnFailed:
        """The result of a program that ended without its end-of-turn event.

        `retrying` is its last retry notice, and `said` what else than stderr explains a crash.
        """
        stderr = self._stderr.text
        crash = crashed(ended, as_detail(f"{said}\n{stderr}"))
        return self._unknown(stderr) or stopped(ended, retrying, stderr) or crash


def tool_detail(given: Mapping[str, Any]) -> str:
    """The input of a tool: its command if it has one, otherwise everything."""
    return text_at(given, "command") or (clean(json.dumps(given, ensure_ascii=False)) if given else "")


def usage_of(sent: int, generated: int, cached: int | None = None, reasoning: int | None = None) -> Usage:
    """Token counts; None if the program does not report it. `sent` includes cached tokens, `generated` reasoning."""
    return Usage(
        input_tokens=sent,
        output_tokens=generated,
        cached_tokens=cached,
        total_tokens=sent + generated,
        reasoning_tokens=reasoning,
    )


class Messages:
    """The newest assistant messages of one turn: at most `MAX_MESSAGES`, with `MAX_TEXT` characters in total."""

    def __init__(self, said: Iterable[str] = ()) -> None:
        self._newest: deque[str] = deque()
        self._size = 0
        self._left_out = 0
        self._shortened = False
        for text in said:
            self.add(text)

    def __bool__(self) -> bool:
        return bool(self._newest)

    @property
    def said(self) -> int:
        """How many messages there were, including those left out."""
        return self._left_out + len(self._newest)

    def add(self, text: str, *, shortened: bool = False) -> str:
        """Add a message and return the part that is stored: the end, if it is too long."""
        self._shortened = self._shortened or shortened or len(text) > MAX_TEXT
        text = text[-MAX_TEXT:]
        self._newest.append(text)
        self._size += len(text)
        while self._size > MAX_TEXT or len(self._newest) > MAX_MESSAGES:
            self._size -= len(self._newest.popleft())
            self._left_out += 1
        return text

    def take(self, pieces: Pieces) -> Iterator[AssistantMessage]:
        """Add the message that has arrived in pieces, if there is one."""
        text, shortened = pieces.text, pieces.shortened
        pieces.clear()
        if text.strip():
            yield AssistantMessage(text=self.add(text, shortened=shortened))

    def completed(self, *, after: int = 0, session: str | None = None) -> Completed:
        """The result of a successful turn, with all messages but the first `after`."""
        left_out = max(0, self._left_out - after)
        messages = tuple(self._newest)[max(0, after - self._left_out) :]
        return Completed(messages=messages, left_out=left_out, shortened=self._shortened, session=session)


class Pieces:
    """A text that arrives in pieces of any size. Only its last `MAX_TEXT` characters are stored."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._chunks: deque[str] = deque()
        self._pieces: list[str] = []
        self._size = 0
        self.shortened = False

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        # Joined from time to time: millions of two-character strings would take thirty times their text in memory.
        if len(self._pieces) >= _PIECES_AT_ONCE or self._size > MAX_TEXT:
            self._join()

    def _join(self) -> None:
        if self._pieces:
            self._chunks.append("".join(self._pieces))
            self._pieces = []
        while len(self._chunks) > 1 and self._size - len(self._chunks[0]) >= MAX_TEXT:
            self._size -= len(self._chunks.popleft())
            self.shortened = True

    @property
    def text(self) -> str:
        self._join()
        whole = "".join(self._chunks)
        self.shortened = self.shortened or len(whole) > MAX_TEXT
        return whole[-MAX_TEXT:]


class Recent(Generic[V]):
    """A bounded mapping from id to value, such as open tool calls. If it is full, the oldest entry is dropped."""

    def __init__(self) -> None:
        self._values: dict[str, V] = {}

    def __contains__(self, key: str) -> bool:
        return key[:MAX_ID] in self._values

    def get(self, key: str) -> V | None:
        return self._values.get(key[:MAX_ID])

    def put(self, key: str, value: V) -> None:
        self._values[key[:MAX_ID]] = value
        if len(self._values) > _MAX_RECENT:
            del self._values[next(iter(self._values))]

    def pop(self, key: str) -> V | None:
        return self._values.pop(key[:MAX_ID], None)


# Lists of models.


class Dialog:
    """What queries for models share: the answer, and the reason if there is none."""

    def __init__(self) -> None:
        self._found: Sequence[Model] | None = None
        self._refusal = ""
        self._stderr = Tail()

    @property
    def is_over(self) -> bool:
        return self._found is not None or bool(self._refusal)

    def finish(self, exit_code: int | None) -> Sequence[Model] | NoModels:
        if self._found is not None:
            return self._found
        words = one_line(self._refusal or plain(self._stderr.text), _MAX_WORDS)
        ended = "it did not answer" if exit_code is None else f"it ended with {exit_code}"
        return NoModels(reason=words or ended)


def model(each: Any, id_: str, title: str, *, efforts: Iterable[str] = (), is_default: bool = False) -> Model | None:
    """A model from an object of a program's answer. None: it has no usable id."""
    if not id_ or len(id_) > _MAX_MODEL_ID or not id_.isprintable():
        return None
    return Model(
        id=id_,
        title=one_line(title, _MAX_MODEL_ID) or None,
        description=one_line(text_at(each, "description"), _MAX_WORDS) or None,
        efforts=tuple(one_line(effort, _MAX_MODEL_ID) for effort in efforts if effort),
        is_default=is_default,
    )


def distinct(models: Iterable[Model | None]) -> tuple[Model, ...]:
    """Models by their ids, the first of each; at most `MAX_MODELS`."""
    found: dict[str, Model] = {}
    for each in islice(models, MAX_MODELS):
        if each is not None:
            found.setdefault(each.id, each)
    return tuple(found.values())
