"""The interface for digests: the open questions that a webhook of the server is notified of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from askback.core.labels import Labels
from askback.core.runs import Run
from askback.core.webhooks import WebhookKind


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestions:
    """How many questions are open, and the runs of the oldest ones, the oldest first."""

    total: int
    oldest: tuple[Run, ...]


class QuestionStore(Protocol):
    async def open_questions(self, labels: Labels, at: datetime, limit: int) -> OpenQuestions:
        """The questions that can be answered at `at`, of runs that servers own and that have all of these labels."""
        ...

    async def server_webhooks(self) -> Mapping[tuple[str, WebhookKind], int]:
        """The numbers of the server's webhooks, by URL and kind."""
        ...
