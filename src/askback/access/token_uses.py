"""When each token was last used, and through which channel. In a separate collection: the tokens themselves change rarely."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from askback.access.late_writes import keep_writing
from askback.background.outages import OUTAGES
from askback.core.actors import Channel
from askback.core.errors import Unavailable
from askback.fs.records import Records

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """The last use of the token with this digest."""

    digest: str
    at: datetime
    via: Channel


class TokenUses:
    """Accurate in the server that the token is used at; other programs see what it has written."""

    def __init__(self, records: Records, clock: Callable[[], datetime]) -> None:
        self._stored = records.collection("token-uses", TokenUse)
        self._clock = clock
        self._noted: dict[str, TokenUse] = {}
        self._is_written = True

    def note(self, token_digest: str, via: Channel) -> None:
        """Remember that the token is being used. Writes nothing."""
        self._noted[token_digest] = TokenUse(digest=token_digest, at=self._clock(), via=via)
        self._is_written = False

    def last(self, token_digest: str) -> TokenUse | None:
        """None if the token was never used, or if that cannot be read."""
        try:
            written = self._stored.read().get(token_digest)
        except Unavailable as error:
            OUTAGES.failed(log, "cannot read when tokens were used", error)
            written = None
        return _later(written, self._noted.get(token_digest))

    def flush(self, known: Callable[[], frozenset[str]]) -> None:
        """Write the uses of the tokens with these digests, and forget those of all others."""
        if self._is_written:
            return
        # Before the copy: a use that is noted meanwhile is written the next time.
        self._is_written = True
        try:
            with self._stored.changing() as uses:
                # Another server may have seen a later use.
                for noted in list(self._noted.values()):
                    uses[noted.digest] = _later(uses.get(noted.digest), noted) or noted
                for token_digest in self._outdated(uses, known):
                    del uses[token_digest]
        except (Unavailable, OSError):
            self._is_written = False
            raise

    def _outdated(self, uses: Mapping[str, TokenUse], known: Callable[[], frozenset[str]]) -> Collection[str]:
        """Of tokens that were revoked. Tokens that cannot be read were not."""
        try:
            return uses.keys() - known()
        except Unavailable as error:
            OUTAGES.failed(log, "cannot read which tokens there are", error)
            return ()

    async def watch(self, known: Callable[[], frozenset[str]]) -> None:
        """Periodically write when tokens were used."""
        await keep_writing(lambda: self.flush(known), "when tokens were used")


def _later(one: TokenUse | None, other: TokenUse | None) -> TokenUse | None:
    if one is None or other is None:
        return one or other
    return one if one.at > other.at else other
