"""What a caller may do, which names a token may have, and the audit log.

The audit log has one entry for every write that somebody made, through whichever channel. An entry never has an answer, an
input, a text or a secret. What Askback does by itself, such as passing a deadline or removing old runs, is not in the log,
and neither is what was refused. The only exception are decisions of policies, which are what somebody has configured.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from askback.core.actors import ASKBACK, Actor, Caller
from askback.core.errors import Invalid, RefusalCode


class AccessScope(StrEnum):
    """What a token allows; `admin` allows everything."""

    SUBMIT = "submit"
    ANSWER = "answer"
    APPROVE = "approve"
    READ = "read"
    ADMIN = "admin"


# The names of tokens.

MAIN = "main"
"""The name of the server's own token."""
TOKEN_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_RESERVED = (MAIN, ASKBACK.name)
"""Nobody may be taken for the server's own token, or for Askback itself."""
TOKEN_NAME_RULE = (
    "starts with a letter or digit, and has at most 100 characters: letters, digits, '.', '_' and '-'; "
    f"{' and '.join(map(repr, _RESERVED))} are reserved"
)


def check_token_name(name: str) -> None:
    """Raises `Invalid` for a name that a new token cannot have."""
    if not re.fullmatch(TOKEN_NAME_PATTERN, name) or name.lower() in _RESERVED:
        raise Invalid(RefusalCode.INPUT_INVALID, f"the name of a token {TOKEN_NAME_RULE}")


# The audit log.


class Action(StrEnum):
    """What was written."""

    RUN_SUBMIT = "run.submit"
    RUN_CANCEL = "run.cancel"
    RUN_RESUME = "run.resume"
    RUN_DELETE = "run.delete"
    INTERACTION_REPLY = "interaction.reply"
    PERMISSION_DECIDE = "permission.decide"
    LINK_CREATE = "link.create"
    LINK_REVOKE = "link.revoke"
    UPLOAD_CREATE = "upload.create"
    SKILL_INSTALL = "skill.install"
    SKILL_REMOVE = "skill.remove"
    TOKEN_CREATE = "token.create"
    TOKEN_REVOKE = "token.revoke"
    INVITATION_CREATE = "invitation.create"
    INVITATION_REVOKE = "invitation.revoke"
    SESSION_START = "session.start"
    SESSION_END = "session.end"
    PUSH_SUBSCRIBE = "push.subscribe"
    PUSH_UNSUBSCRIBE = "push.unsubscribe"
    PUSH_TEST = "push.test"

    @property
    def with_run(self) -> bool:
        """Whether its entry is stored in the transaction that changes the run. Others follow their write."""
        return self in (
            Action.RUN_SUBMIT,
            Action.RUN_CANCEL,
            Action.RUN_RESUME,
            Action.RUN_DELETE,
            Action.INTERACTION_REPLY,
            Action.PERMISSION_DECIDE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    at: datetime
    actor: Actor
    action: Action
    run_id: str | None = None
    interaction_id: str | None = None
    object: str | None = None
    """What was written, if not the run or the question: the name of a token, the id of a link, a skill. Of an
    answer by link, the link and who created it."""
    address: str | None = None
    """From where the request came; None on the machine itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """An entry as it is read. An action or a way may be that of a newer version."""

    number: int
    at: datetime
    name: str
    via: str
    action: str
    run_id: str | None
    interaction_id: str | None
    object: str | None
    address: str | None


def audit_entry(by: Actor, action: Action, at: datetime, **about: str | None) -> AuditEntry:
    """An entry for what `by` did, with the address of a caller, and the link if the caller has used one."""
    address = None
    if isinstance(by, Caller):
        address = by.address
        about = about if by.link is None else {**about, "object": by.link}
    return AuditEntry(at=at, actor=by.plain, action=action, address=address, **about)
