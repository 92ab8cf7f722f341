"""A session of the client. Which runs belong to it is known to the server alone, by a label and the token that created them;
so any agent with this token can load it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from askback.client import AsyncClient, Run, ServerFault, ServerUnreachable
from askback.core.labels import ACP_SESSION

PATIENCE_SEC = 60.0
"""How long a server may be away, for example because it restarts."""
_PAUSE_SEC = 0.5
_ID = re.compile(r"[0-9a-f]{32}")

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Session:
    id: str
    cwd: str
    client: AsyncClient
    runs_dir: Path | None
    """The data folder of the server, if it runs on this machine."""
    work: asyncio.Task[str] | None = None
    """The prompt in progress."""
    canceled: bool = False
    """Whether the client has canceled the prompt in progress."""
    shown: dict[str, int] = field(default_factory=dict)
    """The last event of each run that the client has seen."""
    asked: set[tuple[str, str]] = field(default_factory=set)
    """The run and the interaction of each question that the client has seen. Only these can be answered by a message."""

    @property
    def labels(self) -> dict[str, str]:
        return {ACP_SESSION: self.id}

    def artifact_uri(self, run_id: str) -> str:
        """Where the files of a run are: a folder of this machine, or a URL that needs a token."""
        if self.runs_dir is not None:
            return (self.runs_dir / run_id / "work" / "artifacts").absolute().as_uri()
        return f"{self.client.url.rstrip('/')}/v1/runs/{run_id}/artifacts"

    async def newest_run(self) -> Run | None:
        async for run in self.client.list_runs(labels=self.labels, mine=True, page_size=1):
            return run
        return None

    async def runs(self) -> list[Run]:
        """Oldest first."""
        return [run async for run in self.client.list_runs(labels=self.labels, mine=True)][::-1]


def new_id() -> str:
    return secrets.token_hex(16)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call that may be repeated, until the server is back. Raises the error if that takes too long."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SEC
    while True:
        try:
            return await call()
        except (ServerUnreachable, ServerFault):
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(_PAUSE_SEC)
