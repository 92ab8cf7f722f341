"""Messages of the Agent Client Protocol: how those are written that are sent, and what is in those that come.

No state and no order: what follows what is the conversation's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from askback.core.runs import Usage
from askback.engines.json_lines import count_at, object_at, text_at
from askback.engines.json_text import clean

# A text that begins otherwise than with a letter may be a command to the program; after a block of ours it is none.
_PREFACE = "What follows is the message, word for word.\n"


def usage_in(tokens: Mapping[str, Any]) -> Usage:
    """Tokens as the protocol counts them, or in the words of a program that counts on its own.

    What was cached or thought stands within the rest or beside it; which it is, only the total tells.
    """
    given = count_at(tokens, "inputTokens") or count_at(tokens, "input_tokens")
    made = count_at(tokens, "outputTokens") or count_at(tokens, "output_tokens")
    cached = count_at(tokens, "cachedReadTokens")
    beside = max(0, count_at(tokens, "totalTokens") - given - made)
    if beside >= cached:
        given, beside = given + cached, beside - cached
    made += beside
    return Usage(input_tokens=given, output_tokens=made, cached_tokens=cached, total_tokens=given + made)


def as_it_is(text: str) -> list[dict[str, str]]:
    texts = (text,) if text[:1].isalnum() else (_PREFACE, text)
    return [{"type": "text", "text": clean(each)} for each in texts]


def words_of(error: Mapping[str, Any]) -> str:
    """All that an error says: its message is often no more than that there is one."""
    details = text_at(error, "data", "details") or text_at(error, "data", "message") or text_at(error, "data")
    rest = "" if details or not object_at(error, "data") else json.dumps(error["data"], ensure_ascii=False)
    return "\n".join(words for words in (text_at(error, "message"), details, clean(rest)) if words)
