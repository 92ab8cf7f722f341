"""Open questions for digests, and the numbers of the webhooks that get them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from askback.core.labels import Labels
from askback.core.runs import SHARED
from askback.core.webhooks import WebhookKind
from askback.store.open_questions import OpenQuestions
from askback.store.sql import rows
from askback.store.sql.connection import Connection
from askback.store.sql.labels import label_values


def open_questions(connection: Connection, labels: Labels, at: datetime, limit: int) -> OpenQuestions:
    which = {"at": rows.micros(at), "owner": SHARED, **label_values(frozenset(labels.items()))}
    sql = connection.statements("open_questions")
    ((total,),) = connection.fetch(sql["count"], which)
    found = connection.fetch(sql["oldest"], {**which, "limit": limit})
    return OpenQuestions(total=total, oldest=tuple(rows.load_run(doc) for (doc,) in found))


def server_webhooks(connection: Connection) -> Mapping[tuple[str, WebhookKind], int]:
    found = connection.fetch(connection.statements("open_questions")["active_webhooks"])
    return {(url, WebhookKind(kind)): number for number, url, kind in found}
