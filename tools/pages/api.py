"""docs/reference/api_reference.md: every operation and every code of the HTTP API, from the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from askback.core.errors import RefusalCode
from askback.http.app import openapi_document
from askback.http.openapi import TOKEN, meaning
from askback.http.problems import MEDIA_TYPE, RequestCode, status_of
from pages.errors import run_errors, run_warnings
from pages.markdown import code, fenced, table

Document = Mapping[str, Any]

INTRODUCTION = """# The HTTP API

Generated from the OpenAPI document, which a server provides at `/v1/openapi.json` and which is also
[in this folder](openapi.json).

Every operation except `GET /healthz` requires `Authorization: Bearer TOKEN` or the cookie of a browser session.
Operations below `/v1/answers/` require a link instead. Otherwise the response is 401, also for paths that do not exist,
and nothing of the body is read. The server's own token allows everything. Further tokens have scopes; each operation
lists those that it accepts.

Bodies are JSON, sent as `application/json`, unless stated otherwise. Times are RFC 3339 in UTC. Lists are
`{items, next_cursor}`. *Optional* fields of a response are left out if they have no value.

"""
ALWAYS = """## Errors of every operation

Errors are `application/problem+json`: a [Problem](#problem) with a stable `code`. A request that is refused has changed
nothing. Every operation may return these codes, in addition to its own:

"""
CODES = """## All refusal codes

The `code` of a [Problem](#problem). The request has not changed the state of any run.

"""
ERRORS = """## All error codes of runs

The `error.code` of a [run](#run) and of its `run.state` event, with the change of state, from the
[lifecycle](lifecycle.md).

"""
WARNINGS = """## All warning codes

The `warnings[].code` of a [run](#run), and the `code` of a `run.warning` event.

"""
SCHEMAS = """## Schemas

"""


def page() -> str:
    document = openapi_document()
    always = _always(document)
    return "".join(
        (
            INTRODUCTION,
            ALWAYS,
            table(("status", "code", "meaning"), [_refusal(each) for each in always]),
            *(_calls(document, tag, always) for tag in document["tags"]),
            "\n",
            CODES,
            table(("status", "code", "meaning"), [_refusal(each) for each in _all_codes()]),
            "\n",
            ERRORS,
            run_errors(),
            "\n",
            WARNINGS,
            run_warnings(),
            "\n",
            SCHEMAS,
            "\n".join(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())),
        )
    )


# Codes.


def _codes(operation: Document) -> list[str]:
    """The codes that an operation documents, by status."""
    content = [each.get("content", {}).get(MEDIA_TYPE, {}) for each in operation["responses"].values()]
    return [name for each in content for name in each.get("examples", ())]


def _always(document: Document) -> list[str]:
    """The codes that all operations with a token have in common."""
    found = [_codes(each) for _, _, each in _operations(document) if each.get("security") and _codes(each)]
    return [name for name in found[0] if all(name in each for each in found)]


def _all_codes() -> list[str]:
    documented = {name for _, _, each in _operations(openapi_document()) for name in _codes(each)}
    rest = {RequestCode.METHOD_NOT_ALLOWED, RequestCode.NOT_FOUND, RequestCode.INTERNAL_ERROR}
    return sorted(documented | {str(each) for each in rest}, key=lambda name: (status_of(_code(name)), name))


def _refusal(name: str) -> tuple[str, str, str]:
    return str(int(status_of(_code(name)))), code(name), meaning(_code(name))


def _code(name: str) -> RefusalCode | RequestCode:
    return RefusalCode(name) if name in RefusalCode.__members__ else RequestCode(name)


# Calls.


def _operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method.upper(), path, operation


def _calls(document: Document, tag: Document, always: list[str]) -> str:
    found = [_call(*each, always) for each in _operations(document) if tag["name"] in each[2]["tags"]]
    return f"\n## {tag['name'].capitalize()}\n\n{tag['description']}\n\n" + "\n".join(found)


def _call(method: str, path: str, operation: Document, always: list[str]) -> str:
    parts = [f"### `{method} {path}`\n", f"{operation['description']}\n", f"{_scopes(operation)}\n"]
    if parameters := operation.get("parameters"):
        parts.append(table(("parameter", "in", "type", "meaning"), [_parameter(each) for each in parameters]))
    if body := operation.get("requestBody"):
        optional = "" if body.get("required") else " (optional)"
        parts.append("Body: " + "; ".join(_content(body["content"])) + f"{optional}.\n")
    good = [(status, each) for status, each in operation["responses"].items() if int(status) < 400]
    parts.append(table(("response", "body", "meaning"), [_response(status, each) for status, each in good]))
    refusals = [name for name in _codes(operation) if name not in always]
    if refusals:
        parts.append(table(("error", "code", "meaning"), [_refusal(name) for name in refusals]))
    return "\n".join(parts)


def _scopes(operation: Document) -> str:
    if not operation["security"]:
        return "Requires no token."
    roles = operation["security"][0][TOKEN]
    return f"Requires the scope {' or '.join(code(role) for role in roles)}."


def _parameter(parameter: Document) -> tuple[str, str, str, str]:
    schema = parameter["schema"]
    text = parameter.get("description", "")
    if "default" in schema:
        text += f" Default: {code(json.dumps(schema['default']))}."
    return code(parameter["name"]), parameter["in"], _type(schema) + _bounds(schema), text


def _response(status: str, response: Document) -> tuple[str, str, str]:
    headers = [f"Header {code(name)}: {each['description']}" for name, each in response.get("headers", {}).items()]
    return status, "; ".join(_content(response.get("content", {}))), " ".join([response["description"], *headers])


def _content(content: Document) -> Iterator[str]:
    for kind, given in content.items():
        shown = _type(given.get("schema", {}))
        if kind == "application/json":
            yield shown
        elif given.get("schema", {}).get("type") == "object":
            fields = ", ".join(code(name) for name in given["schema"]["properties"])
            yield f"{code(kind)} with the field {fields}"
        else:
            yield code(kind)


# Schemas.


def _schema(name: str, schema: Document) -> str:
    parts = [f"### {name}\n"]
    if "description" in schema:
        parts.append(schema["description"] + "\n")
    if "enum" in schema:
        parts.append(", ".join(code(str(value)) for value in schema["enum"]) + "\n")
        return "\n".join(parts)
    required = schema.get("required", ())
    rows = [_field(key, each, key in required) for key, each in schema["properties"].items()]
    parts.append(table(("field", "type", "meaning"), rows))
    examples = {key: each["examples"][0] for key, each in schema["properties"].items() if each.get("examples")}
    if schema.get("additionalProperties") is False:
        parts.append(fenced(json.dumps(examples, ensure_ascii=False, indent=2), "json"))
    return "\n".join(parts)


def _field(name: str, schema: Document, required: bool) -> tuple[str, str, str]:
    assert schema.get("description"), f"{name} has no description"
    text = schema["description"]
    if schema.get("default") not in (None, {}, []):
        text += f" Default: {code(json.dumps(schema['default']))}."
    optional = "" if required else " *optional*"
    return code(name), _type(schema) + _bounds(schema) + optional, text


def _bounds(schema: Document) -> str:
    words = {"minimum": "at least", "maximum": "at most", "maxLength": "at most", "maxItems": "at most"}
    units = {"maxLength": " characters", "maxItems": " items"}
    bounds = [f"{word} {schema[key]:g}{units.get(key, '')}" for key, word in words.items() if key in schema]
    return f" ({', '.join(bounds)})" if bounds else ""


def _type(schema: Document) -> str:
    return " or ".join(dict.fromkeys(_types(schema)))


def _types(schema: Document) -> Iterator[str]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield f"[{name}](#{name.lower()})"
    elif "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        yield ", ".join(code(str(value)) for value in values)
    elif options := (schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")):
        for option in options:
            yield from _types(option)
    elif schema.get("type") == "array":
        yield f"list of {_type(schema.get('items', {})) or 'anything'}"
    elif schema.get("format") == "date-time":
        yield "time"
    elif "type" in schema:
        yield schema["type"]
    else:
        yield "anything"


def openapi() -> str:
    """docs/reference/openapi.json: the document itself, for programs that generate clients."""
    return json.dumps(openapi_document(), indent=2, ensure_ascii=False) + "\n"
