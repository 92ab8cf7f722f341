"""What a server remembers of its questions, for as many of them as it has room for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Generic, TypeVar

T = TypeVar("T")
MAX_FORMS_PER_CALLER = 32
Question = tuple[str, str, str]
"""The caller, the run and the question."""


class Remembered(Generic[T]):
    """One value for each question. The oldest are forgotten."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[Question, T] = OrderedDict()

    def find(self, question: Question) -> T | None:
        return self._known.get(question)

    def keep(self, question: Question, value: T) -> None:
        self._known[question] = value
        while len(self._known) > self._limit:
            self._known.popitem(last=False)


class OpenForms:
    """Forms that clients have not answered: one for each question, and a limited number for each caller.

    A newer form replaces the one for the same question: its client may have closed that one.
    """

    def __init__(self, max_per_caller: int = MAX_FORMS_PER_CALLER) -> None:
        self._max_per_caller = max_per_caller
        self._open: dict[Question, asyncio.Task[Any]] = {}

    def add(self, question: Question, form: asyncio.Task[Any]) -> None:
        """Track a form until it is done. Cancels the form that it replaces, or the oldest form of a caller with too many."""
        others = [each for each in self._open if each[0] == question[0] and each != question]
        surplus = others[: max(0, len(others) + 1 - self._max_per_caller)]
        for each in (question, *surplus):
            if (replaced := self._open.pop(each, None)) is not None:
                replaced.cancel()
        self._open[question] = form
        form.add_done_callback(lambda done: self._forget(question, done))

    def _forget(self, question: Question, form: asyncio.Task[Any]) -> None:
        if self._open.get(question) is form:
            del self._open[question]
