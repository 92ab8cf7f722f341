"""A typed client for the HTTP API: `Client` blocks, `AsyncClient` is for asyncio.

    with Client("http://127.0.0.1:8765", token) as client:
        run = client.create_run("trip-planner", input={"destination": "Lisbon", "days": 3})
        run = client.wait(run.id, timeout_sec=600)
        if run.pending_interaction:
            client.reply(run.id, run.pending_interaction.interaction_id, "relaxed")

Imports only `core` and `wire`: it is also distributed without the server. Start with `calls`, which lists every call; the
two clients send them.
"""

from askback.client.async_client import AsyncClient
from askback.client.errors import (
    AnswerUnreadable,
    CallFailed,
    Conflict,
    Forbidden,
    NotFound,
    Refused,
    ServerFault,
    ServerUnreachable,
    TokenUnusable,
    Unauthorized,
    WaitTimedOut,
)
from askback.client.sync_client import Client
from askback.core.runs import RunState
from askback.wire.access import AuditEntry, CreatedToken, Invitation, ListedInvitation, Token
from askback.wire.artifacts import Artifact, ArtifactDiff, ArtifactVersion, ChangedFile, Changes
from askback.wire.deliveries import Delivery
from askback.wire.questions import Interaction, Link, ListedLink
from askback.wire.runs import ClosedQuestion, Event, HeldProcess, PendingQuestion, Result, Run, RunError, RunWarning
from askback.wire.server import (
    Engine,
    EngineModel,
    EngineModels,
    Health,
    Skill,
    SkillDetails,
    SkillFile,
    Statistics,
    Upload,
    UsageReport,
    UsageSum,
    Worker,
    WorkerEngine,
)

__all__ = [
    "AnswerUnreadable",
    "Artifact",
    "ArtifactDiff",
    "ArtifactVersion",
    "AsyncClient",
    "AuditEntry",
    "CallFailed",
    "ChangedFile",
    "Changes",
    "Client",
    "ClosedQuestion",
    "Conflict",
    "CreatedToken",
    "Delivery",
    "Engine",
    "EngineModel",
    "EngineModels",
    "Event",
    "Forbidden",
    "Health",
    "HeldProcess",
    "Interaction",
    "Invitation",
    "Link",
    "ListedInvitation",
    "ListedLink",
    "NotFound",
    "PendingQuestion",
    "Refused",
    "Result",
    "Run",
    "RunError",
    "RunState",
    "RunWarning",
    "ServerFault",
    "ServerUnreachable",
    "Skill",
    "SkillDetails",
    "SkillFile",
    "Statistics",
    "Token",
    "TokenUnusable",
    "Unauthorized",
    "Upload",
    "UsageReport",
    "UsageSum",
    "WaitTimedOut",
    "Worker",
    "WorkerEngine",
]
