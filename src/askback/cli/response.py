"""What is sent as the answer to a pending question: which question it is, and what was typed or given for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from askback.cli.terminal import question
from askback.core.errors import Conflict, Invalid, RefusalCode
from askback.core.interactions import Interaction

if TYPE_CHECKING:
    from askback.cli.terminal.live import Display
    from askback.cli.terminal.prompt import Gone
    from askback.client import Run as ServedRun
    from askback.core.interactions import Json
    from askback.core.runs import Run


def pending_question(run: Run | ServedRun, wanted: str | None) -> Interaction:
    """The question that is answered; with `wanted`, no other."""
    pending = run.pending_interaction
    if pending is None:
        raise Conflict(
            RefusalCode.INTERACTION_NOT_PENDING, f"run {run.id} is {run.state}: it asks nothing at the moment"
        )
    if wanted is not None and wanted != pending.interaction_id:
        raise Conflict(
            RefusalCode.INTERACTION_NOT_PENDING,
            f"question {wanted!r} of run {run.id} is not pending; {pending.interaction_id!r} is",
        )
    return pending if isinstance(pending, Interaction) else Interaction(**msgspec.structs.asdict(pending))


async def response_to(pending: Interaction, text: str | None, display: Display, gone: Gone, run_id: str) -> Json:
    """What the text means as an answer; without one, what is typed here until the question is `gone`."""
    if text is not None:
        response = question.read_answer(pending, text)
        if response == "":
            raise Invalid(RefusalCode.REPLY_INVALID, "the answer is empty, and the question has no default")
        return response
    display.pause()
    response = await question.ask(pending, display.write, gone)
    display.resume()
    if response is None:
        message = f"question {pending.interaction_id!r} of run {run_id} was settled elsewhere meanwhile"
        raise Conflict(RefusalCode.INTERACTION_NOT_PENDING, message)
    return response
