"""What a caller may do."""

from __future__ import annotations

from enum import StrEnum


class AccessScope(StrEnum):
    """What a token allows; `admin` allows everything."""

    SUBMIT = "submit"
    ANSWER = "answer"
    READ = "read"
    ADMIN = "admin"
