"""A file of tokens that is half written: nobody is admitted by it, and nothing that is bound to its tokens is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from askback.access.grants import digest
from askback.access.push_subscriptions import Subscription, Subscriptions
from askback.access.push_subscriptions import digest as digest_of_endpoint
from askback.access.sessions import Invitations, Sessions
from askback.access.tokens import TokenDirectory, Tokens, TokenUses
from askback.app.notifications import make_links, make_tokens
from askback.core.access import AccessScope
from askback.core.actors import Channel
from askback.core.errors import Unavailable
from askback.fs.records import Records
from askback.runs.links import Link
from askback.settings.model import Settings
from askback.workspace.workspaces import Workspaces
from support.data_folder import World

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def clock() -> datetime:
    return NOW


@pytest.fixture
def records(tmp_path: Path) -> Records:
    (tmp_path / "data").mkdir(mode=0o700)
    return Records(tmp_path / "data")


@pytest.fixture
def text(records: Records) -> str:
    return Tokens(records, clock).make("phone", (AccessScope.ANSWER,), None)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return World(tmp_path).settings()


@pytest.fixture
def tokens(settings: Settings, records: Records) -> TokenDirectory:
    return make_tokens(settings, records, clock)


Cut = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def half_written(tmp_path: Path) -> Cut:
    @contextmanager
    def cut() -> Iterator[None]:
        path = tmp_path / "data" / "tokens.json"
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        yield
        path.write_bytes(whole)

    return cut


def device(name: str, text: str) -> Subscription:
    endpoint = f"https://push.test/{name}"
    return Subscription(
        digest=digest_of_endpoint(endpoint),
        endpoint=endpoint,
        p256dh="key",
        auth="secret",
        token_digest=digest(text),
        session_id=None,
        device=name,
        created_at=NOW,
    )


def test_nobody_is_admitted_by_tokens_that_cannot_be_read_but_the_main_token_is(
    tokens: TokenDirectory, text: str, half_written: Cut
) -> None:
    with half_written():
        assert tokens(text) is None
        assert tokens(tokens.token) is not None
    assert tokens(text) is not None


def test_no_device_is_removed_while_the_tokens_cannot_be_read(
    records: Records, tokens: TokenDirectory, text: str, half_written: Cut
) -> None:
    sessions = Sessions(records, clock, tokens.holder)
    subscriptions = Subscriptions(records, clock, holder=tokens.holder, is_session=sessions.has)
    subscriptions.add(device("old", text))
    with half_written():
        with pytest.raises(Unavailable):
            subscriptions.has_ended("https://push.test/old")
        with pytest.raises(Unavailable):
            subscriptions.add(device("new", tokens.token))
    assert [each.device for each in subscriptions.of(digest(text))] == ["old"]


def test_no_last_use_is_forgotten_while_the_tokens_cannot_be_read(
    records: Records, tokens: TokenDirectory, text: str, half_written: Cut
) -> None:
    uses = TokenUses(records, clock)
    uses.record(digest(text), Channel.API)
    uses.flush(tokens.digests)
    with half_written():
        uses.record(tokens.main_digest, Channel.PAGE)
        uses.flush(tokens.digests)
    later = TokenUses(records, clock)
    assert later.last(digest(text)) is not None
    assert later.last(tokens.main_digest) is not None


def test_no_invitation_and_no_link_is_removed_while_the_tokens_cannot_be_read(
    records: Records,
    tokens: TokenDirectory,
    text: str,
    tmp_path: Path,
    half_written: Cut,
) -> None:
    grant, own = tokens(text), tokens(tokens.token)
    assert grant is not None
    assert own is not None
    invitations = Invitations(records, clock, tokens.holder)
    invitations.make(token=grant.name, token_digest=grant.token_digest, lasts=timedelta(days=1))
    links = make_links(records, Workspaces(tmp_path / "runs"), tokens, clock)
    link = Link(run_id="run", interaction_id="colour", expires_at=NOW + timedelta(days=1))
    (tmp_path / "runs" / "run").mkdir(parents=True)
    made, _ = links.make(link, token=grant.name, token_digest=grant.token_digest)
    with half_written():
        assert links.read(made) is None
        with pytest.raises(Unavailable):
            invitations.make(token=own.name, token_digest=own.token_digest, lasts=timedelta(days=1))
        with pytest.raises(Unavailable):
            links.make(link, token=own.name, token_digest=own.token_digest)
    assert len(invitations.all()) == 1
    assert links.read(made) is not None
