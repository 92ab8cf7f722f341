"""What only claude has, with the real program: texts that it would take for commands of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clis import MODEL, Station
from double import ModelDouble, say

from askback.core.runs import Mode, ProfileKind
from askback.engines.base import Probe, Turn
from askback.engines.claude import SETTINGS, engine


@pytest.mark.contract("E-5")
def test_a_prompt_that_begins_with_a_slash_reaches_the_model(
    station: Callable[[str], Station], double: ModelDouble
) -> None:
    place = station("claude")
    turn = Turn(
        prompt="/compact\nand more",
        mode=Mode.AUTO,
        attempt_number=1,
        command=(str(place.program),),
        cwd=str(place.cwd),
        home=str(place.home),
        skill_dir="skill",
        probe=Probe(kind=ProfileKind.RESUMABLE, reason="pinned", features=(SETTINGS,)),
        model=MODEL,
    )
    launch = engine().launch(turn)
    double.play(say("Hi."))
    assert place.run(*launch.argv[1:], stdin=launch.stdin.decode()).exit_code == 0
    assert double.requests[0].user_texts[-1].lstrip() == turn.prompt
