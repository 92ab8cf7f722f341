"""The thread that keeps the records of a server up to date: nothing ends it, so tokens are admitted for as long as the server runs."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from askback.store.postgres import records as watched

_HAMMER_SEC = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    digest: str


@pytest.fixture
def _frequent_switches() -> Iterator[None]:
    """Threads take turns after every few instructions, as on a busy machine."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_frequent_switches")
def test_tokens_are_admitted_while_links_of_runs_are_read_and_forgotten(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from askback.store.postgres import PostgresStore, open_records

    # Every look forgets the collections of runs that are not used at this moment.
    monkeypatch.setattr(watched, "_UNUSED_SEC", 0.0)

    async def main() -> None:
        store = await PostgresStore.open(address)
        records = store.records
        try:
            records.watch()
            tokens = Tokens(records, lambda: datetime.now(UTC))
            await records.current()
            done = threading.Event()

            def use() -> None:
                for number in itertools.takewhile(lambda _: not done.is_set(), itertools.count()):
                    found = records.of_run(f"run-{threading.get_ident()}-{number}", Path(), "links", Note)
                    for _ in range(50):
                        records.use(found)  # type: ignore[arg-type]
                    records.notice()

            users = [asyncio.to_thread(use) for _ in range(3)]
            hammering = asyncio.gather(*users)
            await asyncio.sleep(_HAMMER_SEC)
            done.set()
            await hammering
            text = await asyncio.to_thread(
                Tokens(open_records(address), tokens.clock).make, "later", (AccessScope.READ,), None
            )
            assert text
            async with asyncio.timeout(60):
                await records.current(exactly=True)
            assert [each.name for each in tokens.all()] == ["later"]
        finally:
            await store.close()

    asyncio.run(main())
