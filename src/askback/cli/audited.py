"""Writes of commands to files of the data folder, with their entries in the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from askback.cli.system_user import system_user
from askback.core.access import Action, audit_entry

if TYPE_CHECKING:
    from askback.settings.model import Settings
    from askback.store.base import Store

T = TypeVar("T")


def audited(
    settings: Settings,
    action: Action,
    write: Callable[[], T],
    what: Callable[[T], str],
    check: Callable[[Store], Awaitable[None]] | None = None,
) -> T:
    """Write, then add the entry; `what` names the written object. The log is opened first: without it, nothing is written.

    `check` may refuse the write before it begins.
    """
    from askback.app import now
    from askback.app.storage import open_store, prepare_data_folder

    async def main() -> T:
        prepare_data_folder(settings.data_dir, serving=False)
        store = await open_store(settings)
        try:
            if check is not None:
                await check(store)
            written = await asyncio.to_thread(write)
            await store.record(audit_entry(system_user(), action, now(), object=what(written)))
        finally:
            await store.close()
        return written

    return asyncio.run(main())
