"""What must hold of a run whose programs were killed, judged by what is not ours: the engine's session and `/proc`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from askback.process.tree import Tree
from support.data_folder import World


def audit(world: World, run_id: str, replies: Sequence[str], data: Any, wanted: Any) -> None:
    """The result is right, every reply is in the one session once, every turn was completed once, nothing lives."""
    assert data == wanted
    sessions = world.sessions(run_id)
    assert len(sessions) == 1, f"the run has {len(sessions)} sessions"
    (session,) = sessions
    prompts = [entry["text"] for entry in session if entry["type"] == "prompt"]
    for reply in replies:
        times = sum(prompt.count(reply) for prompt in prompts)
        assert times == 1, f"{reply!r} is in the session {times} times"
    completed = [entry["turn"] for entry in session if entry["type"] == "completed"]
    assert completed == list(range(1, len(replies) + 2))
    assert len(prompts) == len(replies) + 1
    assert Tree(mark=run_id).members() == set()
