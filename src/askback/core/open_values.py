"""Sets of texts to which newer versions add, such as error codes.

During an upgrade, programs of two versions work on one database. What the newer one writes must not make a run, an event
or a program unreadable for the older one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class OpenValue(StrEnum):
    """A text that this version does not know is a value as well: it is kept and shown, and means nothing here."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        made = str.__new__(cls, value)
        made._name_ = made._value_ = value
        return made

    @property
    def known(self) -> bool:
        return self._name_ in type(self).__members__
