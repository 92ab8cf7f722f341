"""OpenAI Responses, as codex speaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from double.record import Asked, Entry, Kind
from double.wire import Answer, Call, Dialect, Json, frame, plain_text, texts

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def read(path: str, body: Json) -> Asked:
    given = body.get("input", [])
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    wanted = (body.get("text") or {}).get("format") or {}
    return Asked(
        model=str(body.get("model")),
        streaming=bool(body.get("stream")),
        system="\n".join([plain_text(body.get("instructions")), *map(_system_text, items)]),
        transcript=tuple(entry for item in items if not _system_text(item) for entry in _entries(item)),
        tools={name: each for tool in body.get("tools") or () for name, each in _tools(tool)},
        schema=wanted.get("schema", {}) if wanted.get("type", "text") != "text" else None,
    )


def _tools(tool: Json) -> Iterator[tuple[str, Json]]:
    """Names with their parameters. Codex puts the tools of an MCP server into a namespace: `namespace/name`."""
    yield tool.get("name", tool["type"]), tool.get("parameters") or {}
    if tool["type"] == "namespace":
        yield from ((f"{tool['name']}/{each['name']}", each.get("parameters") or {}) for each in tool["tools"])


def _system_text(item: Json) -> str:
    return plain_text(item.get("content")) if item.get("role") in ("system", "developer") else ""


def _entries(item: Json) -> Iterator[Entry]:
    kind = item.get("type", "message")
    if kind == "message":
        for text in texts(item.get("content")):
            yield Entry(role=item["role"], text=text)
    elif kind in _CALLS:
        arguments = item.get("arguments", item.get("input", item.get("action")))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        yield Entry(role="assistant", kind=Kind.TOOL_CALL, name=item.get("name", kind), text=text)
    elif kind in _RESULTS:
        yield Entry(role="user", kind=Kind.TOOL_RESULT, text=plain_text(item.get("output")))


def whole(answer: Answer, asked: Asked) -> Json:
    return _response(answer, asked, "completed") | {"output": _items(answer), "usage": _usage(answer)}


def frames(answer: Answer, asked: Asked) -> Iterator[bytes]:
    yield _event("response.created", response=_response(answer, asked, "in_progress"))
    items = _items(answer)
    for index, item in enumerate(items):
        empty: Json = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield _event("response.output_item.added", output_index=index, item=item | empty | {"status": "in_progress"})
        if item["type"] == "message":
            for piece in answer.pieces:
                place = {"item_id": item["id"], "output_index": index, "content_index": 0}
                yield _event("response.output_text.delta", **place, delta=piece)
        yield _event("response.output_item.done", output_index=index, item=item)
    ended = _response(answer, asked, "completed") | {"output": items, "usage": _usage(answer)}
    yield _event("response.completed", response=ended)


def _event(kind: str, **data: object) -> bytes:
    return frame({"type": kind, **data}, event=kind)


def _response(answer: Answer, asked: Asked, status: str) -> Json:
    return {"id": answer.id, "object": "response", "created_at": 0, "model": asked.model, "status": status}


def _items(answer: Answer) -> list[Json]:
    return ([_message(answer)] if answer.text else []) + [_call(call) for call in answer.calls]


def _message(answer: Answer) -> Json:
    part = {"type": "output_text", "text": answer.text, "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{answer.id}",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def _call(call: Call) -> Json:
    namespace, slash, name = call.name.rpartition("/")
    return {
        **({"namespace": namespace} if slash else {}),
        "type": "function_call",
        "id": f"fc_{call.id}",
        "call_id": call.id,
        "name": name,
        "arguments": call.arguments_json,
        "status": "completed",
    }


def _usage(answer: Answer) -> Json:
    tokens = answer.tokens
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens.total,
    }


def refusal(status: int, message: str) -> Json:
    return {"error": {"message": message, "type": "double_error", "param": None, "code": None}}


RESPONSES = Dialect(name="responses", read=read, whole=whole, frames=frames, refusal=refusal)
