"""What the program reads out of what it is told: the user's replies, and the skill's input and parameters."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_REPLY = re.compile(r"<user_reply interaction_id=[^>]*>\n?(.*)</user_reply>", re.DOTALL)


def facts_of(records: Sequence[dict[str, Any]], turn: int, session_id: str) -> dict[str, Any]:
    """What a script may ask for, from all that the session was told; the last prompt is this turn's."""
    prompts = [str(record.get("text", "")) for record in records if record.get("type") == "prompt"]
    replies = [_replied(record) for record in records if record.get("type") in ("prompt", "answer")]
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


def _replied(record: dict[str, Any]) -> str | None:
    """The answer that a prompt carries, or that came by the program's own protocol."""
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
    """The object between `<input>` and `</input>` of the first prompt that has one."""
    for prompt in prompts:
        end = prompt.rfind(f"</{tag}>")
        start = prompt.rfind(f"<{tag}>", 0, max(end, 0))
        data = _json_or_text(prompt[start + len(tag) + 2 : end]) if start >= 0 else None
        if isinstance(data, dict):
            return data
    return {}
