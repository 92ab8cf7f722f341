"""The program's input: its command line, its prompts, and the JSON lines sent to a resident process."""

from __future__ import annotations

import json
import os
import re
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


_CHUNK = 1 << 16
_POLL_SEC = 0.004


class Input:
    """Waits for one kind of message at a time. Other messages are ignored, with a note on stderr."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None
        """Called repeatedly while there is nothing to read."""
        self._lines: list[bytes] = []
        self._rest = b""

    def next(self, kind: str, message_id: str | None = None) -> dict[str, Any] | None:
        """The next message of that kind and id, or None at the end of the input."""
        while (line := self._line()) is not None:
            message = _read(line)
            if message.get("type") == kind and message.get("id") == message_id:
                return message
            print(f"ignored: not a {kind} message: {line[:200]!r}", file=sys.stderr, flush=True)
        return None

    def _line(self) -> bytes | None:
        parts = [self._rest]
        while not self._lines:
            while self.meanwhile is not None and not select.select([0], [], [], _POLL_SEC)[0]:
                self.meanwhile()
            data = os.read(0, _CHUNK)
            if not data:
                return None
            parts.append(data)
            if b"\n" in data:
                *self._lines, last = b"".join(parts).split(b"\n")
                self._rest = last
        return self._lines.pop(0)


def _read(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


_REPLY = re.compile(r"<user_reply interaction_id=[^>]*>\n?(.*)</user_reply>", re.DOTALL)
_TRANSCRIPT = re.compile(r"\n<transcript>\n(.*)\n</transcript>\n", re.DOTALL)
_QUESTION = re.compile(r"^<question>\n.*?\n</question>$", re.DOTALL | re.MULTILINE)


def facts_of(records: Sequence[dict[str, Any]], turn: int, session_id: str) -> dict[str, Any]:
    """The values for placeholders, from the session's records. The last prompt is that of this turn."""
    prompts = [str(record.get("text", "")) for record in records if record.get("type") == "prompt"]
    replies = [reply for record in records for reply in _replies(record)]
    return {
        "prompt": prompts[-1],
        "prompt_length": len(prompts[-1]),
        "reply": replies[-1],
        "reply_json": _json_or_text(replies[-1]),
        "replies": [reply for reply in replies if reply is not None],
        "input": _data(prompts, "input"),
        "parameter": _data(prompts, "parameter"),
        "turn": turn,
        "session_id": session_id,
    }


def turns_in_transcript(prompt: str) -> int:
    """How many turns the prompt of a new session tells of, because an earlier session was lost: one for each question."""
    return len(_transcribed(prompt))


def _transcribed(prompt: str) -> list[str]:
    """What follows each question in the transcript of a lost session."""
    found = _TRANSCRIPT.search(prompt)
    return [] if found is None else _QUESTION.split(found[1])[1:]


def _replies(record: dict[str, Any]) -> list[str | None]:
    if record.get("answered") is True:
        return [_replied({"text": record.get("output")})]
    if record.get("type") not in ("prompt", "answer"):
        return []
    earlier = _transcribed(str(record.get("text", "")))
    return [_replied({"type": "prompt", "text": each}) for each in earlier] or [_replied(record)]


def _replied(record: dict[str, Any]) -> str | None:
    """The answer in a prompt or in the result of the ask tool, or the one received through the program's own protocol."""
    response = record.get("response")
    if record.get("type") == "answer":
        return response if response is None or isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    found = _REPLY.search(str(record.get("text", "")))
    return None if found is None else found[1].removesuffix("\n")


def _json_or_text(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _data(prompts: Sequence[str], tag: str) -> Any:
    """The JSON object in the first prompt that has one between `<tag>` and `</tag>`."""
    for prompt in (_TRANSCRIPT.sub("", prompt) for prompt in prompts):
        end = prompt.rfind(f"</{tag}>")
        start = prompt.rfind(f"<{tag}>", 0, max(end, 0))
        data = _json_or_text(prompt[start + len(tag) + 2 : end]) if start >= 0 else None
        if isinstance(data, dict):
            return data
    return {}


VERSION = "scripted 1.0.0"
HELP = """\
usage: scripted [options] < PROMPT
       scripted --stay [options]

Plays a script in place of a coding agent and prints what it does as JSON lines.

  --script=FILE          the script to play; if repeated, the last one counts
  --default-script=FILE  the script to play if there is no --script and the file exists
  --mode=MODE            auto or interactive: which part of a turn is played
  --model=NAME           recorded in the session; has no other effect
  --effort=LEVEL         recorded in the session; has no other effect
  --ask-tool=COMMAND     an MCP server with the tool put_question, as a JSON list; without it, a block is written
  --gate=COMMAND         a hook that is asked before each call of a tool, as a JSON list
  --resume=SESSION_ID    resume a session
  --stay                 keep running and read prompts as JSON lines, in one session
  --no-native            with --stay: do not ask through the program's own protocol
  --no-resume            act as a version that cannot resume a session
  --check=FILE           print the problems of a script, and play nothing
  --version, --help
"""

_NAMES = ("check", "script", "default-script", "mode", "model", "effort", "ask-tool", "gate", "resume")
_FLAGS = ("stay", "no-native", "no-resume")


class UsageError(Exception):
    """The command line is invalid."""


def read_options(argv: Sequence[str]) -> dict[str, str]:
    """The options by name. `--name value` and `--name=value` are the same; later options replace earlier ones."""
    options: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in _FLAGS and not equals:
            options[name] = "yes"
            continue
        if not word.startswith("--") or name not in _NAMES:
            raise UsageError(f"unknown argument {word!r}; the prompt is read from standard input")
        if not equals:
            value = next(words, "")
        if not value:
            raise UsageError(f"--{name} needs a value")
        options[name] = value
    if "resume" in options and "no-resume" in options:
        raise UsageError("unknown argument '--resume': this version cannot resume a session")
    return options


def help_text(argv: Sequence[str]) -> str:
    """The help text; with `--no-resume`, that of a version without resume."""
    if "--no-resume" not in argv:
        return HELP
    return "".join(line for line in HELP.splitlines(keepends=True) if "resume" not in line)
