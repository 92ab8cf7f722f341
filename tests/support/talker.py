"""A stand-in for codex that prints as much as a turn may print, in the shape that its `--model` names: `SHAPE-MEGABYTES`.

Run by the tests as a program of its own; it uses nothing of ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

HELP = "Usage: codex exec resume [OPTIONS] [SESSION_ID] [PROMPT] --json --skip-git-repo-check --model"
SESSION = "0b8e9a52-1c1d-4e6f-8a3b-0123456789ab"
DONE = '{"colour": "blue", "__SKILL_DONE__": true}'
LINE = 7_000_000


def message(text: str) -> str:
    return json.dumps({"type": "item.completed", "item": {"id": "m", "type": "agent_message", "text": text}})


def _huge(size: int) -> Iterator[str]:
    for _ in range(max(1, size // LINE)):
        yield message("word " * (LINE // 5))


def _tiny(size: int) -> Iterator[str]:
    line = message("hi")
    for _ in range(size // len(line)):
        yield line


def _tools(size: int) -> Iterator[str]:
    for number in range(size // 90):
        item = {"id": f"call-{number}", "type": "command_execution", "command": "ls"}
        yield json.dumps({"type": "item.started", "item": item})


def _wide(size: int) -> Iterator[str]:
    for _ in range(max(1, size // LINE)):
        yield '{"type": "item.completed", "item": [' + "[]," * (LINE // 3) + "[]]}"


def _braces(size: int) -> Iterator[str]:
    for _ in range(max(1, size // LINE)):
        yield message('{"a":' * (LINE // 8))


def _markers(size: int) -> Iterator[str]:
    for _ in range(max(1, size // LINE)):
        yield message('"__SKILL_DONE__" <ASK_USER_YAML>\n' * (LINE // 36))


def _stderr(size: int) -> Iterator[str]:
    for _ in range(size // 1_000_000):
        sys.stderr.write("warning \x1b[1m\n" * 70_000)
    yield message("done")


SHAPES: dict[str, Callable[[int], Iterator[str]]] = {
    "huge": _huge,
    "tiny": _tiny,
    "tools": _tools,
    "wide": _wide,
    "braces": _braces,
    "markers": _markers,
    "stderr": _stderr,
}
SHORT_LINES = frozenset({"tiny", "tools", "stderr"})


def question(size: int) -> str:
    """A question that is as large as it can be in each of its parts."""
    long = "x" * size
    fields = {f"field{number}": {"type": "string", "description": long} for number in range(50)}
    ask = {
        "interaction_id": "big",
        "prompt": f"Which one? {long}",
        "options": [{"label": f"{number} {long}", "value": str(number), "description": long} for number in range(200)],
        "context": {"note": long},
        "response_schema": {"type": "object", "properties": fields},
    }
    return json.dumps({"ask_user": ask})


def main() -> None:
    words = sys.argv[1:]
    if "--help" in words or "--version" in words:
        print(HELP if "--help" in words else "codex-cli 9.9.9")
        return
    sys.stdin.read()
    shape, _, megabytes = next(word for word in words if word.startswith("--model=")).partition("=")[2].partition("-")
    size = int(float(megabytes) * 1_000_000)
    print(json.dumps({"type": "thread.started", "thread_id": SESSION}))
    if shape == "ask":
        print(message(question(size)))
    else:
        for line in SHAPES[shape](size):
            sys.stdout.write(line + "\n")
        print(message(DONE))
    print(json.dumps({"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}}))


if __name__ == "__main__":
    main()
