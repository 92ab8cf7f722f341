"""OpenAI chat completions, as qwen and opencode speak it."""

from __future__ import annotations

from collections.abc import Iterator

from double.record import Asked, Entry, Kind
from double.wire import Answer, Call, Dialect, Json, frame, plain_text, texts


def read(path: str, body: Json) -> Asked:
    messages = body.get("messages", [])
    tools = [tool["function"] for tool in body.get("tools") or ()]
    return Asked(
        model=str(body.get("model")),
        streaming=bool(body.get("stream")),
        system="\n".join(plain_text(each.get("content")) for each in messages if _is_system(each)),
        transcript=tuple(entry for each in messages if not _is_system(each) for entry in _entries(each)),
        tools={tool["name"]: tool.get("parameters") or {} for tool in tools},
        schema=_schema(body.get("response_format")),
    )


def _is_system(message: Json) -> bool:
    return message["role"] in ("system", "developer")


def _entries(message: Json) -> Iterator[Entry]:
    role = message["role"]
    if role == "tool":
        yield Entry(role="user", kind=Kind.TOOL_RESULT, text=plain_text(message.get("content")))
        return
    for text in texts(message.get("content")):
        yield Entry(role=role, text=text)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield Entry(role=role, kind=Kind.TOOL_CALL, name=function["name"], text=function["arguments"])


def _schema(wanted: Json | None) -> Json | None:
    if not wanted or wanted.get("type") == "text":
        return None
    schema = wanted.get("json_schema", {}).get("schema", {})
    return schema if isinstance(schema, dict) else {}


def whole(answer: Answer, asked: Asked) -> Json:
    message: Json = {"role": "assistant", "content": answer.text or None}
    if answer.calls:
        message["tool_calls"] = [_call(call) for call in answer.calls]
    choice = {"index": 0, "message": message, "finish_reason": _reason(answer)}
    return _envelope(answer, asked, "chat.completion") | {"choices": [choice], "usage": _usage(answer)}


def frames(answer: Answer, asked: Asked) -> Iterator[bytes]:
    yield _chunk(answer, asked, {"role": "assistant", "content": ""})
    for piece in answer.pieces:
        yield _chunk(answer, asked, {"content": piece})
    for index, call in enumerate(answer.calls):
        yield _chunk(answer, asked, {"tool_calls": [{"index": index, **_call(call)}]})
    yield _chunk(answer, asked, {}, reason=_reason(answer))
    # The count comes by itself, after the last choice.
    yield frame(_envelope(answer, asked, "chat.completion.chunk") | {"choices": [], "usage": _usage(answer)})
    yield frame("[DONE]")


def _envelope(answer: Answer, asked: Asked, kind: str) -> Json:
    return {"id": answer.id, "object": kind, "created": 0, "model": asked.model}


def _chunk(answer: Answer, asked: Asked, delta: Json, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return frame(_envelope(answer, asked, "chat.completion.chunk") | {"choices": [choice]})


def _call(call: Call) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}


def _reason(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> Json:
    tokens = answer.tokens
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.total,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    }


def refusal(status: int, message: str) -> Json:
    return {"error": {"message": message, "type": "double_error", "param": None, "code": None}}


CHAT = Dialect(name="chat", read=read, whole=whole, frames=frames, refusal=refusal)
