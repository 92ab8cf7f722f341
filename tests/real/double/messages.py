"""Anthropic Messages, as claude speaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from double.record import Asked, Entry, Kind
from double.wire import Answer, Dialect, Json, frame, plain_text

_REASONS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 500: "api_error"}


def read(path: str, body: Json) -> Asked:
    messages = body.get("messages", [])
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    return Asked(
        model=str(body.get("model")),
        streaming=bool(body.get("stream")),
        system="\n".join([plain_text(body.get("system")), *map(_system_text, messages)]),
        transcript=tuple(entry for each in messages if not _system_text(each) for entry in _entries(each)),
        tools={tool["name"]: tool.get("input_schema") or {} for tool in body.get("tools") or ()},
        schema=wanted.get("schema", {}) if wanted else None,
    )


def _system_text(message: Json) -> str:
    return plain_text(message["content"]) if message["role"] == "system" else ""


def _entries(message: Json) -> Iterator[Entry]:
    role, content = message["role"], message["content"]
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match part["type"]:
            case "text":
                yield Entry(role=role, text=part["text"])
            case "tool_use":
                yield Entry(role=role, kind=Kind.TOOL_CALL, name=part["name"], text=json.dumps(part["input"]))
            case "tool_result":
                yield Entry(role=role, kind=Kind.TOOL_RESULT, text=plain_text(part.get("content")))


def whole(answer: Answer, asked: Asked) -> Json:
    return _message(answer, asked) | {
        "content": _blocks(answer),
        "stop_reason": _reason(answer),
        "usage": _usage(answer),
    }


def frames(answer: Answer, asked: Asked) -> Iterator[bytes]:
    begun = _message(answer, asked) | {"usage": _usage(answer) | {"output_tokens": 1}}
    yield _event("message_start", message=begun)
    for index, block in enumerate(_blocks(answer)):
        empty: Json = {"text": ""} if block["type"] == "text" else {"input": {}}
        yield _event("content_block_start", index=index, content_block=block | empty)
        for delta in _deltas(answer, block):
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ended = {"stop_reason": _reason(answer), "stop_sequence": None}
    yield _event("message_delta", delta=ended, usage={"output_tokens": answer.tokens.output})
    yield _event("message_stop")


def _event(kind: str, **data: object) -> bytes:
    return frame({"type": kind, **data}, event=kind)


def _deltas(answer: Answer, block: Json) -> Iterator[Json]:
    if block["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return
    for piece in answer.pieces:
        yield {"type": "text_delta", "text": piece}


def _message(answer: Answer, asked: Asked) -> Json:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _blocks(answer: Answer) -> list[Json]:
    text = [{"type": "text", "text": answer.text}] if answer.text else []
    return text + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in answer.calls
    ]


def _reason(answer: Answer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _usage(answer: Answer) -> Json:
    tokens = answer.tokens
    return {
        "input_tokens": tokens.prompt - tokens.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
    }


def refusal(status: int, message: str) -> Json:
    return {"type": "error", "error": {"type": _REASONS.get(status, "invalid_request_error"), "message": message}}


MESSAGES = Dialect(name="messages", read=read, whole=whole, frames=frames, refusal=refusal)
