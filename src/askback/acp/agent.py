"""The ACP agent: sessions, prompts and capabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from acp.helpers import update_available_commands

from acp import PROTOCOL_VERSION, Agent, RequestError, run_agent, schema
from acp import Client as AcpClient
from askback import __version__
from askback.acp import commands
from askback.acp.asking import Reach
from askback.acp.conversation import CANCELLED, Conversation, RunChoices
from askback.acp.sessions import Session, is_id, new_id, replayed
from askback.acp.stdio import INVALID_REQUEST, LineTransport, stdio_streams
from askback.acp.updates import agent_message
from askback.client import AsyncClient, CallFailed, NotFound

_FAILED = -32603
_NOT_FOUND = -32002

Connect = Callable[[], tuple[AsyncClient, Path | None]]
"""Finds the server: a client of it, and its data folder if it is on this machine. Raises `ServerFailed`."""


Reported = Callable[[], AbstractContextManager[None]]
"""Raises `ServerFailed` for every error of the server or of its client in the block."""


class ServerFailed(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def serve(connect: Connect, choices: RunChoices, reported: Reported) -> None:
    """Speak the protocol on stdin and stdout until the client is gone. The runs continue."""
    reader, writer = await stdio_streams()
    agent = AskbackAgent(connect, choices, reported)
    try:
        await run_agent(cast(Agent, agent), LineTransport(reader, writer))
    finally:
        await agent.close()


class AskbackAgent:
    """Methods that are missing here are answered with `method not found` by the package."""

    def __init__(self, connect: Connect, choices: RunChoices, reported: Reported) -> None:
        self._connect = connect
        self._reported = reported
        self._choices = choices
        self._sessions: dict[str, Session] = {}
        self._reach = Reach()
        self._tasks: set[asyncio.Task[None]] = set()
        self._peer: AcpClient | None = None

    def on_connect(self, conn: AcpClient) -> None:
        self._peer = conn

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for session in self._sessions.values():
            await session.client.close()

    async def initialize(
        self, protocol_version: int, client_capabilities: schema.ClientCapabilities | None = None, **_: Any
    ) -> schema.InitializeResponse:
        declared = client_capabilities.elicitation if client_capabilities else None
        if declared is not None:
            self._reach = Reach(forms=declared.form is not None, urls=declared.url is not None)
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(load_session=True),
            agent_info=schema.Implementation(name="askback", title="Askback", version=__version__),
            auth_methods=[],
        )

    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:
        session = await self._open(new_id(), cwd)
        return schema.NewSessionResponse(session_id=session.id)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        if not is_id(session_id):
            raise RequestError(_NOT_FOUND, f"there is no session {session_id[:80]!r}")
        if (known := self._sessions.get(session_id)) is not None and known.work is not None:
            raise RequestError(INVALID_REQUEST, "another prompt is in progress")
        session = await self._open(session_id, cwd)
        with self._errors_sent():
            async for update in replayed(session):
                await self._client.session_update(session.id, update)
        return schema.LoadSessionResponse()

    async def _open(self, session_id: str, cwd: str) -> Session:
        """A session on the server that is there now. The commands are sent once the client knows the session."""
        with self._errors_sent():
            client, runs_dir = self._connect()
            session = Session(id=session_id, cwd=cwd, client=client, runs_dir=runs_dir)
            try:
                skills = commands.runnable(await client.skills())
            except BaseException:
                await client.close()
                raise
        if (old := self._sessions.get(session_id)) is not None:
            await old.client.close()
        self._sessions[session_id] = session
        task = asyncio.create_task(self._offer(session, [skill.id for skill in skills]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return session

    async def _offer(self, session: Session, names: Sequence[str]) -> None:
        """Tell the client the commands. Without them it can still be used."""
        offered = []
        with suppress(CallFailed, ConnectionError):
            for name in names:
                with suppress(NotFound):
                    skill = await session.client.skill(name)
                    hint = schema.AvailableCommandInput(root=schema.UnstructuredCommandInput(hint=commands.hint(skill)))
                    offered.append(
                        schema.AvailableCommand(name=skill.id, description=commands.about(skill), input=hint)
                    )
            if commands.CANCEL not in names:
                about = "Cancel the run that waits for an answer."
                offered.append(schema.AvailableCommand(name=commands.CANCEL, description=about))
            await self._client.session_update(session.id, update_available_commands(offered))

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> schema.PromptResponse:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(_NOT_FOUND, f"session {session_id[:80]!r} is not open; load it, or create one")
        if session.work is not None:
            problem = "another prompt is in progress; wait until it ends, or cancel it"
            raise RequestError(INVALID_REQUEST, problem)
        session.canceled = False
        conversation = Conversation(session, self._client, self._reach, self._choices)
        session.work = asyncio.create_task(conversation.take(_text(prompt)))
        try:
            reason = await session.work
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if this is not None and this.cancelling():
                raise
            reason = CANCELLED
        finally:
            session.work = None
        return schema.PromptResponse(stop_reason=cast(Any, reason))

    async def cancel(self, session_id: str, **_: Any) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            return
        try:
            await Conversation(session, self._client, self._reach, self._choices).cancel()
        except CallFailed as error:
            await self._client.session_update(session.id, agent_message(f"The run was not canceled: {error.message}"))
            if session.work is not None:
                session.work.cancel()

    @property
    def _client(self) -> AcpClient:
        assert self._peer is not None
        return self._peer

    @contextmanager
    def _errors_sent(self) -> Iterator[None]:
        try:
            with self._reported():
                yield
        except ServerFailed as failed:
            raise RequestError(_FAILED, failed.message, {"code": failed.code}) from None


def _text(blocks: Sequence[Any]) -> str:
    """The text of a prompt. A link to a file is the path of the file."""
    parts = []
    for block in blocks:
        match block.type:
            case "text":
                parts.append(block.text)
            case "resource_link":
                address = urlsplit(block.uri)
                parts.append(unquote(address.path) if address.scheme == "file" else block.uri)
            case _:
                continue
    return "".join(parts).encode("utf-8", "replace").decode()
