"""The auditor: what clients were told, against the engines' own session files and `/proc`. Asks the server nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from storm.clients import Rival, Story
from storm.processes import bearing, told

MOST_TAKE_UPS = 3


class Kind(StrEnum):
    LOST = "lost"
    TWICE = "twice"
    ALIVE = "left alive"


@dataclass(slots=True, kw_only=True)
class Verdict:
    runs: int = 0
    replies: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """How runs ended, besides `succeeded`."""
    problems: list[tuple[Kind, str]] = field(default_factory=list)

    def add(self, kind: Kind, text: str) -> None:
        self.problems.append((kind, text))

    def count(self, kind: Kind) -> int:
        return sum(each is kind for each, _ in self.problems)

    @property
    def clean(self) -> bool:
        return not self.problems


class Auditor:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.verdict = Verdict()

    def look_for_survivors(self, story: Story) -> None:
        """At the moment that a run is told to be over nothing of it may live."""
        for process in bearing(f"ASKBACK_RUN={story.run_id}", story.token):
            self.verdict.add(Kind.ALIVE, f"{_name(story)} is over, and this lives: {told(process)}")

    def judge(self, story: Story) -> None:
        verdict = self.verdict
        verdict.runs += 1
        self._judge_telling(story)
        if not self._is_lawful(story):
            verdict.add(Kind.LOST, f"{_name(story)} ended as {story.state}: {story.run.get('error')}")
        texts = list(self._said(story))
        won = [self._judge_question(story, each, pair, texts) for each, pair in story.rivals.items()]
        if story.state == "succeeded":
            self._judge_success(story, [text for text in won if text is not None])

    def judge_unfinished(self, stories: Iterable[Story]) -> None:
        for story in stories:
            self.verdict.add(Kind.LOST, f"{_name(story)} did not end; it is {story.state}")

    def judge_list(self, stories: Iterable[Story], listed: Iterable[dict[str, Any]]) -> None:
        """Every run that exists was told to exactly one client."""
        known, found = {story.run_id for story in stories}, [run["id"] for run in listed]
        for run_id in sorted(known - set(found)):
            self.verdict.add(Kind.LOST, f"run {run_id} was told to a client and is not listed")
        for run_id in found:
            if run_id not in known:
                self.verdict.add(Kind.TWICE, f"run {run_id} was made and told to nobody")

    def _judge_telling(self, story: Story) -> None:
        for trouble in story.troubles:
            self.verdict.add(Kind.LOST, f"{_name(story)}: {trouble}")
        if story.result.get("status") != story.state:
            self.verdict.add(Kind.LOST, f"{_name(story)} is {story.state}, and its result {story.result}")
        if story.cancel_told and story.state != "canceled":
            self.verdict.add(Kind.LOST, f"{_name(story)} was to be canceled and {story.state}")

    def _is_lawful(self, story: Story) -> bool:
        """Succeeded, or ended as the contract allows for what was done to it."""
        if story.state == "succeeded":
            return True
        code = (story.run.get("error") or {}).get("code", "")
        self.verdict.ends[code or story.state] += 1
        if story.state == "canceled":
            return story.cancel_sent
        if code == "INTERACTION_PROCESS_LOST":
            return story.part.sticky and story.kills > 0
        return code == "ORCHESTRATOR_RESTART_INTERRUPTED" and story.kills > MOST_TAKE_UPS

    def _judge_question(self, story: Story, question: str, pair: tuple[Rival, Rival], texts: list[str]) -> str | None:
        """The answer that the engine got, if any."""
        where = f"{_name(story)}, question {question}"
        accepted = [rival for rival in pair if rival.accepted]
        self.verdict.replies += len(accepted)
        times = {rival.text: sum(text.count(rival.text) for text in texts) for rival in pair}
        got = [text for text, count in times.items() if count]
        if len(accepted) > 1:
            self.verdict.add(Kind.TWICE, f"{where}: both of two racing replies were accepted")
        if len(got) > 1 or any(count > 1 for count in times.values()):
            self.verdict.add(Kind.TWICE, f"{where}: the session has its replies {sorted(times.values())} times")
        for rival in pair:
            if times[rival.text] and not (rival.accepted or rival.unknown):
                self.verdict.add(Kind.TWICE, f"{where}: a reply that was refused is in the session")
        if story.state == "succeeded" and (not got or (accepted and accepted[0].text not in got)):
            self.verdict.add(Kind.LOST, f"{where}: the reply that was accepted is not in the session")
        return got[0] if got else None

    def _judge_success(self, story: Story, won: list[str]) -> None:
        data, questions = story.result.get("data") or {}, story.part.questions
        wanted = won[-1] if won else story.token
        if len(story.rivals) != questions or data.get("colour") != wanted or data.get("all", won) != won:
            self.verdict.add(Kind.LOST, f"{_name(story)} has a wrong result: {data}, and not {won}")
        if story.part.engine != "scripted":
            return
        sessions = self._sessions(story)
        if len(sessions) != 1:
            self.verdict.add(Kind.TWICE, f"{_name(story)} has {len(sessions)} sessions")
            return
        completed = [record["turn"] for record in sessions[0] if record["type"] == "completed"]
        if completed != list(range(1, len(story.part.turns()) + 1)):
            self.verdict.add(Kind.TWICE, f"{_name(story)} completed the turns {completed}")

    # The sessions.

    def _said(self, story: Story) -> Iterator[str]:
        """What the engine's sessions say that its user said."""
        home = self.home(story)
        if story.part.engine == "codex":
            for path in home.glob(".codex/sessions/**/*.jsonl"):
                yield from map(_of_user, _records(path))
            return
        for session in self._sessions(story):
            for record in session:
                if record["type"] in ("prompt", "answer"):
                    yield json.dumps(record)

    def _sessions(self, story: Story) -> list[list[dict[str, Any]]]:
        folder = self.home(story) / ".scripted" / "sessions"
        return [list(_records(path)) for path in sorted(folder.glob("*.jsonl"))]

    def home(self, story: Story) -> Path:
        """Where the engine of a run that is over has its sessions."""
        return self._data_dir / "runs" / story.run_id / "home"


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _of_user(record: dict[str, Any]) -> str:
    """What goes to the model as the user's words; codex notes the same words a second time for its own display."""
    item = record.get("payload") or {}
    is_user = record.get("type") == "response_item" and item.get("type") == "message" and item.get("role") == "user"
    return json.dumps(item.get("content")) if is_user else ""


def _name(story: Story) -> str:
    return f"run {story.run_id} (#{story.number}, {story.part.name}, {story.kills} kills)"
