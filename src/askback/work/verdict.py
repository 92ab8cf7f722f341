"""What a turn came to, once its engine ended it or was ended."""

from __future__ import annotations

from askback.core.errors import ErrorCode
from askback.core.outcomes import AskUser, TurnOutcome, conclude, engine_failure
from askback.core.runs import Mode, Run
from askback.engines.answers import read_answer
from askback.engines.base import Broke, Completed
from askback.skills.package import SkillPackage
from askback.skills.schemas import output_check
from askback.work.reading import Reading


def verdict(run: Run, package: SkillPackage, reading: Reading, result: Completed | Broke) -> TurnOutcome:
    """The turn's outcome. A turn that resumes a session in a new process counts only in that very session."""
    resuming = run.handle is not None and not run.sticky
    if reading.strayed.is_set():
        message = "the engine went on in another session than the one it was asked to resume"
        return engine_failure(ErrorCode.SESSION_RESUME_FAILED, message, detail=reading.session)
    if isinstance(result, Broke):
        return engine_failure(
            result.code, result.message, detail=result.detail, resuming=resuming, confirmed=reading.confirmed
        )
    if resuming and not reading.confirmed:
        message = "the engine did not say which session it went on with"
        return engine_failure(ErrorCode.SESSION_RESUME_FAILED, message)
    if reading.asked is not None:
        return AskUser(question=reading.asked)
    check = output_check(package)
    answer = read_answer(result.messages, check, whole_turn=run.mode is Mode.AUTO)
    return conclude(answer, mode=run.mode, validation=run.options.ask_user_validation, has_schema=check is not None)
