"""docs/reference/errors.md: every code, with its meaning and its state change."""

from __future__ import annotations

import inspect

from askback.core.errors import (
    AskbackError,
    ErrorCode,
    RefusalCode,
    RunError,
    RunWarning,
    WarningCode,
)
from askback.core.interactions import Question
from askback.core.lifecycle import Decision, decide
from askback.core.outcomes import Answer, TurnError, TurnOutcome, conclude
from askback.core.runs import Mode, Run, RunState, Validation
from askback.core.signals import TurnEnded
from pages.lifecycle import transitions
from pages.markdown import code, table
from pages.specimens import DONE, EPOCH, FAILED, LATE, SOFT, run_in, turn_ended

INTRODUCTION = """# Codes

Codes are stable: each means one thing and is never reused. The state changes below are computed by
`askback.core.lifecycle.decide`.

"""
ERRORS = """## Why a run failed

In `error.code`. `error.message` is for people, `error.detail` has the engine's own words without secrets. On a resumed
turn, a code of the engine is used only after the engine has confirmed the session; before that the code is
`SESSION_RESUME_FAILED`, and the finer one is in `error.cause`. If a resource limit was exceeded, the code is always
`RESOURCE_LIMIT_EXCEEDED`, and `error.cause` names the limit.

"""
WARNINGS = """## Warnings of a run

In `warnings[].code`. A warning never fails a run by itself.

"""
REFUSALS = """## Why a request was refused

A refused request changes nothing. HTTP and the command line use the kind, never single codes.

"""
KINDS = """The kinds:

"""


def page() -> str:
    refusals = [(code(each), each.kind.__name__, each.meaning) for each in RefusalCode]
    kinds = [(kind.__name__, inspect.getdoc(kind) or "") for kind in AskbackError.__subclasses__()]
    return "".join(
        (
            INTRODUCTION,
            ERRORS,
            run_errors(),
            "\n",
            WARNINGS,
            run_warnings(),
            "\n",
            REFUSALS,
            table(["code", "kind", "meaning"], refusals),
            "\n",
            KINDS,
            table(["kind", "meaning"], kinds),
        )
    )


def run_errors() -> str:
    rows = [(code(each), each.meaning, _change(each)) for each in ErrorCode]
    return table(["code", "meaning", "state change"], rows)


def run_warnings() -> str:
    rows = [(code(each), each.meaning, _state_change(each)) for each in WarningCode]
    return table(["code", "meaning", "state change"], rows)


def _change(error: ErrorCode) -> str:
    """The state changes that the lifecycle itself makes with this code, or that of a turn that ends with it."""
    seen = [(old, new) for old, new, _, made in transitions() if made.run.error and made.run.error.code is error]
    if not seen or error is FAILED.error.code:
        ended = turn_ended(TurnError(error=RunError(code=error, message="")))
        seen = [_step(run_in(RunState.RUNNING), ended)]
    return ", ".join(f"{old} → {new}" for old, new in dict.fromkeys(seen))


def _state_change(warning: WarningCode) -> str:
    """The state change of the turn that ends with this warning."""
    outcomes: dict[WarningCode, tuple[Mode, TurnOutcome]] = {
        WarningCode.INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER: (Mode.INTERACTIVE, SOFT),
        WarningCode.ASK_USER_PAYLOAD_INVALID: (Mode.INTERACTIVE, _concluded(Mode.INTERACTIVE)),
        WarningCode.AUTO_RUN_ASKED: (Mode.AUTO, _concluded(Mode.AUTO)),
    }
    if warning is WarningCode.EFFORT_IGNORED:
        return "new → queued"
    if warning is WarningCode.CONTEXT_REBUILT:
        return "a turn in a new session"
    if warning not in outcomes:
        carried = TurnEnded(epoch=EPOCH, outcome=DONE, at=LATE, warnings=(RunWarning(code=warning, message=""),))
        assert warning in _warnings(run_in(RunState.RUNNING), carried)
        return "any end of a turn"
    mode, outcome = outcomes[warning]
    tried = run_in(RunState.RUNNING).evolve(mode=mode)
    assert warning in _warnings(tried, turn_ended(outcome))
    out_of_repairs = tried.evolve(repairs=tried.options.repair_attempts)
    steps = [_step(each, turn_ended(outcome)) for each in (tried, out_of_repairs)]
    return ", ".join("a repair turn" if old is new else f"{old} → {new}" for old, new in dict.fromkeys(steps))


def _concluded(mode: Mode) -> TurnOutcome:
    """The outcome of a turn with a malformed question."""
    answer = Answer(message="?", question=Question(prompt="?"), question_problems=("ask_user: malformed",))
    return conclude(answer, mode=mode, validation=Validation.LENIENT, has_schema=True)


def _step(run: Run, signal: TurnEnded) -> tuple[RunState, RunState]:
    return run.state, _decided(run, signal).run.state


def _warnings(run: Run, signal: TurnEnded) -> list[WarningCode]:
    return [warning.code for warning in _decided(run, signal).run.warnings]


def _decided(run: Run, signal: TurnEnded) -> Decision:
    answer = decide(run, signal)
    assert isinstance(answer, Decision)
    return answer
