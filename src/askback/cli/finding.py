"""One line of `askback doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`ok` is None for something worth knowing that is not wrong; with `warning`, for something to act on."""

    what: str
    ok: bool | None
    message: str
    advice: str = ""
    warning: bool = False
