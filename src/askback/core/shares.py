"""How the slots are shared among tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How many slots the runs of one token may have at a time. Runs without a token have no limit."""

    usual: int | None = None
    """None: no limit."""
    named: Mapping[str, int | None] = field(default_factory=dict)
    """Those of single tokens, by name."""

    def of(self, token: str | None) -> int | None:
        return None if token is None else self.named.get(token, self.usual)


UNLIMITED = Shares()
