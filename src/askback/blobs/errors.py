"""The messages for callers if stored files cannot be used. None has a text of the store, which may contain signed addresses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from askback.core.errors import Invalid, RefusalCode, Unavailable

_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_STATUS = re.compile(r"status code: ([1-5][0-9]{2})\b")
_CAUSES = {
    "missing accesskeyid": "AWS_ACCESS_KEY_ID is not set",
    "missing secretaccesskey": "AWS_SECRET_ACCESS_KEY is not set",
    "invalidcontenttype": "it does not speak TLS; a plain http endpoint needs http:// in its address",
    "dns error": "its host is unknown",
    "connection refused": "the connection was refused",
    "certificate": "its certificate is not trusted",
    "token request": "no credentials were found, or they were refused",
    "operation timed out": "it did not answer in time",
    "builder error": "the request is not allowed; a plain http endpoint needs http:// in its address",
    "error sending request": "it cannot be reached",
}


class WrongStore(Unavailable):
    """A store that is not the one of the database. Waiting does not help: a person must look at it."""


def wrong_store(place: str, why: str) -> WrongStore:
    return WrongStore(RefusalCode.FILES_UNAVAILABLE, f"the file store {place} cannot be used: {why}")


def unavailable(place: str, why: str) -> Unavailable:
    return Unavailable(RefusalCode.FILES_UNAVAILABLE, f"the file store {place} cannot be used: {why}")


def too_large(key: str, max_bytes: int) -> Invalid:
    return Invalid(RefusalCode.INPUT_INVALID, f"the stored file {key} is larger than {max_bytes} bytes")


def cause(text: str) -> str:
    """What is known to be harmless of an error: the store's code for it, or the kind of the failure."""
    if code := _CODE.search(text):
        return f"it answered {code[1]}"
    folded = text.lower()
    known = next((said for sign, said in _CAUSES.items() if sign in folded), None)
    if known is None and (status := _STATUS.search(folded)):
        known = f"it answered with status {status[1]}; is it an object store?"
    return known or "the request failed"


def size_of(path: Path) -> int:
    return path.stat().st_size


def time_limit(usual_sec: float, size: int = 0) -> float:
    """The seconds that a call may take. A large file gets one more for each megabyte."""
    return usual_sec + size / 1_000_000


@asynccontextmanager
async def limited(place: str, seconds: float) -> AsyncIterator[None]:
    """Raises `Unavailable` if the block takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise unavailable(place, f"it did not answer within {seconds:g} seconds") from None
