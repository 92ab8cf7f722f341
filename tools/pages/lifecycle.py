"""docs/reference/lifecycle.md: what `decide` answers, by asking it."""

from __future__ import annotations

from collections.abc import Iterator

from askback.core.lifecycle import Decision, Refusal, Stay
from askback.core.runs import Run, RunState, TurnKind
from pages.markdown import code, fenced, table
from pages.specimens import Circumstance, cancel_circumstances, circumstances, expiry_circumstances, run_in

STICKY_WAIT = "waiting_user, sticky"
COLUMNS = {
    "queued": (RunState.QUEUED, False),
    "running, resumable": (RunState.RUNNING, False),
    "running, sticky": (RunState.RUNNING, True),
    "waiting_user, resumable": (RunState.WAITING_USER, False),
    STICKY_WAIT: (RunState.WAITING_USER, True),
}
FINAL = [state for state in RunState if state.final]

INTRODUCTION = """# The lifecycle of a run

A run is always in one of six states. What happens to it arrives as a *signal*, and one pure function,
`askback.core.lifecycle.decide(run, signal)`, answers what the run becomes. No other code names a target state, and the
store writes the answer in one transaction. The picture and the tables below are that function's own answers.

"""
LEGEND = """## Every state and every signal

`→ state` moves the run, with the error code where it fails. *noted* changes the run and keeps its state; *repairs* too,
and begins a turn that tells the engine what was wrong. *stays* changes nothing: the signal was in order. A code alone is
a refusal: nothing changes, and the sender is told why.

"""
EPOCHS = """A worker's signals (`ProcessStarted`, `HandleNamed`, `TurnEnded`, `TreeGone`, `TurnLost`, `ProcessLost`)
carry the epoch under which it took the run. With any other epoch they are refused with `RUN_STALE`, so a worker that
was given up cannot write.

"""
CANCEL = """## After a cancel was asked for

A run that holds a process is canceled only once nothing of it lives. Until then it keeps its state; its question can no
longer be answered. A run without a process is canceled at once.

"""
EXPIRY = """## After the deadline of a sticky run

Its question is closed as `expired` and takes no answer any more. The run is failed once nothing of its process lives,
and shows the error it is to end with meanwhile.

"""


def page() -> str:
    return "".join(
        (
            INTRODUCTION,
            fenced(_diagram(), "mermaid"),
            "\n",
            LEGEND,
            _table(circumstances(), list(COLUMNS), finals=True),
            "\n",
            EPOCHS,
            CANCEL,
            _table(cancel_circumstances(), ["running, resumable", "running, sticky", STICKY_WAIT], finals=False),
            "\n",
            EXPIRY,
            _table(expiry_circumstances(), [STICKY_WAIT], finals=False),
        )
    )


def transitions() -> Iterator[tuple[RunState, RunState, str, Decision]]:
    """Every state change that the circumstances bring about, with its signal."""
    for circumstance in (*circumstances(), *cancel_circumstances()):
        for state, sticky in COLUMNS.values():
            answer = circumstance.ask(run_in(state, sticky=sticky))
            possible = circumstance in circumstances() or _holds_process(state, sticky)
            if possible and isinstance(answer, Decision) and answer.run.state is not state:
                yield state, answer.run.state, circumstance.name, answer
    state, sticky = COLUMNS[STICKY_WAIT]
    for circumstance in expiry_circumstances():
        answer = circumstance.ask(run_in(state, sticky=sticky))
        if isinstance(answer, Decision) and answer.run.state is not state:
            yield state, answer.run.state, circumstance.name, answer


def _holds_process(state: RunState, sticky: bool) -> bool:
    return run_in(state, sticky=sticky).worker is not None


def _diagram() -> str:
    labels: dict[tuple[RunState, RunState], list[str]] = {}
    for old, new, signal, _ in transitions():
        names = labels.setdefault((old, new), [])
        if signal not in names:
            names.append(signal)
    order = list(RunState)
    pairs = sorted(labels, key=lambda pair: (order.index(pair[0]), order.index(pair[1])))
    lines = [f"    {old} --> {new}: {', '.join(labels[old, new])}" for old, new in pairs]
    ends = [f"    {state} --> [*]" for state in FINAL]
    return "\n".join(["stateDiagram-v2", "    [*] --> queued", *lines, *ends])


def _table(asked: list[Circumstance], columns: list[str], *, finals: bool) -> str:
    rows = []
    for circumstance in asked:
        runs = [run_in(state, sticky=sticky) for state, sticky in (COLUMNS[column] for column in columns)]
        cells = [_told(run, circumstance) for run in runs]
        rows.append(
            [code(circumstance.name), circumstance.when, *cells, *([_told_by_finals(circumstance)] if finals else [])]
        )
    return table(["signal", "when", *columns, *(["final"] if finals else [])], rows)


def _told(run: Run, circumstance: Circumstance) -> str:
    match circumstance.ask(run):
        case Refusal(code=refusal):
            return code(refusal)
        case Stay():
            return "*stays*"
        case Decision(run=new) if new.state is not run.state:
            return f"→ **{new.state}**" + (f" {code(new.error.code)}" if new.error else "")
        case Decision(run=new):
            return "*repairs*" if new.next_turn.kind is TurnKind.REPAIR else "*noted*"


def _told_by_finals(circumstance: Circumstance) -> str:
    told = {_told(run_in(state), circumstance) for state in FINAL}
    assert len(told) == 1, f"final states differ on {circumstance.name}: {told}"
    return told.pop()
