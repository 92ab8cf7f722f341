"""clients/typescript/src/schema.ts: the shapes of the HTTP API as TypeScript types, from the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from askback.http.app import openapi_document

Schema = Mapping[str, Any]

INTRODUCTION = "/** The shapes of the HTTP API. Fields that are marked `?` are left out if they have no value. */\n\n"
JSON = """/** Any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
"""
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def module() -> str:
    schemas = openapi_document()["components"]["schemas"]
    declared = [_declaration(name, schema) for name, schema in sorted(schemas.items())]
    return INTRODUCTION + "\n".join([JSON, *declared])


def _declaration(name: str, schema: Schema) -> str:
    comment = _comment(schema, "")
    if "properties" in schema:
        return f"{comment}export interface {name} {_object(schema)}\n"
    return f"{comment}export type {name} = {type_of(schema)};\n"


def type_of(schema: Schema) -> str:
    """The TypeScript type of a schema. Raises `ValueError` for a keyword that it does not know."""
    match schema:
        case {"$ref": str(reference)}:
            return reference.rpartition("/")[2]
        case {"const": value}:
            return json.dumps(value)
        case {"enum": values}:
            return _union(json.dumps(each) for each in values)
        case {"anyOf": choices}:
            return _union(type_of(each) for each in choices)
        case {"type": [*names]}:
            return _union(type_of({**schema, "type": name}) for name in names)
        case {"type": "array"}:
            return f"Array<{type_of(schema.get('items', {}))}>"
        case {"type": "object", "properties": _}:
            return _object(schema)
        case {"type": "object"}:
            values = schema.get("additionalProperties", True)
            return f"{{ [key: string]: {'Json' if values is True else type_of(values)} }}"
        case {"type": str(name)}:
            return _SCALARS[name]
        case _ if set(schema) <= {"description", "title", "examples", "default"}:
            return "Json"
    raise ValueError(f"no TypeScript type for {dict(schema)}")


def _union(types: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(types))


def _object(schema: Schema) -> str:
    required = schema.get("required", ())
    lines = [
        f"{_comment(field, '  ')}  {name if name.isidentifier() else json.dumps(name)}"
        f"{'' if name in required else '?'}: {type_of(field)};\n"
        for name, field in schema["properties"].items()
    ]
    return "{\n" + "".join(lines) + "}"


def _comment(schema: Schema, indent: str) -> str:
    text = " ".join(str(schema.get("description", "")).split()).replace("*/", "* /")
    return f"{indent}/** {text} */\n" if text else ""
