"""Who takes part in a storm: the skills, from tame to hostile, and what each story is to do with one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.data_folder import World

Step = dict[str, Any]

FINISH: Step = {"finish": {"colour": "{{reply}}", "all": "{{replies}}"}}
DAEMON: Step = {"misbehave": "spawn_daemon", "pid_file": "{{input.token}}-d{{turn}}", "clear_env": True}
BARE_DAEMON: Step = DAEMON | {"pid_file": "{{input.token}}-b{{turn}}", "close_fds": True}
CHILD: Step = {"misbehave": "spawn_child", "pid_file": "{{input.token}}-c{{turn}}"}
DEAF_DAEMON: Step = BARE_DAEMON | {"pid_file": "{{input.token}}-t{{turn}}", "ignore_term": True}
STICKY = {"interactive_profile": "sticky_process", "session_timeout_sec": 600}
WARM = {"warm_sec": 600}
COLD = {"warm_sec": 0}
SOON_COLD = {"warm_sec": 0.3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A skill, and how its runs are started."""

    name: str
    questions: int
    work: Sequence[Step] = ()
    native: bool = False
    mode: str = "interactive"
    engine: str = "scripted"
    options: Mapping[str, Any] = field(default_factory=COLD.copy)
    weight: int = 1

    @property
    def warm(self) -> bool:
        return bool(self.options.get("warm_sec"))

    @property
    def sticky(self) -> bool:
        return "interactive_profile" in self.options

    def turns(self) -> list[list[Step]]:
        """One for every question, and the last."""
        if self.questions == 0:
            return [[*self.work, {"finish": {"colour": "{{input.token}}"}}]]
        asks = [{"ask": {"interaction_id": f"q{n}", "prompt": f"Question {n}?"}} for n in range(self.questions)]
        if self.native:
            return [[*self.work, *({"ask_native": ask["ask"]} for ask in asks), FINISH]]
        return [*([*self.work, ask] for ask in asks), [*self.work, FINISH]]


PARTS = (
    Part(name="quick", questions=1, weight=5),
    Part(name="talkative", questions=3, work=({"say": "I think."}, {"sleep_sec": 0.03}), weight=4),
    Part(name="slow", questions=1, work=({"sleep_sec": 0.25}, {"say": "Slowly."}), weight=4),
    Part(name="silent", questions=0, work=({"sleep_sec": 0.1},), mode="auto", weight=2),
    Part(name="wild", questions=1, work=(DAEMON, BARE_DAEMON, CHILD, {"sleep_sec": 0.1}), weight=5),
    Part(name="deaf", questions=0, work=({"misbehave": "ignore_term"}, DEAF_DAEMON), mode="auto", weight=1),
    Part(name="resident", questions=2, work=({"sleep_sec": 0.03},), options=STICKY, weight=3),
    Part(name="resident-wild", questions=1, work=(DAEMON, BARE_DAEMON), options=STICKY, weight=2),
    Part(name="warm", questions=3, options=WARM, weight=4),
    Part(name="warm-slow", questions=2, work=({"sleep_sec": 0.25}, {"say": "Slowly."}), options=WARM, weight=4),
    Part(name="warm-wild", questions=1, work=(DAEMON, BARE_DAEMON, CHILD), options=WARM, weight=2),
    Part(name="warm-brief", questions=2, options=SOON_COLD, weight=2),
    Part(name="warm-deaf", questions=2, work=({"misbehave": "ignore_term"},), options=WARM, weight=1),
    Part(name="resident-native", questions=2, native=True, options=STICKY, weight=1),
)
CODEX = Part(name="codex", questions=1, engine="codex", weight=2)


def build(world: World, parts: Sequence[Part]) -> None:
    anything = {"type": "object", "properties": {"token": {"type": "string"}}}
    for part in parts:
        world.skill(*part.turns(), name=part.name, schemas={"input": anything})


def choose(chance: random.Random, parts: Sequence[Part]) -> Part:
    return chance.choices(parts, weights=[part.weight for part in parts])[0]
