"""Why a run failed, as lines: the error, what the engine said, and the command that fixes it."""

from __future__ import annotations

from collections.abc import Iterator

from askback.core import errors
from askback.core.errors import ErrorCode
from askback.text.formatting import printable
from askback.wire import runs as wire

_MAX_DETAIL = 1000


def failure(engine: str, error: errors.RunError | wire.RunError | None) -> Iterator[str]:
    """`engine` is the name of the run's engine. Without an error there are no lines."""
    if error is None:
        return
    yield f"  {printable(error.code)}: {printable(error.message)}"
    if error.cause is not None:
        yield f"  cause: {printable(error.cause)}"
    if error.detail:
        yield f"  {printable(error.detail.strip()[-_MAX_DETAIL:])}"
    if advice := _advice(engine, {error.code, error.cause}):
        yield f"  → {advice}"


def _advice(engine: str, codes: set[str | None]) -> str | None:
    """How to sign in, where that may help. An engine often names a command that works only inside itself."""
    from askback.engines import registry

    known = registry.engines()
    if engine not in known or known[engine].signed_in((), ()):
        # Not an engine of this version, or one that needs no account.
        return None
    if ErrorCode.ENGINE_AUTH_REQUIRED in codes:
        return known[engine].sign_in
    if ErrorCode.ENGINE_UNREACHABLE in codes:
        return f"check the network; if {engine} is not signed in, {known[engine].sign_in}"
    return None
