"""docs/reference/lifecycle.md: what `decide` returns, computed by calling it."""

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
_BEGUN = {TurnKind.REPAIR: "*repairs*", TurnKind.REBUILD: "*rebuilds*"}
FINAL = [state for state in RunState if state.final]

INTRODUCTION = """# The lifecycle of a run

A run is always in one of six states. What happens to it arrives as a *signal*, and one pure function,
`askback.core.lifecycle.decide(run, signal)`, returns what the run becomes. No other code chooses a state, and the store
writes the result in one transaction. The diagram and the tables below are computed by calling that function.

"""
LEGEND = """## Every state and every signal

`→ state` changes the state, with the error code if the run fails. *noted* changes the run and keeps its state. *repairs*
starts a turn that sends the problems to the engine, *rebuilds* one in a new session. *stays* accepts the signal and changes
nothing. A code alone is a refusal: nothing changes, and the sender gets the code.

"""
EPOCHS = """A worker's signals (`ProcessStarted`, `HandleNamed`, `TurnEnded`, `ProcessTreeEnded`, `TurnLost`, `ProcessLost`)
carry the epoch of its claim. With any other epoch they are refused with `RUN_STALE`, so a worker that lost the run
cannot write.

"""
CANCEL = """## After a cancel request

A run that holds a process is canceled when none of its processes is alive. Until then it keeps its state, and its
question cannot be answered. A run without a process is canceled immediately.

"""
EXPIRY = """## After the deadline of a sticky run

Its question is closed as `expired` and cannot be answered. The run shows its error immediately, and fails when none of
its processes is alive.

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
    """Every state change in the tables, with its signal."""
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
        cells = [_cell(run, circumstance) for run in runs]
        rows.append(
            [code(circumstance.name), circumstance.when, *cells, *([_final_cell(circumstance)] if finals else [])]
        )
    return table(["signal", "when", *columns, *(["final"] if finals else [])], rows)


def _cell(run: Run, circumstance: Circumstance) -> str:
    match circumstance.ask(run):
        case Refusal(code=refusal):
            return code(refusal)
        case Stay():
            return "*stays*"
        case Decision(run=new) if new.state is not run.state:
            return f"→ **{new.state}**" + (f" {code(new.error.code)}" if new.error else "")
        case Decision(run=new):
            return _BEGUN.get(new.next_turn.kind, "*noted*")


def _final_cell(circumstance: Circumstance) -> str:
    cells = {_cell(run_in(state), circumstance) for state in FINAL}
    assert len(cells) == 1, f"final states differ on {circumstance.name}: {cells}"
    return cells.pop()
