"""The events of a run as updates of the session. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from acp import helpers
from askback.client import Event, Result, Run, RunState
from askback.core.actors import in_words
from askback.core.events import EventType
from askback.core.interactions import InteractionOutcome
from askback.questions.reading import prose
from askback.text.formatting import one_line

_MAX_TITLE = 100


def agent_message(text: str) -> helpers.SessionUpdate:
    """A message of the agent. Clients join messages that follow each other, so each ends with an empty line."""
    return helpers.update_agent_message_text(f"{text.strip()}\n\n")


def user_message(text: str) -> helpers.SessionUpdate:
    """A message of the user, when a session is replayed."""
    return helpers.update_user_message_text(text)


class EventView:
    """What the client sees of a run's events. The id of a tool call is unique in the session."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._turn = 0

    def updates(self, event: Event) -> Iterator[helpers.SessionUpdate]:
        data = event.data
        match event.type:
            case EventType.TURN_STARTED:
                self._turn = data["attempt_number"]
            case EventType.ASSISTANT_MESSAGE:
                if text := prose(data["text"]).strip():
                    yield agent_message(text)
            case EventType.TOOL_STARTED:
                title = one_line(f"{data['name']} {data.get('detail', '')}", _MAX_TITLE)
                yield helpers.start_tool_call(self._call_id(data), title, kind="other", status="in_progress")
            case EventType.TOOL_ENDED:
                output = str(data.get("output") or "")
                content = [helpers.tool_content(helpers.text_block(output))] if output else None
                yield helpers.update_tool_call(
                    self._call_id(data), status="completed" if data["ok"] else "failed", content=content
                )
            case EventType.RUN_WARNING:
                yield agent_message(f"Warning {data['code']}: {data['message']}")
            case EventType.INTERACTION_EXPIRING:
                yield agent_message(f"The question is still open; it expires at {data['deadline_at']}.")
            case _:
                return

    def _call_id(self, data: dict[str, Any]) -> str:
        return f"{self._run_id}:{self._turn}:{data['call_id']}"


def closing_text(data: dict[str, Any]) -> str:
    """How a question was closed elsewhere."""
    by = data.get("answered_with")
    who = f" by {in_words(by['name'], by['via'])}" if by else ""
    if data.get("outcome") != InteractionOutcome.ANSWERED:
        return f"The question is closed: {str(data.get('outcome')).replace('_', ' ')}{who}."
    response = data.get("response")
    if response is None:
        return f"Answered{who}."
    return f"Answered{who}: {response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)}"


def ending(run: Run, result: Result, artifact_uri: str) -> Iterator[helpers.SessionUpdate]:
    """How a run ended: its output, or why there is none, and a link to each of its files."""
    match run.state:
        case RunState.SUCCEEDED:
            document = json.dumps(result.data, ensure_ascii=False, indent=2)
            yield agent_message(f"Run {run.id} succeeded.\n\n```json\n{document}\n```")
        case RunState.CANCELED:
            by = f" by {in_words(run.canceled_by.name, run.canceled_by.via)}" if run.canceled_by else ""
            yield agent_message(f"Run {run.id} was canceled{by}.")
        case _:
            yield agent_message(_failure(run))
    for artifact in result.artifacts:
        uri = f"{artifact_uri}/{quote(artifact.path)}"
        yield helpers.update_agent_message(helpers.resource_link_block(artifact.path, uri, size=artifact.size))


def _failure(run: Run) -> str:
    error = run.error
    if error is None:
        return f"Run {run.id} failed."
    lines = [f"Run {run.id} failed: {error.code}: {error.message}"]
    if error.cause:
        lines.append(f"Cause: {error.cause}")
    if error.detail:
        lines.append(f"```\n{error.detail.strip()}\n```")
    return "\n\n".join(lines)
