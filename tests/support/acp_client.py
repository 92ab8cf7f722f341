"""A client of the ACP agent, made of the SDK's own: `askback acp` is its child, and they speak over real pipes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from acp.schema import (
    AcceptElicitationResponse,
    CancelElicitationResponse,
    ClientCapabilities,
    DeclineElicitationResponse,
    ElicitationCapabilities,
)

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from support.data_folder import DEADLINE_SEC, World
from support.program import ASKBACK, environment, here

Elicited = AcceptElicitationResponse | DeclineElicitationResponse | CancelElicitationResponse
Answer = Callable[[str, dict[str, Any]], Elicited]


def accept(**content: Any) -> Elicited:
    return AcceptElicitationResponse.model_validate({"action": "accept", "content": content})


@dataclass(slots=True, kw_only=True)
class Editor:
    """What an editor does: keeps what it is told, and answers elicitations as the test says."""

    answer: Answer | None = None
    updates: list[Any] = field(default_factory=list)
    elicited: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.changed.set()

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Elicited:
        asked = mode.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.elicited.append((message, asked))
        self.changed.set()
        if self.answer is None:
            # Nobody is there.
            await asyncio.Event().wait()
        assert self.answer is not None
        return self.answer(message, asked)

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        self.completed.append(elicitation_id)
        self.changed.set()

    async def request_permission(self, **_: Any) -> Any:
        raise RequestError.method_not_found("session/request_permission")

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return

    def on_connect(self, conn: Any) -> None:
        return

    # What was seen.

    def kinds(self) -> list[str]:
        return [update.session_update for update in self.updates]

    def said(self) -> str:
        """The agent's messages."""
        messages = (each for each in self.updates if each.session_update == "agent_message_chunk")
        return "".join(each.content.text for each in messages if each.content.type == "text")

    def typed(self) -> list[str]:
        """The user's messages, of a session that was loaded."""
        return [each.content.text for each in self.updates if each.session_update == "user_message_chunk"]

    def links(self) -> list[Any]:
        return [
            each.content
            for each in self.updates
            if getattr(each, "content", None) is not None and getattr(each.content, "type", "") == "resource_link"
        ]

    def commands(self) -> dict[str, Any]:
        found = [each for each in self.updates if each.session_update == "available_commands_update"]
        return {each.name: each for each in found[-1].available_commands} if found else {}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SEC):
            while not condition():
                self.changed.clear()
                if not condition():
                    await self.changed.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    connection: Any
    process: asyncio.subprocess.Process
    editor: Editor

    async def session(self, cwd: str = "/") -> str:
        return (await self.connection.new_session(cwd=cwd, mcp_servers=[])).session_id

    async def load(self, session_id: str, cwd: str = "/") -> None:
        await self.connection.load_session(cwd=cwd, session_id=session_id, mcp_servers=[])

    async def prompt(self, session_id: str, text: str) -> str:
        """Returns the stop reason."""
        return (await self.connection.prompt(session_id=session_id, prompt=[text_block(text)])).stop_reason

    async def leave(self) -> int:
        """Close the agent's input, as an editor does that ends. Returns the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.process.wait()


@asynccontextmanager
async def agent(
    world: World,
    *words: str,
    editor: Editor | None = None,
    forms: bool = False,
    urls: bool = False,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Agent]:
    """An agent that is initialized. `forms`, `urls`: the elicitations that the client declares."""
    editor = editor or Editor()
    program = (*ASKBACK, "acp", *words)
    there = environment(world, **(env or {}))
    async with spawn_agent_process(editor, *program, env=there, cwd=here(world), use_unstable_protocol=True) as (
        connection,
        process,
    ):  # type: ignore[arg-type]
        declared = ElicitationCapabilities.model_validate(
            ({"form": {}} if forms else {}) | ({"url": {}} if urls else {})
        )
        await connection.initialize(
            protocol_version=PROTOCOL_VERSION, client_capabilities=ClientCapabilities(elicitation=declared)
        )
        yield Agent(connection=connection, process=process, editor=editor)
