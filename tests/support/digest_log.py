"""The log of digests, read by tests."""

from __future__ import annotations

import logging

import pytest

from support.data_folder import until


class Log:
    """What the servers of this process say about digests."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "askback.notifications.digests")
        self._caplog = caplog

    @property
    def text(self) -> str:
        return self._caplog.text

    async def sent(self, count: int) -> None:
        """Wait until so many are sent, and known to be: time that passes during an attempt would end it."""
        await until(lambda: self.text.count("a digest was sent") >= count)
