"""The MCP server of the SDK, made from the tools. HTTP and stdio differ only in who the caller is."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

from askback import __version__
from askback.client import CallFailed
from askback.mcp.caller import Caller
from askback.mcp.envelope import ARTIFACTS, CALL_SEC, failed, refused
from askback.mcp.skill_resources import SCHEME, add_skills, list_skill_files, mcp_errors, read_file, resource_contents
from askback.mcp.tasks import add_tasks
from askback.mcp.tools import TOOLS, Returned, ToolCall, call_tool, skill_tools

Context = ServerRequestContext[Any, Any]
Callers = Callable[[Context], Caller]
"""Who calls, for one request. Raises `CallFailed` if there is no server."""

_INSTRUCTIONS = (
    "Askback runs skills that may ask their user and wait for days. Start one with run_skill. If it asks, pass the question "
    "to the user and the user's answer to answer_question. Never answer for the user."
)
_MOST_BYTES = 8_000_000
_STATE_SEC = 86_400.0


def make_server(
    callers: Callers, *, skills_as_tools: bool, security: RequestStateSecurity, call_sec: float = CALL_SEC
) -> Server[Any]:
    """A server whose requests are those of the callers. None takes longer than `call_sec`."""
    late = f"the server has not answered within {call_sec:g} seconds"

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = [declared.tool(name) for name, declared in TOOLS.items()]
        if skills_as_tools:
            with suppress(TimeoutError):
                async with asyncio.timeout(call_sec):
                    tools += await skill_tools(lambda: callers(ctx))
        return types.ListToolsResult(tools=tools)

    async def call(ctx: Context, params: types.CallToolRequestParams) -> Returned:
        try:
            async with asyncio.timeout(call_sec):
                found = ToolCall(ctx=ctx, caller=callers(ctx), params=params, skills_as_tools=skills_as_tools)
                return await call_tool(found)
        except CallFailed as error:
            return failed(error)
        except TimeoutError:
            return refused("SERVER_UNREACHABLE", f"{late}; its runs continue, and the same call again finds its run")

    async def read(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        try:
            with mcp_errors(params.uri):
                async with asyncio.timeout(call_sec):
                    if params.uri.startswith(SCHEME):
                        return await read_file(callers(ctx).client, params.uri)
                    return await _artifact(callers(ctx), params.uri)
        except TimeoutError:
            raise MCPError(types.INTERNAL_ERROR, late) from None

    async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        """List the skills. Artifacts are linked in results instead: there may be very many."""
        try:
            async with asyncio.timeout(call_sec):
                return await list_skill_files(callers(ctx).client, params.cursor if params else None)
        except CallFailed:
            return types.ListResourcesResult(resources=[])
        except TimeoutError:
            raise MCPError(types.INTERNAL_ERROR, late) from None

    server: Server[Any] = Server(
        "askback",
        version=__version__,
        title="Askback",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_list_resources=list_resources,
        on_list_resource_templates=_templates,
        on_read_resource=read,
        # No tool declares headers. Without this, the SDK lists all tools before each call to look for them.
        get_tool_input_schema=lambda name: None,
    )
    server.add_request_handler("tools/call", types.CallToolRequestParams, call)
    add_tasks(server, callers, call_sec=call_sec)
    add_skills(server, callers)
    server.middleware.append(RequestStateBoundary(security, default_audience="askback"))
    return server


def state_security(key: bytes | None, principal: Callable[[Context], str | None] | None) -> RequestStateSecurity:
    """The security settings that seal the state of a question. With a key, it survives a restart."""
    if key is None:
        return RequestStateSecurity.ephemeral(ttl=_STATE_SEC)
    return RequestStateSecurity(keys=[key], ttl=_STATE_SEC, bind_principal=principal)


async def _templates(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
    artifact = types.ResourceTemplate(
        name="artifact",
        title="A file that a run has produced",
        uri_template=f"{ARTIFACTS}{{run_id}}/artifacts/{{+path}}",
    )
    skill = types.ResourceTemplate(
        name="skill_file", title="A file of a skill", uri_template=f"{SCHEME}{{+skill}}/{{+path}}"
    )
    return types.ListResourceTemplatesResult(resource_templates=[artifact, skill])


async def _artifact(caller: Caller, uri: str) -> types.ReadResourceResult:
    run_id, middle, path = uri.removeprefix(ARTIFACTS).partition("/artifacts/")
    if not uri.startswith(ARTIFACTS) or not middle or not path:
        raise MCPError(types.INVALID_PARAMS, f"{uri[:200]!r} is not the URI of an artifact", {"uri": uri})
    path = unquote(path)
    size = next((each.size for each in await caller.client.artifacts(run_id) if each.path == path), 0)
    if size > _MOST_BYTES:
        raise MCPError(types.INVALID_PARAMS, f"{path!r} is larger than {_MOST_BYTES} bytes; download it over HTTP")
    with tempfile.TemporaryDirectory(prefix="askback-mcp-") as folder:
        file = await caller.client.download(run_id, path, Path(folder) / "artifact")
        content = await asyncio.to_thread(file.read_bytes)
    return types.ReadResourceResult(contents=[resource_contents(uri, path, content)])
