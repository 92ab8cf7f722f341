"""The audit log: entries, as administrators read them."""

from __future__ import annotations

from typing import Annotated, Self

from askback.core.access import Action, StoredEntry
from askback.wire.base import Actor, Moment, Page, Shape, about, one_of, utc


class AuditEntry(Shape, omit_defaults=True):
    """Something that somebody wrote. It never has an answer, an input or a secret."""

    id: Annotated[int, about("Increases with every entry.", 17, ge=1)]
    at: Annotated[Moment, about("When it was written.")]
    actor: Annotated[Actor, about("Who wrote it, and through which channel.")]
    action: Annotated[str, one_of(Action), about("What was written.", "interaction.reply")]
    run_id: Annotated[str | None, about("The run. It may be deleted by now.", "1m7gekfsksrgk77s")] = None
    interaction_id: Annotated[str | None, about("The question.", "pace")] = None
    object: Annotated[
        str | None,
        about(
            "The name of the token, or the ID of the link, upload, skill, session or invitation. Of an answer by link, its "
            "ID and the token that created it, or `the server` for a link in a notification.",
            "ci",
        ),
    ] = None
    address: Annotated[
        str | None, about("The address that the request came from. Missing for commands on the server's machine.")
    ] = None

    @classmethod
    def of(cls, entry: StoredEntry) -> Self:
        return cls(
            id=entry.number,
            at=utc(entry.at),
            actor=Actor(name=entry.name, via=entry.via),
            action=entry.action,
            run_id=entry.run_id,
            interaction_id=entry.interaction_id,
            object=entry.object,
            address=entry.address,
        )


class AuditEntryPage(Page[AuditEntry]):
    """Entries of the audit log, newest first."""
