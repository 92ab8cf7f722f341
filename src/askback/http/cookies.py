"""Reading one cookie of a request.

Not with `http.cookies`: its parser takes seconds for a header of a few kilobytes in some versions of Python, and anybody can
send one before the sign-in. Ours reads the header once, and unquotes nothing, since our cookies are never quoted.
"""

from __future__ import annotations


def cookie(header: str, name: str) -> str | None:
    """The value of the cookie in a `Cookie` header; of several, the last."""
    found = None
    for part in header.split(";"):
        key, equals, value = part.partition("=")
        if equals and key.strip() == name:
            found = value.strip()
    return found
