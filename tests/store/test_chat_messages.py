"""Which message in a chat shows which question, and which are outdated; on every store."""

from __future__ import annotations

import asyncio

from lives import create, finish, new_run, reply, start, waiting
from stores import OpenStore

from askback.core.runs import Run
from askback.core.webhooks import ChatMessage


def message(run: Run, number: int = 7, *, chat: int = -1001234567890, is_open: bool = True) -> ChatMessage:
    [interaction_id, *_] = run.interaction_ids
    return ChatMessage(chat=chat, message=number, run_id=run.id, interaction_id=interaction_id, open=is_open)


def test_a_message_is_found_by_its_chat_and_number(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await waiting(store, new_run())
            await store.record_chat_message(message(run))
            await store.record_chat_message(message(run, chat=5, is_open=False))
            assert await store.chat_message(-1001234567890, 7) == message(run)
            assert await store.chat_message(5, 7) == message(run, chat=5, is_open=False)
            assert await store.chat_message(7, -1001234567890) is None

    asyncio.run(main())


def test_open_messages_are_outdated_once_their_question_is_closed(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run, other = await waiting(store, new_run("one")), await waiting(store, new_run("two"))
            shown = [message(run, 1), message(run, 2), message(run, 3, is_open=False), message(other, 4)]
            for each in shown:
                await store.record_chat_message(each)
            assert await store.outdated_chat_messages() == ()
            await reply(store, run)
            assert set(await store.outdated_chat_messages()) == {shown[0], shown[1]}
            assert set(await store.outdated_chat_messages(run.id)) == {shown[0], shown[1]}
            assert await store.outdated_chat_messages(other.id) == ()
            await store.close_chat_message(shown[0])
            assert await store.outdated_chat_messages() == (shown[1],)

    asyncio.run(main())


def test_messages_are_there_after_a_restart_and_go_with_their_run(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await waiting(store, new_run())
            await store.record_chat_message(message(run))
        async with open_store() as store:
            await finish(store, await start(store, await reply(store, run)))
            assert await store.outdated_chat_messages() == (message(run),)
            assert await store.forget([run.id]) == (run.id,)
            assert await store.outdated_chat_messages() == ()
            assert await store.chat_message(message(run).chat, 7) is None

    asyncio.run(main())


def test_a_message_of_a_deleted_run_is_not_kept(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create(store, new_run())
            gone = ChatMessage(chat=1, message=2, run_id="gone", interaction_id="q")
            await store.record_chat_message(gone)
            assert await store.chat_message(1, 2) is None

    asyncio.run(main())
