"""How a turn ended, in one form for every engine: `Final`, `AskUser` or `TurnError`.

`conclude` evaluates what was found in the assistant's messages, in the order of the contract. `lifecycle.decide` turns
the outcome into a state.
"""

from __future__ import annotations

from dataclasses import dataclass

from askback.core.errors import ErrorCode, Limit, RunError, RunWarning, WarningCode
from askback.core.interactions import Json, Question
from askback.core.runs import Mode, Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The engine finished. `problems` are the schema errors of `data`; empty means that it passed."""

    data: Json
    done: bool
    problems: tuple[str, ...] = ()
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUser:
    """The engine asked a question, or stopped without completion evidence."""

    question: Question
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnError:
    error: RunError


TurnOutcome = Final | AskUser | TurnError


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was found in the assistant's messages.

    `output_problems` is None if no output was found. `question_problems` is not empty if a malformed question was
    found; `question` then has what could be read of it.
    """

    message: str
    done: bool = False
    output: Json = None
    output_problems: tuple[str, ...] | None = None
    question: Question | None = None
    question_problems: tuple[str, ...] = ()


_MAX_MESSAGE = 2_000
_MAX_DETAIL = 8_000
MARKER = "__SKILL_DONE__"
"""The engine writes it to say that the skill is done."""
NO_MESSAGE = "(the engine ended its turn without a message)"


def conclude(answer: Answer, *, mode: Mode, validation: Validation, has_schema: bool) -> TurnOutcome:
    """The outcome of a turn that the engine ended properly."""
    if mode is Mode.AUTO:
        return _conclude_auto(answer, has_schema=has_schema)
    passed = answer.output_problems == ()
    if answer.done and (passed or not has_schema):
        return Final(data=answer.output, done=True)
    if answer.question is not None and not answer.question_problems:
        return AskUser(question=answer.question)
    if answer.question_problems and validation is Validation.STRICT:
        return TurnError(error=RunError(code=ErrorCode.ASK_USER_PAYLOAD_INVALID, message=_what_is_malformed(answer)))
    if answer.done:
        return Final(data=answer.output, done=True, problems=answer.output_problems or ("output: none was found",))
    if passed and has_schema:
        return Final(data=answer.output, done=False, warnings=_question_warnings(answer))
    question = answer.question or Question(prompt=answer.message.strip() or NO_MESSAGE)
    return AskUser(question=question, warnings=_question_warnings(answer))


def _conclude_auto(answer: Answer, *, has_schema: bool) -> Final:
    asked = answer.question is not None or bool(answer.question_problems)
    if has_schema:
        problems = answer.output_problems if answer.output_problems is not None else ("output: none was found",)
    else:
        problems = ()
    only_asked = asked and not answer.done and (bool(problems) or not has_schema)
    if only_asked:
        problems = problems or ("output: the turn asked a question instead of finishing",)
        warning = RunWarning(
            code=WarningCode.AUTO_RUN_ASKED, message="the engine asked a question in auto mode, where nobody can answer"
        )
        return Final(data=answer.output, done=False, problems=problems, warnings=(warning,))
    return Final(data=answer.output, done=answer.done, problems=problems)


def _question_warnings(answer: Answer) -> tuple[RunWarning, ...]:
    if not answer.question_problems:
        return ()
    return (RunWarning(code=WarningCode.ASK_USER_PAYLOAD_INVALID, message=_what_is_malformed(answer)),)


def _what_is_malformed(answer: Answer) -> str:
    return "the engine's question is malformed: " + "; ".join(answer.question_problems)


def engine_failure(
    code: ErrorCode,
    message: str,
    *,
    detail: str | None = None,
    limit: Limit | None = None,
    resuming: bool = False,
    confirmed: bool = False,
) -> TurnError:
    """A turn that the engine could not finish. Before a resumed session is confirmed, the resume has failed."""
    message, detail = message[:_MAX_MESSAGE], None if detail is None else detail[:_MAX_DETAIL]
    if resuming and not confirmed and code is not ErrorCode.SESSION_RESUME_FAILED:
        error = RunError(
            code=ErrorCode.SESSION_RESUME_FAILED,
            message=f"the session could not be resumed: {message}",
            cause=code,
            detail=detail,
            limit=limit,
        )
    else:
        error = RunError(code=code, message=message, detail=detail, limit=limit)
    return TurnError(error=error)
