"""Runs as text: a line of a list, a page, how they ended. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size

from askback.cli.output import cut
from askback.cli.terminal.forms import format_answer
from askback.cli.terminal.question import question_lines, reply_command, yes_no_hint
from askback.core.actors import Actor, Channel, in_words
from askback.core.changes import ChangeStatus, NoSummary
from askback.core.errors import ErrorCode
from askback.core.events import Event, EventType
from askback.core.interactions import InteractionOutcome, option_label, option_value
from askback.core.labels import for_people, shown_labels
from askback.core.runs import InheritedFiles, ProfileKind, RunState
from askback.skills.field_values import readable
from askback.text.formatting import count, duration, one_line, printable, size, units_of
from askback.wire.artifacts import Artifact, Changes
from askback.wire.base import Actor as WireActor
from askback.wire.questions import Interaction
from askback.wire.runs import Event as WireEvent
from askback.wire.runs import Origin, PendingQuestion, Run, RunError
from askback.wire.server import UsageSum

_SIGNS = {
    RunState.SUCCEEDED: "✔",
    RunState.FAILED: "✘",
    RunState.CANCELED: "■",
    RunState.WAITING_USER: "?",
    RunState.RUNNING: "▸",
    RunState.QUEUED: "·",
}
MAX_FILES = 500
"""How many files of a run are shown."""
_ROOM_FOR_ENGINE = 100
"""A narrower list has no column for the engine."""
_QUEUE_REASONS = {
    "slots": "no free slot",
    "engine_slots": "no free slot for its engine",
    "token_slots": "its token has all slots that it may have",
    "starting": "starting",
    "no_worker": "no worker has its engine",
    "unready": "no turns are started for now",
    "usage_limit": "parked for a limit of the model provider",
}
_NO_SUMMARY = {
    NoSummary.NOT_A_REPOSITORY: "it is not the top folder of a git repository, or it is a linked worktree",
    NoSummary.GIT_MISSING: "git is not installed",
    NoSummary.TOO_SLOW: "git could not compare the folder in time",
    NoSummary.UNREADABLE: "git could not read the repository",
    NoSummary.NOT_STARTED: "the run never started a turn there",
}
_MAX_CHANGES = 30
_MAX_PATH = 80
_MAX_DETAIL = 1000
_MAX_NAME = 120


def line(run: Run) -> str:
    age = f"{duration(_since(run.created_at))} ago"
    return (
        f"{_SIGNS[run.state]} {printable(run.id)}  {run.state:<12} {one_line(run.skill, 24):<24} "
        f"{one_line(run.engine, 10):<10} {age:<16} {_about(run)}"
    ).rstrip()


def table(runs: Sequence[Run], width: int) -> list[str]:
    """The list for a terminal, with a heading: one line for each run, however narrow."""
    rows = [("RUN", "STATE", "SKILL", "ENGINE", "AGE", "ABOUT"), *map(_cells, runs)]
    if width < _ROOM_FOR_ENGINE:
        rows = [(*cells[:3], *cells[4:]) for cells in rows]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    signs = [" ", *(_SIGNS[run.state] for run in runs)]
    lines = (
        "  ".join(set_cell_size(cell, size) for cell, size in zip(cells, widths, strict=True)).rstrip()
        for cells in rows
    )
    return [cut(f"{sign} {line}", width) for sign, line in zip(signs, lines, strict=True)]


def _cells(run: Run) -> tuple[str, ...]:
    skill, engine = one_line(run.skill, 16), one_line(run.engine, 10)
    number, unit = units_of(_since(run.created_at))[0]
    return printable(run.id), run.state, skill, engine, f"{number} {unit}", _about(run)


def _about(run: Run) -> str:
    """The input in one line, then the pending question or the error."""
    parts = [one_line(run.summary or "", 60)]
    if run.pending_interaction is not None:
        parts.append(one_line(run.pending_interaction.heading, 60))
    elif run.error is not None:
        parts.append(printable(run.error.code))
    else:
        parts.append(_QUEUE_REASONS.get(run.queue_reason or "", ""))
    return " · ".join(part for part in parts if part)


def page(
    run: Run, interactions: Iterable[Interaction], artifacts: Sequence[Artifact] | str, changes: Changes | None = None
) -> Iterator[str]:
    """Everything about a run. Instead of its files, `artifacts` may say why they cannot be listed."""
    version = f" {printable(run.skill_version)}" if run.skill_version else ""
    reason = _QUEUE_REASONS.get(run.queue_reason or "")
    yield f"{_SIGNS[run.state]} run {printable(run.id)}: {run.state}" + (f" ({reason})" if reason else "")
    yield f"  skill    {printable(run.skill)}{version} on {printable(run.engine)} ({run.mode})"
    if run.from_run is not None:
        yield f"  from     run {printable(run.from_run.run_id)}{_taken_over(run.from_run)}"
    if run.workdir is not None:
        yield f"  folder   {printable(run.workdir)}"
    if labels := labels_text(run.labels):
        yield f"  labels   {labels}"
    yield from _input(run)
    if run.interactive_profile.kind is not ProfileKind.RESUMABLE:
        yield f"  waits    {run.interactive_profile.kind}: {one_line(run.interactive_profile.reason, 120)}"
    yield f"  turn     {run.attempt_number}"
    if (held := run.held_process) is not None:
        until = f" until {_time(held.until)}{_until(held.until)}" if held.until is not None else ", and is ending"
        yield f"  process  {held.pid} is kept, with its slot{until}"
    yield f"  created  {_time(run.created_at)} ({duration(_since(run.created_at))} ago)"
    if run.not_before is not None and run.parked_for is not None:
        kind = printable(run.parked_for.kind).replace("_", " ")
        yield f"  parked   for a limit ({kind}) until {_time(run.not_before)}{_until(run.not_before)}"
        yield f"           sooner: askback resume {printable(run.id)}"
    if run.canceled_by is not None:
        yield f"  canceled by {who(run.canceled_by)}"
    if run.finished_at is not None:
        yield f"  finished {_time(run.finished_at)}, after {duration((run.finished_at - run.created_at).total_seconds())}"
    if (used := run.usage) is not None:
        cached = "" if used.cached_tokens is None else f" ({used.cached_tokens:,} cached)"
        cost = "" if used.cost_usd is None else f", ${used.cost_usd:,.4f}"
        read = f"{used.input_tokens:,} in{cached}, {used.output_tokens:,} out{cost}"
        yield f"  usage    {count(used.total_tokens, 'token')}: {read}"
    yield from failure(run.engine, run.error)
    for warning in run.warnings:
        yield f"  ! {printable(warning.code)}: {printable(warning.message)}"
    for interaction in interactions:
        yield from _settled(interaction)
    if run.pending_interaction is not None:
        yield from question(run.id, run.pending_interaction, run.wait_deadline_at)
    if isinstance(artifacts, str):
        yield f"  ! the files cannot be listed: {printable(artifacts)}"
    else:
        yield from (f"  file     {printable(each.path)} ({size(each.size)})" for each in artifacts[:MAX_FILES])
        if len(artifacts) > MAX_FILES:
            yield f"  … {len(artifacts)} files in all; --json lists them"
    yield from (f"  {line}" for line in changes_lines(run.workdir, changes))


def inbox_entry(asked: PendingQuestion) -> Iterator[str]:
    about = f" · {one_line(asked.summary, 200)}" if asked.summary else ""
    about += f" · {shown}" if (shown := labels_text(asked.labels)) else ""
    yield f"run {printable(asked.run_id)}: {printable(asked.skill)} on {printable(asked.engine)}{about}"
    yield from question(asked.run_id, asked, asked.wait_deadline_at)


def labels_text(labels: Mapping[str, str] | None) -> str:
    """The labels for people, in one line; empty if there are none."""
    return one_line(shown_labels(for_people(labels or {})), 500)


def _taken_over(origin: Origin) -> str:
    parts = [f"forked at question {printable(origin.at)}"] if origin.at else ["its session"] if origin.session else []
    if origin.files is not None:
        parts.append(f"its {'artifacts' if origin.files is InheritedFiles.ARTIFACTS else 'working directory'}")
    return f": {', '.join(parts)}" if parts else ""


def _input(run: Run) -> Iterator[str]:
    """The input in full; its summary if it is large, or was stored by a version that did not mark secrets."""
    if run.input is None:
        if run.summary:
            yield f"  input    {one_line(run.summary, 200)}"
        return
    for number, (name, value) in enumerate(run.input.items()):
        first, *more = printable(readable(value)).splitlines() or [""]
        yield f"  {'' if number else 'input':<8} {one_line(name, 60)}: {first}"
        yield from (f"           {text}" for text in more)


def _settled(interaction: Interaction) -> Iterator[str]:
    if interaction.outcome is InteractionOutcome.PENDING:
        return
    yield f"  asked    {one_line(interaction.prompt, 500)}"
    answer = "" if interaction.answered_by is None else f": {one_line(_answer(interaction), 500)}"
    yield f"           {interaction.outcome}{_by(interaction)}{answer}"


def _by(interaction: Interaction) -> str:
    """Who closed a question; for one that an earlier version closed, only what kind of answer it was."""
    if interaction.answered_with is None:
        return f" by {interaction.answered_by}" if interaction.answered_by else ""
    by = interaction.answered_with
    return "" if by.via == Channel.ASKBACK else f" by {who(by)}"


def _answer(interaction: Interaction) -> str:
    """The answer as the person saw it: the label of an option, a form in words."""
    for option in interaction.options:
        if option_value(option) == interaction.response:
            return option_label(option)
    return format_answer(interaction.as_core(), interaction.response)


def question(run_id: str, interaction: Interaction, deadline: datetime | None) -> Iterator[str]:
    """A pending question, its age and deadline, and how to answer it."""
    asked = interaction.as_core()
    yield from question_lines(asked)
    if letters := yes_no_hint(asked):
        default = {"Y": "  (default: yes)", "N": "  (default: no)"}
        yield f"    {letters}{next((words for sign, words in default.items() if sign in letters), '')}"
    yield f"    asked {duration(_since(asked.asked_at))} ago{_until(deadline)}"
    yield f"    answer with: {reply_command(run_id, asked)}"


USAGE_FIELDS = (
    "name",
    "turns",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_usd",
    "turns_with_cost",
)
_USAGE_WIDTHS = (7, 14, 14, 13, 11, 12)


def usage_values(used: UsageSum) -> tuple[str, ...]:
    """As plain values; empty: not reported."""
    values = (getattr(used, name) for name in USAGE_FIELDS)
    return tuple("" if value is None else str(value) for value in values)


def usage_heading(by: str) -> str:
    names = ("TURNS", "INPUT", "CACHED", "OUTPUT", "REASONING", "COST")
    return f"{by.upper():<24}" + "".join(f"{name:>{width}}" for name, width in zip(names, _USAGE_WIDTHS, strict=True))


def usage_line(used: UsageSum) -> str:
    """A row of the table; the sum has no name."""
    counts = (used.turns, used.input_tokens, used.cached_tokens, used.output_tokens, used.reasoning_tokens)
    cells = ["" if each is None else f"{each:,}" for each in counts]
    # The cost of a part of the turns is only a part of the cost.
    partly = "≥ " if used.turns_with_cost < used.turns else ""
    cells.append("" if used.cost_usd is None else f"{partly}${used.cost_usd:,.4f}")
    shown = "".join(f"{cell:>{width}}" for cell, width in zip(cells, _USAGE_WIDTHS, strict=True))
    return f"{one_line(used.name or '–', 24):<24}{shown}".rstrip()


def _until(deadline: datetime | None) -> str:
    if deadline is None:
        return ", no deadline"
    left = (deadline - datetime.now(UTC)).total_seconds()
    return f", {duration(left)} left" if left > 0 else ", time is up"


def ending(run: Run) -> Iterator[str]:
    """How a run ended: its state, what it took, and why it failed."""
    seconds = ((run.finished_at or run.updated_at) - run.created_at).total_seconds()
    parts = [duration(seconds), count(run.attempt_number, "turn")]
    if run.usage is not None and run.usage.total_tokens:
        parts.append(count(run.usage.total_tokens, "token"))
    yield f"{_SIGNS[run.state]} {printable(run.skill)}: {run.state} ({', '.join(parts)})"
    yield from failure(run.engine, run.error)


def known_event(event: WireEvent) -> Event | None:
    """The event for a display; None for a type that only a newer server knows."""
    kind = EventType(event.type)
    if not kind.known:
        return None
    return Event(seq=event.seq, run_id=event.run_id, type=kind, at=event.at, data=event.data)


def _since(moment: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def who(actor: Actor | WireActor) -> str:
    """`anna, by link`. Names come from anywhere."""
    return one_line(in_words(actor.name, actor.via), _MAX_NAME)


def failure(engine: str, error: RunError | None) -> Iterator[str]:
    """`engine` is the name of the run's engine. Without an error there are no lines."""
    if error is None:
        return
    yield f"  {printable(error.code)}: {printable(error.message)}"
    if error.cause is not None:
        yield f"  cause: {printable(error.cause)}"
    if error.detail:
        yield f"  {printable(error.detail.strip()[-_MAX_DETAIL:])}"
    if error.limit is not None:
        ends = (
            "it is not known when it ends" if error.limit.resets_at is None else f"until {_time(error.limit.resets_at)}"
        )
        yield f"  limit: {printable(error.limit.kind).replace('_', ' ')}, {ends}"
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


def changes_lines(workdir: str | None, found: Changes | None) -> Iterator[str]:
    """One line for each file, and one for all. Nothing if the run has no workdir."""
    if workdir is None or found is None:
        return
    place = printable(workdir)
    if found.unavailable is not None:
        yield f"no summary of the changes in {place}: {_NO_SUMMARY[found.unavailable]}"
        return
    if not found.total:
        yield f"nothing has changed in {place}"
        return
    yield f"changed in {place}:"
    paths = [one_line(each.path, _MAX_PATH) for each in found.files[:_MAX_CHANGES]]
    width = max(map(len, paths))
    for path, each in zip(paths, found.files, strict=False):
        lines = "binary" if each.insertions is None else f"+{each.insertions} -{each.deletions}"
        status = "" if each.status is ChangeStatus.MODIFIED else f" ({each.status})"
        yield f"  {path:<{width}} | {lines}{status}"
    if found.total > len(paths):
        yield f"  … and {found.total - len(paths):,} more"
    yield f"  {count(found.total, 'file')} changed, +{found.insertions} -{found.deletions}"
