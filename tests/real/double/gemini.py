"""Gemini generateContent and streamGenerateContent, as gemini speaks them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus

from double.record import Asked, Entry, Kind
from double.wire import Answer, Dialect, Json, frame, plain_text

_REASONS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED"}


def read(path: str, body: Json) -> Asked:
    model, _, method = path.partition("?")[0].rpartition("/")[2].partition(":")
    config = body.get("generationConfig") or {}
    return Asked(
        model=model,
        streaming=method == "streamGenerateContent",
        system=plain_text((body.get("systemInstruction") or {}).get("parts")),
        transcript=tuple(entry for each in body.get("contents", ()) for entry in _entries(each)),
        tools=dict(_tools(body)),
        schema=_schema(config) if config.get("responseMimeType") == "application/json" else None,
    )


def _tools(body: Json) -> Iterator[tuple[str, Json]]:
    for group in body.get("tools") or ():
        for tool in group.get("functionDeclarations", ()):
            yield tool["name"], tool.get("parametersJsonSchema") or tool.get("parameters") or {}


def _schema(config: Json) -> Json:
    schema = config.get("responseJsonSchema") or config.get("responseSchema") or {}
    return schema if isinstance(schema, dict) else {}


def _entries(content: Json) -> Iterator[Entry]:
    role = "assistant" if content.get("role") == "model" else "user"
    for part in content.get("parts", ()):
        if "functionCall" in part:
            call = part["functionCall"]
            arguments = json.dumps(call.get("args", {}))
            yield Entry(role=role, kind=Kind.TOOL_CALL, name=call["name"], text=arguments)
        elif "functionResponse" in part:
            result = part["functionResponse"]
            text = plain_text(result["response"].get("output", result["response"]))
            yield Entry(role=role, kind=Kind.TOOL_RESULT, name=result["name"], text=text)
        elif "text" in part and not part.get("thought"):
            yield Entry(role=role, text=part["text"])


def whole(answer: Answer, asked: Asked) -> Json:
    parts = ([{"text": answer.text}] if answer.text else []) + _calls(answer)
    return _response(answer, asked, parts, ended=True)


def frames(answer: Answer, asked: Asked) -> Iterator[bytes]:
    parts = [[{"text": piece}] for piece in answer.pieces] + ([_calls(answer)] if answer.calls else [])
    # The end comes with the last part: gemini takes an empty part for a broken answer.
    for index, each in enumerate(parts, start=1):
        yield frame(_response(answer, asked, each, ended=index == len(parts)))


def _calls(answer: Answer) -> list[Json]:
    return [{"functionCall": {"name": call.name, "args": call.arguments}} for call in answer.calls]


def _response(answer: Answer, asked: Asked, parts: list[Json], ended: bool = False) -> Json:
    candidate: Json = {"index": 0, "content": {"role": "model", "parts": parts}}
    response: Json = {"candidates": [candidate], "modelVersion": asked.model, "responseId": answer.id}
    if ended:
        candidate["finishReason"] = "STOP"
        response["usageMetadata"] = _usage(answer)
    return response


def _usage(answer: Answer) -> Json:
    tokens = answer.tokens
    return {
        "promptTokenCount": tokens.prompt,
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": tokens.output,
        "totalTokenCount": tokens.total,
    }


def refusal(status: int, message: str) -> Json:
    reason = _REASONS.get(status, HTTPStatus(status).phrase.upper().replace(" ", "_"))
    return {"error": {"code": status, "message": message, "status": reason}}


GEMINI = Dialect(name="gemini", read=read, whole=whole, frames=frames, refusal=refusal)
