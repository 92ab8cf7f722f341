"""How a run and what belongs to it look from outside: one form for the command line and HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from askback.core.events import Event, EventType
from askback.core.interactions import Interaction, Json
from askback.core.runs import Run, RunState
from askback.core.webhooks import Delivery


def run_view(run: Run) -> dict[str, Any]:
    """The run as the interface names it; what is not there is left out."""
    view: dict[str, Any] = {
        "id": run.id,
        "state": run.state,
        "skill": run.skill.id,
        "skill_version": run.skill.version,
        "engine": run.engine,
        "mode": run.mode,
        "attempt_number": run.attempt_number,
        "interactive_profile": _profile_view(run),
        "pending_interaction": interaction_view(run.pending_interaction) if run.pending_interaction else None,
        "wait_deadline_at": _time(run.wait_deadline_at),
        "reply_required": run.options.interactive_require_user_reply if run.pending_interaction else None,
        "held_process": _held_view(run),
        "warnings": [{"code": warning.code, "message": warning.message} for warning in run.warnings],
        "error": _error_view(run),
        "usage": _usage_view(run),
        "created_at": _time(run.created_at),
        "updated_at": _time(run.updated_at),
        "started_at": _time(run.started_at),
        "finished_at": _time(run.finished_at),
    }
    return {name: value for name, value in view.items() if value is not None}


def interaction_view(interaction: Interaction) -> dict[str, Any]:
    return {
        "interaction_id": interaction.interaction_id,
        "kind": interaction.kind,
        "prompt": interaction.prompt,
        "options": list(interaction.options),
        "default": interaction.default,
        "response_schema": interaction.response_schema,
        "context": interaction.context,
        "attempt_number": interaction.attempt_number,
        "asked_at": _time(interaction.asked_at),
        "outcome": interaction.outcome,
        "response": None if interaction.secret else interaction.response,
        "answered_by": interaction.answered_by,
        "answered_at": _time(interaction.answered_at),
    }


def inbox_view(run: Run) -> dict[str, Any]:
    """The question that a waiting run asks, with what its user needs to know of the run."""
    assert run.pending_interaction is not None
    view = interaction_view(run.pending_interaction) | {
        "run_id": run.id,
        "skill": run.skill.id,
        "engine": run.engine,
        "interactive_profile": _profile_view(run),
        "reply_required": run.options.interactive_require_user_reply,
    }
    if run.wait_deadline_at is not None:
        view["wait_deadline_at"] = _time(run.wait_deadline_at)
    return view


def inbox_page_view(runs: Iterable[Run], next_cursor: str | None, total: int) -> dict[str, Any]:
    """A page of pending questions, as it is listed, streamed and shown."""
    return {"items": [inbox_view(run) for run in runs], "next_cursor": next_cursor, "total": total}


def result_view(run: Run, data: Json, artifacts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "status": run.state,
        "data": data,
        "warnings": [{"code": warning.code, "message": warning.message} for warning in run.warnings],
        "error": _error_view(run),
        "artifacts": artifacts,
    }


def event_view(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "run_id": event.run_id,
        "type": event.type,
        "at": _time(event.at),
        "data": event.data,
    }


def delivery_view(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "run_id": delivery.run_id,
        "url": delivery.webhook.shown_url,
        "kind": delivery.webhook.kind,
        "event": EventType.RUN_STATE,
        "seq": delivery.seq,
        "to": delivery.new,
        "attempts": delivery.attempts,
        "last_status": delivery.last_status,
        "last_error": delivery.last_error,
        "next_attempt_at": _time(delivery.next_attempt_at),
        "delivered_at": _time(delivery.delivered_at),
    }


def _profile_view(run: Run) -> dict[str, Any]:
    return {
        "kind": run.profile.kind,
        "reason": run.profile.reason,
        "session_timeout_sec": run.profile.session_timeout_sec,
    }


def _held_view(run: Run) -> dict[str, Any] | None:
    """The process that is kept while the run waits, and until when."""
    if run.state is not RunState.WAITING_USER or run.process is None:
        return None
    return {"pid": run.process.pid, "until": _time(run.wait_deadline_at)}


def _error_view(run: Run) -> dict[str, Any] | None:
    if run.error is None:
        return None
    view = {
        "code": run.error.code,
        "message": run.error.message,
        "cause": run.error.cause,
        "detail": run.error.detail,
    }
    return {name: value for name, value in view.items() if value is not None}


def _usage_view(run: Run) -> dict[str, int] | None:
    if run.usage is None:
        return None
    return {
        "input_tokens": run.usage.input_tokens,
        "output_tokens": run.usage.output_tokens,
        "cached_tokens": run.usage.cached_tokens,
        "total_tokens": run.usage.total_tokens,
    }


def _time(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
