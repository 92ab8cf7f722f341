"""How the title of a message says that it is not the first about its question."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from askback.core.webhooks import DeliveryReason, DueDelivery
from askback.text.formatting import count

_MINUTE, _HOUR = 60, 3600


def prefix(due: DueDelivery, now: datetime) -> str:
    """What the title of the message begins with, such as `Still waiting: `."""
    match due.delivery.reason:
        case DeliveryReason.STATE:
            return ""
        case DeliveryReason.REMINDER:
            return "Still waiting: "
        case DeliveryReason.EXPIRING:
            deadline = due.run.wait_deadline_at
            return "Expires soon: " if deadline is None else f"Expires in {_left((deadline - now).total_seconds())}: "
        case reason:
            assert_never(reason)


def _left(seconds: float) -> str:
    """In the largest unit that tells it well: `10 minutes`."""
    if seconds < 1.5 * _MINUTE:
        return count(max(round(seconds), 0), "second")
    if seconds < 1.5 * _HOUR:
        return count(round(seconds / _MINUTE), "minute")
    return count(round(seconds / _HOUR), "hour")
