"""Instructing the process of a turn, and what follows a question that the engine asks by its ask tool.

The call is held until the user has answered, or the turn ends. It is held only in a process that stays while its run waits.
Its turn is then over for Askback, and paused for the engine: the answer becomes the result of the call, and the next turn is
the rest of the engine's.
"""

from __future__ import annotations

import asyncio

from askback.core.runs import Run
from askback.engines.base import PausableConversation
from askback.worker.turn.ask_tool import fits_result
from askback.worker.turn.observe import TurnObserver
from askback.worker.turn.process import EngineProcess

LINGER_SEC = 5.0
"""How long the process of one turn may live after the engine's own end-of-turn event."""
PARTING_SEC = 60.0
"""How long a turn may continue after a question that is not held. A model needs one more request to end its turn."""
SETTLE_SEC = 0.2
"""What the engine printed before the call is read by then."""
_POLL_SEC = 0.02


async def converse(run: Run, process: EngineProcess, observer: TurnObserver) -> None:
    """Send instructions to a resident process, and wait for the end of the turn. Any other process then gets time to exit.

    Returns before the end of the turn if a process that was kept does not read the instructions.
    """
    if process.conversation is not None:
        instructed = await _instruct(process, observer)
        if not instructed or (process.was_ready_for(run) and not await process.reads()):
            process.unresponsive = True
            return
    await observer.turn_over.wait()
    if process.conversation is None:
        await asyncio.sleep(LINGER_SEC)


async def _instruct(process: EngineProcess, observer: TurnObserver) -> bool:
    """Give a resident process its instructions, in answer to the call that it waits for or as a prompt.

    False if it is not known whether it has got the answer.
    """
    conversation, instructions = process.conversation, process.prepared.instructions
    assert conversation is not None
    if process.paused and isinstance(conversation, PausableConversation):
        process.paused = False
        if process.ask_tool.holds and fits_result(instructions.prompt):
            async with process.reader_lock:
                conversation.proceed()
            return await process.ask_tool.answer(instructions.prompt)
        process.ask_tool.release_calls()
        # Until the engine has ended the turn that was paused. The time limit of the turn ends this as well.
        while True:
            if not conversation.is_paused:
                break
            await asyncio.sleep(_POLL_SEC)
    async with process.reader_lock:
        said = tuple(conversation.say(instructions.prompt, instructions.reply))
    await observer.report(said)
    return True


async def after_question(run: Run, process: EngineProcess, observer: TurnObserver) -> None:
    """Wait until the turn has asked and is over: its call is held, or it should have ended.

    A sticky run would end with its process, so its turn may continue.
    """
    await process.ask_tool.put.wait()
    if await _pause(run, process, observer):
        return
    process.ask_tool.release_calls()
    await (asyncio.Event().wait() if run.sticky else asyncio.sleep(PARTING_SEC))


async def _pause(run: Run, process: EngineProcess, observer: TurnObserver) -> bool:
    """Pause the turn if its call can be held. Not if other tools are still at work, or the session could not be resumed."""
    conversation = process.conversation
    if not isinstance(conversation, PausableConversation):
        return False
    await asyncio.sleep(SETTLE_SEC)
    async with process.reader_lock:
        alone = process.ask_tool.holds and len(observer.open_calls) <= 1
        if not alone or observer.turn_over.is_set() or not (run.sticky or observer.run.handle is not None):
            return False
        said = tuple(conversation.pause())
        process.paused = True
    await observer.report(said)
    observer.turn_over.set()
    return True
