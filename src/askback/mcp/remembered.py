"""What a server remembers of its questions, for as many of them as it has room for."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")
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
