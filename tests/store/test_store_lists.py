"""Lists of runs: by filter, by question, by turn and by deadline, on every store there is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from lives import (
    DECIDED,
    NOON,
    TIMEOUT_SEC,
    ask,
    at,
    create,
    new_run,
    note_process,
    reply,
    running,
    start,
    succeeded,
    waiting,
)
from stores import OpenStore

from askback.core.errors import Invalid
from askback.core.interactions import InboxOrder, InteractionOutcome
from askback.core.runs import SHARED, Run, RunOptions, RunState
from askback.core.signals import Adopted, CancelRequested, Replied, TurnLost
from askback.store.base import Store, move
from askback.store.pages import InboxCount, InboxFilter, Page, RunFilter
from askback.store.sql.rows import mentions, stored, words_of
from support.specimens import waiting_run


def ids(runs: Sequence[Run] | Page[Run]) -> list[str]:
    return [run.id for run in (runs.items if isinstance(runs, Page) else runs)]


async def queue(store: Store, *owners: str, without: Sequence[str] = (), limit: int = 100) -> list[str]:
    return ids(await store.queued(owners or (SHARED,), without_engines=without, limit=limit))


# Newest first.


def test_runs_are_listed_newest_first_page_by_page(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for number in range(7):
                await create(store, new_run(f"run-{number}"))
            first = await store.list_runs(RunFilter(), limit=3)
            await create(store, new_run("late"))
            second = await store.list_runs(RunFilter(), first.next_cursor, limit=3)
            third = await store.list_runs(RunFilter(), second.next_cursor, limit=3)
            assert [ids(page) for page in (first, second, third)] == [
                ["run-6", "run-5", "run-4"],
                ["run-3", "run-2", "run-1"],
                ["run-0"],
            ]
            assert third.next_cursor is None
            assert (await store.list_runs(RunFilter(), second.next_cursor, limit=1)).next_cursor is None

    asyncio.run(main())


def test_every_combination_of_filters_gives_exactly_what_fits(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            runs = []
            kinds = itertools.product((create, running, waiting, succeeded), ("draw", "write"), ("codex", "gemini"))
            for number, (make, skill, engine) in enumerate(kinds):
                runs.append(await make(store, new_run(f"run-{number}", skill=skill, engine=engine)))
            choices = itertools.product((None, *RunState), (None, "draw", "none"), (None, "codex", "none"))
            for state, of_skill, by_engine in choices:
                found = await store.list_runs(RunFilter(state=state, skill=of_skill, engine=by_engine))
                fitting = [
                    run
                    for run in reversed(runs)
                    if state in (None, run.state)
                    and of_skill in (None, run.skill.id)
                    and by_engine in (None, run.engine)
                ]
                assert list(found.items) == fitting

    asyncio.run(main())


@pytest.mark.parametrize("cursor", ["", "x", "1.2.3", "9" * 40, "-" * 9, "\ud800", "1" * 5000])
def test_a_cursor_that_no_list_gave_is_refused(open_store: OpenStore, cursor: str) -> None:
    async def main() -> None:
        async with open_store() as store:
            for attempt in (store.list_runs(RunFilter(), cursor), store.pending(cursor)):
                with pytest.raises(Invalid, match="cursor"):
                    await attempt

    asyncio.run(main())


def test_a_limit_out_of_all_reason_is_bounded(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create(store, new_run())
            for limit in (-1, 0, 2**80):
                assert ids(await store.list_runs(RunFilter(), limit=limit)) == ["run-1"]

    asyncio.run(main())


# Questions.


def test_questions_are_listed_oldest_first_page_by_page(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for name, seconds in (("b", 20), ("c", 30), ("a", 10), ("also-c", 30)):
                await waiting(store, new_run(name), at(seconds))
            await running(store, new_run("busy"))
            first = await store.pending(limit=3)
            assert ids(first) == ["a", "b", "c"]
            rest = await store.pending(first.next_cursor, limit=3)
            assert (ids(rest), rest.next_cursor) == (["also-c"], None)
            assert await store.inbox_count() == InboxCount(
                total=4, newest_at=at(30), skills=(("skill", 4),), engines=(("scripted", 4),)
            )
            await reply(store, first.items[0])
            assert ids(await store.pending()) == ["b", "c", "also-c"]
            assert (await store.inbox_count()).total == 3

    asyncio.run(main())


def test_deadlines_come_first_page_by_page(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            needs_reply = RunOptions()
            for name, seconds, options in (
                ("old", 0, needs_reply),
                ("new", 20, needs_reply),
                ("later", 50, DECIDED),
                ("soon", 30, DECIDED),
                ("also-soon", 30, DECIDED),
            ):
                await waiting(store, new_run(name, options=options), at(seconds))
            found: list[str] = []
            cursor: str | None = None
            while True:
                page = await store.pending(cursor, 2, order=InboxOrder.DEADLINE)
                found += ids(page)
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert found == ["soon", "also-soon", "later", "old", "new"]
            with pytest.raises(Invalid, match="cursor"):
                await store.pending("1.2", order=InboxOrder.DEADLINE)

    asyncio.run(main())


def test_questions_are_filtered_and_counted_by_skill_engine_and_words(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await waiting(store, new_run("a", skill="draw", engine="codex", summary="Über Lisbon"))
            await waiting(store, new_run("b", skill="draw", engine="gemini", summary="Porto"))
            await waiting(store, new_run("c", skill="write", engine="codex"))
            for where, expected in (
                (InboxFilter(), ["a", "b", "c"]),
                (InboxFilter(skill="draw"), ["a", "b"]),
                (InboxFilter(engine="codex"), ["a", "c"]),
                (InboxFilter(skill="draw", engine="codex"), ["a"]),
                (InboxFilter(words="  LISBON über "), ["a"]),
                (InboxFilter(words="lisbon porto"), []),
                (InboxFilter(words="write"), ["c"]),
                (InboxFilter(words="_rite"), []),
                (InboxFilter(words="l%n"), []),
                (InboxFilter(words="\\isbon"), []),
                (InboxFilter(words="wri\0te"), ["c"]),
                (InboxFilter(words="\0"), ["a", "b", "c"]),
                (InboxFilter(words="\ud800"), []),
                (InboxFilter(skill="\ud800"), []),
            ):
                assert ids(await store.pending(where=where)) == expected
                assert ids(await store.pending(where=where, order=InboxOrder.DEADLINE)) == expected
                assert (await store.inbox_count(where)).total == len(expected)
            count = await store.inbox_count(InboxFilter(skill="draw", engine="codex"))
            assert (count.skills, count.engines) == ((("draw", 1), ("write", 1)), (("codex", 1), ("gemini", 1)))
            count = await store.inbox_count(InboxFilter(skill="write", words="porto"))
            assert (count.total, count.skills, count.engines) == (0, (("draw", 1),), ())

    asyncio.run(main())


def test_words_are_found_in_the_prompt_and_in_the_texts_of_the_context() -> None:
    run = waiting_run()
    assert run.pending_interaction is not None
    context: Any = {"amount": 240, "notes": ["above the Order", None]}
    asked = replace(run.pending_interaction, prompt="Pay the invoice?", context=context)
    _, doc = stored(run.evolve(skill=replace(run.skill, id="office"), summary=None, pending_interaction=asked))
    for text, expected in (
        ("INVOICE", 1),
        ("240 order", 1),
        ("office pay", 1),
        ("notes", 0),
        ("amount", 0),
        ("none", 0),
    ):
        assert mentions(doc, words_of(text)) == expected


def replied(run: Run, seconds: float) -> Replied:
    assert run.pending_interaction is not None
    asked = run.pending_interaction.interaction_id
    return Replied(interaction_id=asked, response="red", owner=SHARED, at=at(seconds))


def test_closed_questions_are_listed_newest_first_page_by_page(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for number, name in enumerate("abc"):
                run = await waiting(store, new_run(name, summary=f"about {name}"), at(number))
                await move(store, run.id, replied(run, 60 - number))
            await waiting(store, new_run("pending"))
            first = await store.closed_questions(limit=2)
            rest = await store.closed_questions(first.next_cursor, limit=2)
            assert [each.run_id for each in (*first.items, *rest.items)] == ["a", "b", "c"]
            assert rest.next_cursor is None
            closed = first.items[0]
            assert (closed.skill, closed.engine, closed.summary) == ("skill", "scripted", "about a")
            assert (closed.state, closed.interaction.outcome) == (RunState.QUEUED, InteractionOutcome.ANSWERED)
            with pytest.raises(Invalid, match="cursor"):
                await store.closed_questions("x")

    asyncio.run(main())


# Turns.


def test_turns_of_one_kind_are_taken_first_come_first_served(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            first = await waiting(store, new_run("first"))
            for name in ("second", "third"):
                await create(store, new_run(name))
            await reply(store, first)
            assert await queue(store) == ["first", "second", "third"]
            assert await queue(store, limit=2) == ["first", "second"]

    asyncio.run(main())


def test_a_run_is_in_the_queue_exactly_while_it_is_queued(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create(store, new_run())
            assert await queue(store) == [run.id]
            run = await start(store, run)
            assert await queue(store) == []
            run = await move(store, run.id, TurnLost(epoch=run.epoch, at=NOON))
            assert await queue(store) == [run.id]
            await move(store, run.id, CancelRequested(at=NOON))
            assert await queue(store) == []
            assert await queue(store) == ids(await store.held()) == []

    asyncio.run(main())


def test_an_owner_sees_only_its_own_turns(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for owner in ("a", "b", SHARED, "a"):
                await create(
                    store, new_run(f"{owner or 'all'}-{len(await queue(store, 'a', 'b', SHARED))}", owner=owner)
                )
            assert await queue(store, "a") == ["a-0", "a-3"]
            assert await queue(store, SHARED) == ["all-2"]
            assert await queue(store, "b", "a") == ["a-0", "b-1", "a-3"]
            assert await queue(store, "nobody") == []
            assert await store.queued([], without_engines=[], limit=9) == ()

    asyncio.run(main())


def test_a_run_that_is_adopted_keeps_its_place(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for name, owner in (("left", "dead"), ("mine", "me")):
                await create(store, new_run(name, owner=owner))
            await move(store, "left", Adopted(owner="me", left_by="dead", at=NOON))
            assert await queue(store, "dead") == []
            assert await queue(store, "me") == ["left", "mine"]

    asyncio.run(main())


def test_a_reply_hands_the_run_to_its_new_owner(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await waiting(store, new_run(owner="old"))
            await reply(store, run, owner="new")
            assert (await queue(store, "old"), await queue(store, "new")) == ([], [run.id])

    asyncio.run(main())


def test_a_full_engine_holds_up_no_other(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for number, engine in enumerate(("codex", "codex", "gemini", "codex", "qwen")):
                await create(store, new_run(f"{engine}-{number}", engine=engine))
            assert await queue(store, without=["codex"]) == ["gemini-2", "qwen-4"]
            assert await queue(store, without=["codex", "gemini", "none"]) == ["qwen-4"]
            assert await queue(store, limit=1) == ["codex-0"]
            assert await queue(store, without=["qwen"], limit=3) == ["codex-0", "codex-1", "gemini-2"]

    asyncio.run(main())


def test_what_a_worker_holds_is_what_runs_or_waits_with_a_process(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create(store, new_run("queued"))
            await waiting(store, new_run("resumable"))
            await succeeded(store, new_run("done"))
            await running(store, new_run("running"))
            sticky = await note_process(store, await start(store, await create(store, new_run("sticky", sticky=True))))
            await ask(store, sticky)
            await start(store, await create(store, new_run("elsewhere")), worker="other")
            assert sorted(ids(await store.held())) == ["elsewhere", "running", "sticky"]
            assert await store.workers() == {"other", "worker"}
            assert ids(await store.held(["other", "unknown"])) == ["elsewhere"]

    asyncio.run(main())


def test_owners_are_those_of_runs_that_are_not_over(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            assert set(await store.owners()) == set()
            for make, owner in ((create, "a"), (running, "b"), (waiting, "c"), (succeeded, "d"), (waiting, SHARED)):
                await make(store, new_run(f"run-{owner}", owner=owner))
                await make(store, new_run(f"again-{owner}", owner=owner))
            assert set(await store.owners()) == {"a", "b", "c", SHARED}
            assert ids(await store.owned_by("b")) == ["run-b", "again-b"]
            assert ids(await store.owned_by("d")) == []

    asyncio.run(main())


# Deadlines.


def test_overdue_runs_come_earliest_first(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for name, seconds, owner in (("b", 20, "me"), ("a", 10, "me"), ("c", 30, "you"), ("x", 5, "them")):
                await waiting(store, new_run(name, options=DECIDED, owner=owner), at(seconds))
            await waiting(store, new_run("for-ever", owner="me"))
            both = ("me", "you")
            assert ids(await store.overdue(both, at(TIMEOUT_SEC + 9), 9)) == []
            assert ids(await store.overdue(both, at(TIMEOUT_SEC + 10), 9)) == ["a"]
            assert ids(await store.overdue(both, at(TIMEOUT_SEC + 99), 9)) == ["a", "b", "c"]
            assert ids(await store.overdue(both, at(TIMEOUT_SEC + 99), 2)) == ["a", "b"]
            assert ids(await store.overdue(["you"], at(TIMEOUT_SEC + 99), 9)) == ["c"]
            assert await store.next_deadline(both) == at(TIMEOUT_SEC + 10)
            assert await store.next_deadline(["you"]) == at(TIMEOUT_SEC + 30)
            assert await store.next_deadline([]) is None

    asyncio.run(main())


def test_a_wait_that_is_over_has_no_deadline(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            answered = await waiting(store, new_run("answered", options=DECIDED))
            await reply(store, answered)
            sticky = await waiting(store, new_run("sticky", sticky=True))
            assert await store.next_deadline([SHARED]) == sticky.wait_deadline_at
            await move(store, sticky.id, CancelRequested(at=NOON))
            assert await store.next_deadline([SHARED]) is None
            assert await store.overdue([SHARED], at(10**6), 9) == ()

    asyncio.run(main())


@pytest.mark.contract("W-12")
def test_deadlines_and_places_survive_a_restart(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await waiting(store, new_run("waits", options=DECIDED), at(0.123456))
            for name in ("first", "second"):
                await create(store, new_run(name))
        async with open_store() as store:
            assert await store.next_deadline([SHARED]) == at(TIMEOUT_SEC + 0.123456)
            assert ids(await store.overdue([SHARED], at(TIMEOUT_SEC + 0.123456), 9)) == ["waits"]
            assert ids(await store.overdue([SHARED], at(TIMEOUT_SEC + 0.123455), 9)) == []
            assert await queue(store) == ["first", "second"]
            assert ids(await store.pending()) == ["waits"]

    asyncio.run(main())
