"""The tokens of a server, and the links that it makes: on request of a token, and for notifications.

Only a server imports this.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from askback.access.grants import TokenDirectory
from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from askback.core.runs import Run
from askback.fs.records import Records
from askback.http.quotas import MAIN
from askback.runs.links import AnswerLinks, Creator, Links, StoredLink
from askback.settings.model import Settings
from askback.store.base import Store
from askback.workspace.workspaces import Workspaces


def make_tokens(settings: Settings, records: Records, clock: Callable[[], datetime]) -> TokenDirectory:
    """The server's own token, created if there is none, and the further ones."""
    own = settings.server.token or records.secret("token")
    further = Tokens(records, clock)
    return TokenDirectory(token=own, further=further.find, further_digests=further.digests)


def make_links(
    records: Records, workspaces: Workspaces, tokens: TokenDirectory, clock: Callable[[], datetime]
) -> Links:
    return Links(
        key=records.secret("link-key").encode(),
        clock=clock,
        stored=lambda run_id: records.of_run(run_id, workspaces.of(run_id).root, "links", StoredLink),
        is_token=lambda token_digest: tokens.holder(token_digest) is not None,
    )


def make_answer_links(
    settings: Settings, store: Store, records: Records, workspaces: Workspaces, clock: Callable[[], datetime]
) -> AnswerLinks | None:
    """None without `server.public_url`: nobody could follow a link."""
    if settings.server.public_url is None:
        return None
    tokens = make_tokens(settings, records, clock)
    further = Tokens(records, clock)

    def creator(run: Run) -> Creator | None:
        # A later token of the same name is another one.
        earlier = [each for each in further.all() if each.created_at <= run.created_at]
        digests = {each.name: each.digest for each in earlier} | {MAIN: tokens.main_digest}
        grant = tokens.holder(digests.get(run.created_by or "", ""))
        if grant is None or not grant.allows(AccessScope.ANSWER):
            return None
        return Creator(token=grant.name, token_digest=grant.token_digest)

    return AnswerLinks(
        links=make_links(records, workspaces, tokens, clock),
        store=store,
        public_url=settings.server.public_url.lower().rstrip("/"),
        creator=creator,
    )
