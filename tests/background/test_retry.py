"""Attempts that are repeated: while it is said so, with a pause before each, and until somebody gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from askback.background.loops import Pauses, retry


class Attempts:
    """Fails with each of these errors, one after the other, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.pauses = 0

    async def __call__(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "done"

    async def pause(self) -> None:
        self.pauses += 1
        if self.pauses > 2:
            raise TimeoutError

    def run(self, retries: Callable[[Exception], bool]) -> str:
        return asyncio.run(retry(self, retries=retries, pause=self.pause))


def is_value_error(error: Exception) -> bool:
    return isinstance(error, ValueError)


def test_an_attempt_is_repeated_after_a_pause_until_it_succeeds() -> None:
    attempts = Attempts(ValueError(), ValueError())
    assert (attempts.run(is_value_error), attempts.pauses) == ("done", 2)


def test_an_error_that_is_not_to_be_repeated_is_raised() -> None:
    attempts = Attempts(ValueError(), KeyError("other"))
    with pytest.raises(KeyError, match="other"):
        attempts.run(is_value_error)
    assert attempts.pauses == 1


def test_a_pause_may_give_up() -> None:
    attempts = Attempts(*(ValueError() for _ in range(9)))
    with pytest.raises(TimeoutError):
        attempts.run(is_value_error)
    assert attempts.pauses == 3


def test_pauses_double_up_to_the_longest_and_begin_again() -> None:
    pauses = Pauses(1.0, first_sec=0.25)
    assert [pauses.next_sec() for _ in range(4)] == [0.25, 0.5, 1.0, 1.0]
    pauses.reset()
    assert pauses.next_sec() == 0.25
