"""The models of the installed engines, as their programs list them.

Answers are kept in memory for an hour, refusals for a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from askback.catalog.probes import EngineSetup, Installed, identity_of
from askback.catalog.trials import Trials, talk
from askback.engines.base import Engine, Model, ModelQuery, NoModels
from askback.process.child import Child, NotStarted
from askback.text.redaction import Redactor

MODELS_SEC = 30.0
"""How long a program may take to list its models."""
FRESH_SEC = 3600.0
RETRY_SEC = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """`models` is None if the engine cannot list them, for the `reason`."""

    models: tuple[Model, ...] | None
    reason: str | None
    asked_at: datetime


class ModelLists:
    def __init__(self, *, trials: Trials, clock: Callable[[], datetime]) -> None:
        self._trials = trials
        self._clock = clock
        self._known: dict[str, tuple[str, ModelAnswer]] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def find(self, engine: Engine, setup: EngineSetup, installed: Installed | None) -> ModelAnswer:
        """The models of an engine: the last answer if it is recent, otherwise a new one."""
        if installed is None:
            return self._without(f"the engine is not installed; {engine.install}")
        if not engine.lists_models:
            return self._without("the engine does not list its models; name any model that it accepts")
        key = f"{identity_of(engine, installed.path, setup)} {installed.signed_in}"
        async with self._asking.setdefault(engine.name, asyncio.Lock()):
            known = self._known.get(engine.name)
            if known is None or known[0] != key or not self._is_recent(known[1]):
                known = self._known[engine.name] = key, await self._ask(engine, setup, installed)
            return known[1]

    def _is_recent(self, answer: ModelAnswer) -> bool:
        age = (self._clock() - answer.asked_at).total_seconds()
        return 0 <= age < (RETRY_SEC if answer.models is None else FRESH_SEC)

    def _without(self, reason: str) -> ModelAnswer:
        return ModelAnswer(models=None, reason=reason, asked_at=self._clock())

    async def _ask(self, engine: Engine, setup: EngineSetup, installed: Installed) -> ModelAnswer:
        async with self._trials.begin(engine, setup, installed) as trial:
            if trial is None:
                return self._without("another program asks it at the moment; try again")
            query = engine.model_query(trial.turn)
            found: Sequence[Model] | NoModels
            try:
                async with trial.process(engine.launch_models(trial.turn)) as child:
                    found = query.finish(await _talk(child, query))
            except NotStarted as error:
                found = NoModels(reason=str(error))
        if isinstance(found, NoModels):
            return self._without(Redactor(setup.secrets).text(f"the engine did not list its models: {found.reason}"))
        if setup.model is not None:
            # The model of the settings is the default of runs, whatever the program says.
            found = [replace(each, is_default=each.id == setup.model) for each in found]
        return ModelAnswer(models=tuple(found), reason=None, asked_at=self._clock())


async def _talk(child: Child, query: ModelQuery) -> int | None:
    """Let the query and the program talk until the answer is complete. Returns the exit code if the program has ended."""
    return await talk(child, query.begin(), query.feed, lambda: query.is_over, MODELS_SEC)
