"""Which names a token may have: one rule for the API, the commands and the page. Pure."""

from __future__ import annotations

import re

from askback.core.actors import ASKBACK
from askback.core.errors import Invalid, RefusalCode

MAIN = "main"
"""The name of the server's own token."""
PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_RESERVED = (MAIN, ASKBACK.name)
"""Nobody may be taken for the server's own token, or for Askback itself."""
RULE = (
    "starts with a letter or digit, and has at most 100 characters: letters, digits, '.', '_' and '-'; "
    f"{' and '.join(map(repr, _RESERVED))} are reserved"
)


def check_token_name(name: str) -> None:
    """Raises `Invalid` for a name that a new token cannot have."""
    if not re.fullmatch(PATTERN, name) or name.lower() in _RESERVED:
        raise Invalid(RefusalCode.INPUT_INVALID, f"the name of a token {RULE}")
