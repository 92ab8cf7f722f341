"""The slots of deliveries: how many are sent at the same time, and for whom.

A slow receiver must not delay the others, and what callers add must not delay the webhooks of the settings: those have slots
that nobody else can take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum, auto

from askback.core.webhooks import BusyReceivers, DueDelivery, WebhookKind


class _Share(StrEnum):
    """What is limited."""

    ALL = auto()
    CALLERS = auto()
    CALLER = auto()
    HOST = auto()
    HOST_OF_CALLERS = auto()


_LIMITS = {_Share.ALL: 16, _Share.CALLERS: 8, _Share.CALLER: 4, _Share.HOST: 4, _Share.HOST_OF_CALLERS: 2}
_MAX_CLAIM = min(_LIMITS.values())

Slot = tuple[tuple[_Share, str], ...]
"""What a delivery counts for."""


class Slots:
    def __init__(self) -> None:
        self._taken: Counter[tuple[_Share, str]] = Counter()

    @property
    def room(self) -> int:
        """How many deliveries may be claimed now, whatever they are, if those of `busy` are left out."""
        if self._taken[_Share.ALL, ""] >= _LIMITS[_Share.ALL]:
            return 0
        left = (_LIMITS[share] - count for (share, _), count in self._taken.items())
        return min(_MAX_CLAIM, min((each for each in left if each > 0), default=_MAX_CLAIM))

    def busy(self, owners: Mapping[str, str]) -> BusyReceivers:
        """`owners`: of the devices, by their URL."""
        callers = self._full(_Share.CALLER)
        return BusyReceivers(
            hosts=self._full(_Share.HOST),
            hosts_of_callers=self._full(_Share.HOST_OF_CALLERS),
            callers=callers,
            devices=frozenset(url for url, owner in owners.items() if owner in callers),
            all_callers=bool(self._full(_Share.CALLERS)),
        )

    def take(self, due: DueDelivery, owners: Mapping[str, str]) -> Slot:
        host, caller = due.delivery.webhook.host, _caller(due, owners)
        slot: Slot = ((_Share.ALL, ""), (_Share.HOST, host))
        if caller is not None:
            shares = ((_Share.CALLERS, ""), (_Share.CALLER, caller), (_Share.HOST_OF_CALLERS, host))
            slot = ((_Share.ALL, ""), *shares)
        self._taken.update(slot)
        return slot

    def free(self, slot: Slot) -> None:
        self._taken.subtract(slot)
        self._taken = +self._taken

    def _full(self, share: _Share) -> frozenset[str]:
        return frozenset(
            name for (each, name), count in self._taken.items() if each is share and count >= _LIMITS[share]
        )


def _caller(due: DueDelivery, owners: Mapping[str, str]) -> str | None:
    """The token that added the receiver; empty for a user of this machine. None: the settings have it."""
    delivery = due.delivery
    if delivery.of_run:
        return due.run.created_by or ""
    return owners.get(delivery.webhook.url, "") if delivery.webhook.kind is WebhookKind.PUSH else None
