"""Open questions for digests, and the numbers of the webhooks that get them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import apsw

from askback.core.labels import Labels
from askback.core.runs import SHARED
from askback.core.webhooks import WebhookKind
from askback.store.open_questions import OpenQuestions
from askback.store.sqlite import rows
from askback.store.sqlite.connection import fetch, statements
from askback.store.sqlite.labels import label_values


def open_questions(connection: apsw.Connection, labels: Labels, at: datetime, limit: int) -> OpenQuestions:
    which = {"at": rows.micros(at), "owner": SHARED, **label_values(frozenset(labels.items()))}
    sql = statements("open_questions")
    ((total,),) = fetch(connection, sql["count"], which)
    found = fetch(connection, sql["oldest"], {**which, "limit": limit})
    return OpenQuestions(total=total, oldest=tuple(rows.load_run(doc) for (doc,) in found))


def server_webhooks(connection: apsw.Connection) -> Mapping[tuple[str, WebhookKind], int]:
    found = fetch(connection, statements("open_questions")["active_webhooks"])
    return {(url, WebhookKind(kind)): number for number, url, kind in found}
