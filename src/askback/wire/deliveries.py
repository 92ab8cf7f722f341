"""Notifications and their deliveries, as they are sent."""

from __future__ import annotations

from typing import Annotated, Any, Self

from askback.core.events import EventType
from askback.core.runs import RunState
from askback.core.webhooks import DeliveryReason, WebhookKind
from askback.wire.base import Moment, Page, RunId, Shape, about, one_of
from askback.wire.runs import Run

_NOTIFICATION_TYPES = {
    DeliveryReason.STATE: EventType.RUN_STATE.value,
    DeliveryReason.REMINDER: "interaction.reminder",
    DeliveryReason.EXPIRING: EventType.INTERACTION_EXPIRING.value,
    DeliveryReason.PARKED: EventType.RUN_PARKED.value,
    DeliveryReason.RESUMED: EventType.RUN_RESUMED.value,
}
_TYPES_SCHEMA = {"enum": list(_NOTIFICATION_TYPES.values())}


class Delivery(Shape):
    """The notification of one webhook: of one change of state, or again of a question."""

    id: Annotated[
        str, about("The same for every attempt. Sent to the receiver as `webhook-id`.", "msg_1m7gekfsksrgk77s_2_1")
    ]
    run_id: RunId
    url: Annotated[str, about("The URL of the webhook, without parts that may be secret.", "https://example.com/hook")]
    kind: Annotated[str, one_of(WebhookKind), about("The format of the request.")]
    reason: Annotated[
        str,
        one_of(DeliveryReason),
        about(
            "`state`: the run changed its state. `reminder`: its question is still open. `expiring`: its deadline is near. "
            "`parked`, `resumed`: it waits for a limit of the model provider to end, or does not wait any more."
        ),
    ]
    event: Annotated[str, about("The `type` of the notification.", extra_json_schema=_TYPES_SCHEMA)]
    seq: Annotated[int, about("The number of the event. For a reminder: of the change to `waiting_user`.", 2, ge=1)]
    to: Annotated[RunState, about("The new state of the run.")]
    attempts: Annotated[int, about("The number of attempts so far.", 1, ge=0)]
    last_status: Annotated[int | None, about("The HTTP status of the last attempt; of an e-mail the SMTP status.", 204)]
    last_error: Annotated[str | None, about("Why the last attempt failed.")]
    next_attempt_at: Annotated[Moment | None, about("When the next attempt is due. Null if there is none.")]
    delivered_at: Annotated[Moment | None, about("When it was delivered. Null if it was not.")]

    @classmethod
    def of(cls, source: Any = None, **given: Any) -> Self:
        webhook, event = source.webhook, _NOTIFICATION_TYPES[source.reason]
        return super().of(source, url=webhook.shown_url, kind=webhook.kind, event=event, to=source.new, **given)


class DeliveryPage(Page[Delivery]):
    """Deliveries, newest first."""


class StateChange(Shape, omit_defaults=True, rename={"old": "from", "new": "to"}):
    """A run that has changed its state, or still waits with the same question."""

    run: Annotated[Run, about("The run, as it was right after the change; in a reminder, as it is now.")]
    old: Annotated[
        RunState | None,
        about("The previous state. Null for a new run. The same as `to` if the run still waits.", "running"),
    ]
    new: Annotated[RunState, about("The new state.", "waiting_user")]
    seq: Annotated[int, about("The number of the event.", 2, ge=1)]
    answer_url: Annotated[
        str | None,
        about(
            "A link to the question of a waiting run, for people: its holder can answer this question without a token, "
            "while it is pending. Left out if the server has no `public_url`, or the receiver may not answer.",
            "https://askback.example/answers/WyIxbTdnZWtmc2tzcmdr",
        ),
    ] = None


class Notification(Shape):
    """The body that a `standard` webhook receives."""

    type: Annotated[
        str,
        about(
            "`run.state`: the run changed its state. `interaction.reminder`: its question is still open. "
            "`interaction.expiring`: the deadline of its question is near. `run.parked`: the run waits until `not_before` "
            "for a limit of the model provider. `run.resumed`: it does not wait any more.",
            extra_json_schema=_TYPES_SCHEMA,
        ),
    ]
    timestamp: Annotated[Moment, about("When the state changed, the reminder was due or the deadline was announced.")]
    data: Annotated[StateChange, about("What changed.")]

    @classmethod
    def of(cls, source: Any = None, **given: Any) -> Self:
        """The notification of a due delivery. `answer_url` is the link to its question."""
        delivery = source.delivery
        change = StateChange.of(delivery, run=source.run, answer_url=given.get("answer_url"))
        return cls(type=_NOTIFICATION_TYPES[delivery.reason], timestamp=delivery.at, data=change)
