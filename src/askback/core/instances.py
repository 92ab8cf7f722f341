"""The instances of Askback that work on one database: what each publishes for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from askback.core.values import OpenValue


class InstanceKind(OpenValue):
    """What an instance was started as."""

    SERVER = "server"
    WORKER = "worker"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFacts:
    """What an instance publishes. A field that other versions may not have needs a default."""

    kind: InstanceKind
    host: str
    pid: int
    boot_id: str
    """Of its machine: see `ProcessIdentity`."""
    version: str
    format: int = 0
    """The newest format of the tables in PostgreSQL that it knows; 0 in a version that does not say."""
    queue_format: str = ""
    """The same for the tables of the queue: the name of the last step."""
    labels: tuple[str, ...] = ()
    slots: int = 0
    free: int = 0
    """Slots without a turn, as of the last renewal."""
    engines: tuple[str, ...] = ()
    """The engines of which it executes turns."""
    runs_dir: str | None = None
    draining: bool = False
    """Whether it claims no more runs, because it is about to end."""
    public_url: str | None = None
    port: int | None = None
    """Where a server listens; None if the system chose it."""
    lease_sec: float | None = None
    offer: Mapping[str, Any] = field(default_factory=dict)
    """What it offers to others: see `cluster.fleet.Offer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance that is alive, or was until a short while ago."""

    name: str
    facts: InstanceFacts
    started_at: datetime
    lease_until: datetime | None = None
    """When it counts as dead unless it renews its lease; None: it is alive as long as its process is."""
    alive: bool = True
