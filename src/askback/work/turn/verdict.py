"""What a turn came to, once its engine ended it or was ended."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import assert_never

from askback.core.errors import ErrorCode, RunError, RunWarning, WarningCode
from askback.core.interactions import bounded
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome, conclude, engine_failure
from askback.core.runs import Mode, Run
from askback.engines.answers.messages import Messages
from askback.engines.answers.reading import read_answer
from askback.engines.base import Completed, TurnFailed
from askback.process.limits import Breach, Resource, ResourceLimits
from askback.skills.package import SkillPackage
from askback.skills.validation import output_check
from askback.text.redaction import Redactor
from askback.work.turn.observe import Parsing, TurnObserver

MOST_RESULT = 10_000_000
"""Bytes of a run's result as JSON."""
_WORST_GROWTH = 6
"""How much longer a text may become as JSON."""


async def verdict(
    parsing: Parsing, run: Run, package: SkillPackage, reading: TurnObserver, result: Completed | TurnFailed
) -> TurnOutcome:
    """The turn's outcome, without the secrets that the engine was given."""
    outcome = await _verdict(parsing, run, package, reading, result)
    return await parsing.run(lambda: _masked(outcome, reading.redactor), reading.printed)


def _masked(outcome: TurnOutcome, redactor: Redactor) -> TurnOutcome:
    """After everything was decoded and checked: a mask must not fail a schema."""
    match outcome:
        case Final():
            problems = tuple(redactor.text(problem) for problem in outcome.problems)
            return replace(outcome, data=redactor.value(outcome.data), problems=problems)
        case AskUser(question=question):
            parts = ("prompt", "interaction_id", "kind", "options", "default", "response_schema", "context")
            changed = {part: redactor.value(getattr(question, part)) for part in parts}
            warnings = tuple(replace(each, message=redactor.text(each.message)) for each in outcome.warnings)
            return replace(outcome, question=replace(question, **changed), warnings=warnings)
        case TurnError(error=error):
            detail = None if error.detail is None else redactor.text(error.detail)
            return replace(outcome, error=replace(error, message=redactor.text(error.message), detail=detail))
        case _:
            assert_never(outcome)


async def _verdict(
    parsing: Parsing, run: Run, package: SkillPackage, reading: TurnObserver, result: Completed | TurnFailed
) -> TurnOutcome:
    """A turn that resumes a session in a new process counts only in that very session."""
    resuming = run.handle is not None and not run.sticky
    if reading.strayed.is_set():
        message = "the engine went on in another session than the one it was asked to resume"
        return engine_failure(ErrorCode.SESSION_RESUME_FAILED, message, detail=reading.session)
    if isinstance(result, TurnFailed):
        return engine_failure(
            result.code, result.message, detail=result.detail, resuming=resuming, confirmed=reading.confirmed
        )
    if resuming and not reading.confirmed:
        message = "the engine did not say which session it went on with"
        return engine_failure(ErrorCode.SESSION_RESUME_FAILED, message)
    if reading.asked is not None:
        return _asking(AskUser(question=reading.asked))
    if package.output_schema is not None:
        # What a check costs depends on the schema too.
        return await parsing.aside(lambda: _conclusion(run, package, result))
    return await parsing.run(lambda: _conclusion(run, package, result), reading.printed)


def _conclusion(run: Run, package: SkillPackage, result: Completed) -> TurnOutcome:
    check = output_check(package)
    # Whatever a parser kept, no more than this is read.
    messages = Messages(result.messages).completed().messages
    answer = read_answer(messages, check, whole_turn=run.mode is Mode.AUTO)
    outcome = conclude(answer, mode=run.mode, validation=run.options.ask_user_validation, has_schema=check is not None)
    if isinstance(outcome, AskUser):
        return _asking(outcome)
    said = sum(map(len, messages))
    return _fitting(outcome) if isinstance(outcome, Final) and said > MOST_RESULT // _WORST_GROWTH else outcome


def _fitting(outcome: Final) -> Final:
    """An output that is too large is a mistake of the engine, which a repair turn names."""
    if len(json.dumps(outcome.data, ensure_ascii=False).encode(errors="replace")) <= MOST_RESULT:
        return outcome
    return replace(outcome, data=None, problems=(f"output: it is larger than {MOST_RESULT:,} bytes as JSON",))


def _asking(outcome: AskUser) -> AskUser:
    question = bounded(outcome.question)
    if question is outcome.question:
        return outcome
    warning = RunWarning(
        code=WarningCode.QUESTION_TRUNCATED,
        message="the engine's question was larger than a question may be; parts of it were cut or left out",
    )
    return replace(outcome, question=question, warnings=(*outcome.warnings, warning))


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
            return f"the engine used {_mb(seen)} MB of memory and may use {_mb(limits.memory_bytes)} MB"
        case Resource.PROCESSES:
            return f"the engine had {seen} processes or threads and may have {limits.processes} processes"
        case Resource.CPU:
            return f"the engine used {seen} s of CPU time and may use {limits.cpu_sec:g} s"
        case Resource.DISK:
            return f"the run's files took {_mb(seen)} MB and may take {_mb(limits.disk_bytes)} MB"
        case Resource.RESERVE:
            return f"the run filled the disk: {_mb(seen)} MB are free and {_mb(limits.reserve_bytes)} MB must stay free"


def _advice(run: Run, resource: Resource) -> str:
    if resource is Resource.RESERVE:
        return "make room, or lower limits.disk_reserve"
    key = "cpu_sec" if resource is Resource.CPU else resource
    return f"raise limits.{key}, or engines.{run.engine}.limits.{key}, if it needs more"


def _mb(number: int) -> int:
    return round(number / _MB)
