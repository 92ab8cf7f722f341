"""The outcome of a turn, once its engine has ended it or was stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import assert_never

from askback.core.errors import ErrorCode, RunError, RunWarning, WarningCode
from askback.core.interactions import FormField, Question, bounded
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome, conclude, engine_failure
from askback.core.runs import Mode, Run
from askback.engines.base import Completed, TurnFailed
from askback.engines.failures import known_failure
from askback.engines.parser import Messages
from askback.process.isolation import Breach, Resource, ResourceLimits
from askback.questions.reading import read_answer
from askback.skills.validation import output_check
from askback.text.redaction import Redactor
from askback.worker.turn.context import Parsing
from askback.worker.turn.observe import TurnObserver
from askback.worker.turn.output_files import OutputFiles
from askback.worker.turn.prepare import PreparedTurn

MAX_RESULT_BYTES = 10_000_000
"""Bytes of a run's result as JSON."""
_WORST_GROWTH = 6
"""How many times longer a text may become as JSON."""


async def verdict(
    parsing: Parsing,
    run: Run,
    prepared: PreparedTurn,
    observer: TurnObserver,
    result: Completed | TurnFailed,
    *,
    resuming: bool,
    put: Question | None = None,
) -> TurnOutcome:
    """The turn's outcome, without secrets. `resuming`: the engine was to resume a session in a new process.

    `put` is the question that the engine asked by its ask tool. It counts as a valid question in a message, and comes before
    one: it was the model's last word on what to ask. A turn that failed after it has asked all the same.
    """
    outcome = await _verdict(parsing, run, prepared, observer, result, resuming=resuming, put=put)
    return await parsing.run(lambda: _masked(outcome, observer.redactor), observer.printed)


def _masked(outcome: TurnOutcome, redactor: Redactor) -> TurnOutcome:
    """Mask last: a mask must not make a valid output fail its schema."""
    match outcome:
        case Final():
            problems = tuple(redactor.text(problem) for problem in outcome.problems)
            warnings = _masked_warnings(outcome.warnings, redactor)
            return replace(outcome, data=redactor.value(outcome.data), problems=problems, warnings=warnings)
        case AskUser(question=question):
            parts = ("prompt", "interaction_id", "kind", "options", "default", "response_schema", "context")
            changed = {part: redactor.value(getattr(question, part)) for part in parts}
            changed["questions"] = tuple(_masked_field(field, redactor) for field in question.questions)
            warnings = _masked_warnings(outcome.warnings, redactor)
            return replace(outcome, question=replace(question, **changed), warnings=warnings)
        case TurnError(error=error):
            detail = None if error.detail is None else redactor.text(error.detail)
            return replace(outcome, error=replace(error, message=redactor.text(error.message), detail=detail))
        case _:
            assert_never(outcome)


def _masked_field(field: FormField, redactor: Redactor) -> FormField:
    parts = ("id", "prompt", "kind", "options", "default", "response_schema", "context")
    return replace(field, **{part: redactor.value(getattr(field, part)) for part in parts})


def _masked_warnings(warnings: tuple[RunWarning, ...], redactor: Redactor) -> tuple[RunWarning, ...]:
    return tuple(replace(each, message=redactor.text(each.message)) for each in warnings)


async def _verdict(
    parsing: Parsing,
    run: Run,
    prepared: PreparedTurn,
    observer: TurnObserver,
    result: Completed | TurnFailed,
    *,
    resuming: bool,
    put: Question | None,
) -> TurnOutcome:
    """A turn that resumes a session is valid only in that session."""
    if observer.strayed.is_set():
        message = "the engine used another session than the one it was asked to resume"
        return engine_failure(ErrorCode.SESSION_RESUME_FAILED, message, detail=observer.session)
    if isinstance(result, TurnFailed) and put is not None and _can_wait(run, observer, resuming=resuming):
        return _asking(AskUser(question=put))
    if isinstance(result, TurnFailed):
        code = result.code
        if resuming and not observer.confirmed and code in (ErrorCode.ENGINE_CRASHED, ErrorCode.TURN_TIMEOUT):
            # Before its first event an engine can only say on stderr what is wrong.
            code = known_failure(result.detail or "") or code
        return engine_failure(
            code, result.message, detail=result.detail, resuming=resuming, confirmed=observer.confirmed
        )
    if resuming and not observer.confirmed:
        message = "the engine did not say which session it resumed"
        return engine_failure(ErrorCode.SESSION_RESUME_FAILED, message)
    if observer.asked is not None:
        return _asking(AskUser(question=observer.asked))
    if prepared.package.output_schema is not None:
        # The cost of validation depends on the schema as well.
        return await parsing.in_thread(lambda: _conclusion(run, prepared, result, put))
    return await parsing.run(lambda: _conclusion(run, prepared, result, put), observer.printed)


def _can_wait(run: Run, observer: TurnObserver, *, resuming: bool) -> bool:
    """Whether a run whose process has ended can wait for an answer: its session must be known."""
    return not run.sticky and observer.run.handle is not None and (observer.confirmed or not resuming)


def _conclusion(run: Run, prepared: PreparedTurn, result: Completed, put: Question | None) -> TurnOutcome:
    package = prepared.package
    check = output_check(package)
    files = OutputFiles(package, prepared.workspace, run.workdir) if package.names_files else None
    if check is not None and files is not None:
        check = files.with_files(check)
    # A parser may keep more than is read here.
    messages = Messages(result.messages).completed().messages
    answer = read_answer(messages, check, whole_turn=run.mode is Mode.AUTO)
    if put is not None:
        answer = replace(answer, question=put, question_problems=())
    outcome = conclude(answer, mode=run.mode, validation=run.options.ask_user_validation, has_schema=check is not None)
    if isinstance(outcome, AskUser):
        return _asking(outcome)
    if isinstance(outcome, Final) and files is not None and not outcome.problems:
        data, problems = files.collect(outcome.data)
        outcome = replace(outcome, data=data, problems=problems)
    said = sum(map(len, messages))
    return _fitting(outcome) if isinstance(outcome, Final) and said > MAX_RESULT_BYTES // _WORST_GROWTH else outcome


def _fitting(outcome: Final) -> Final:
    """An output that is too large is a problem that a repair turn reports to the engine."""
    if len(json.dumps(outcome.data, ensure_ascii=False).encode(errors="replace")) <= MAX_RESULT_BYTES:
        return outcome
    return replace(outcome, data=None, problems=(f"output: it is larger than {MAX_RESULT_BYTES:,} bytes as JSON",))


def _asking(outcome: AskUser) -> AskUser:
    question, warnings = bounded(outcome.question), list(outcome.warnings)
    if question is not outcome.question:
        message = "the engine's question was too large; parts of it were cut or left out"
        warnings.append(RunWarning(code=WarningCode.QUESTION_TRUNCATED, message=message))
    if question.schema_ignored:
        message = "the response_schema of the engine's question is neither a scalar nor a flat object; it is ignored"
        warnings.append(RunWarning(code=WarningCode.RESPONSE_SCHEMA_IGNORED, message=message))
    return replace(outcome, question=question, warnings=tuple(warnings))


_MB = 1024 * 1024
_CAUSES = {
    Resource.MEMORY: ErrorCode.MEMORY_LIMIT,
    Resource.PROCESSES: ErrorCode.PROCESS_LIMIT,
    Resource.CPU: ErrorCode.CPU_LIMIT,
    Resource.DISK: ErrorCode.DISK_LIMIT,
    Resource.RESERVE: ErrorCode.DISK_LIMIT,
}


def limit_error(run: Run, limits: ResourceLimits, breach: Breach) -> RunError:
    return RunError(
        code=ErrorCode.RESOURCE_LIMIT_EXCEEDED,
        cause=_CAUSES[breach.resource],
        message=f"{_what(limits, breach)}; {_advice(run, breach.resource)}",
    )


def _what(limits: ResourceLimits, breach: Breach) -> str:
    seen = breach.figure
    match breach.resource:
        case Resource.MEMORY:
            return f"the engine used {_mb(seen)} MB of memory; the limit is {_mb(limits.memory_bytes)} MB"
        case Resource.PROCESSES:
            return f"the engine had {seen} processes or threads; the limit is {limits.processes} processes"
        case Resource.CPU:
            return f"the engine used {seen} s of CPU time; the limit is {limits.cpu_sec:g} s"
        case Resource.DISK:
            return f"the run's files took {_mb(seen)} MB; the limit is {_mb(limits.disk_bytes)} MB"
        case Resource.RESERVE:
            return (
                f"the run filled the disk: {_mb(seen)} MB are free, but {_mb(limits.reserve_bytes)} MB must stay free"
            )


def _advice(run: Run, resource: Resource) -> str:
    if resource is Resource.RESERVE:
        return "make room, or lower limits.disk_reserve"
    key = "cpu_sec" if resource is Resource.CPU else resource
    return f"raise limits.{key}, or engines.{run.engine}.limits.{key}, if it needs more"


def _mb(number: int) -> int:
    return round(number / _MB)
