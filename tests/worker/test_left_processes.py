"""Processes that an engine leaves when it exits by itself: the turn ends after them."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.core.runs import RunState
from askback.process.child import Child
from support.data_folder import World, over, run_async, submit
from support.processes import lives

DAEMON = {"misbehave": "spawn_daemon", "pid_file": "pid", "ignore_term": True, "clear_env": True, "close_fds": True}


@pytest.mark.contract("B-3")
def test_a_turn_whose_engine_leaves_a_daemon_ends_after_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is to depend on the keeper for this, which also kills what is alive when its program lets go of it."""
    world, gone, close = World(tmp_path), list[bool](), Child.close
    skill = world.skill([DAEMON, {"finish": {"colour": "blue"}}])

    def recorded(child: Child) -> None:
        gone.append(child.gone)
        close(child)

    monkeypatch.setattr(Child, "close", recorded)

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill)).id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            assert not lives(int((app.workspaces.of(run.id).cwd / "pid").read_text()))

    run_async(main)
    assert gone
    assert all(gone)
