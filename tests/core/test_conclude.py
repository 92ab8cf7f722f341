"""Every answer an engine can give, read in the contract's order, against a separate table.

The table is read from the top; the first row that fits is the expected outcome:

    done       final, with the marker and without problems
    soft       final, without the marker and without problems
    repair     final, with what is wrong
    only-asked final, with what is wrong and the warning that an auto run asked
    asks       a question, as the engine put it
    asks-made  a question made from the message
    asks-saved a question made from what there is, with the warning that it was malformed
    error      the turn is an error: the question is malformed
"""

from __future__ import annotations

import itertools

import pytest

from askback.core.errors import ErrorCode, WarningCode
from askback.core.interactions import Question
from askback.core.outcomes import NO_MESSAGE, Answer, AskUser, Final, TurnError, TurnOutcome, conclude, engine_failure
from askback.core.runs import Mode, Validation

TABLE = """
# mode         schema  marker  output  question   validation  outcome

# C-1: the marker, and the output passes; without a schema the marker alone.
  interactive  yes     yes     valid   *          *           done
  interactive  no      yes     *       *          *           done
# C-2: a valid question.
  interactive  *       *       *       valid      *           asks
# T-4: a malformed one makes the turn an error where validation is strict.
  interactive  *       *       *       malformed  strict      error
# C-3: the marker, but no output that passes.
  interactive  yes     yes     *       *          *           repair
# T-5: a malformed question beside an output that passes is only a warning.
  interactive  yes     no      valid   malformed  lenient     soft-warned
# C-4: no marker, and the output passes its schema.
  interactive  yes     no      valid   *          *           soft
# T-5: a malformed question waits where validation is lenient.
  interactive  *       no      *       malformed  lenient     asks-saved
# C-5: nothing of these.
  interactive  *       no      *       none       *           asks-made

# C-7: the output decides, the question never.
  auto         yes     yes     valid   *          *           done
  auto         yes     no      valid   *          *           soft
  auto         yes     yes     *       *          *           repair
  auto         yes     no      *       none       *           repair
  auto         yes     no      *       *          *           only-asked
  auto         no      yes     *       *          *           done
  auto         no      no      *       none       *           soft
  auto         no      no      *       *          *           only-asked
"""

QUESTION = Question(interaction_id="colour", prompt="Which colour?")
SAVED = Question(prompt="Which one?")
MALFORMED = ("ask_user.interaction_id: is missing",)
WRONG = ("output.ok: 1 is not a boolean",)
MESSAGE = "I have a question: which colour?"

OUTPUTS = {"none": None, "valid": (), "invalid": WRONG}
QUESTIONS = {"none": (None, ()), "valid": (QUESTION, ()), "malformed": (None, MALFORMED)}
DIMENSIONS = (Mode, ("yes", "no"), ("yes", "no"), OUTPUTS, QUESTIONS, Validation)
CASES = [tuple(str(cell) for cell in case) for case in itertools.product(*DIMENSIONS)]


def rows() -> list[tuple[str, ...]]:
    lines = [line for line in TABLE.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split()) for line in lines]


def row_for(case: tuple[str, ...]) -> tuple[str, ...]:
    return next(row for row in rows() if all(cell in ("*", value) for cell, value in zip(row, case, strict=False)))


def answer_of(marker: str, output: str, question: str) -> Answer:
    asked, problems = QUESTIONS[question]
    return Answer(
        message=MESSAGE,
        done=marker == "yes",
        output=None if output == "none" else {"ok": 1},
        output_problems=OUTPUTS[output],
        question=asked,
        question_problems=problems,
    )


def row_name(outcome: TurnOutcome) -> str:
    """The outcome in the words of the table."""
    match outcome:
        case TurnError():
            assert outcome.error.code is ErrorCode.ASK_USER_PAYLOAD_INVALID
            return "error"
        case AskUser() if outcome.warnings:
            assert [warning.code for warning in outcome.warnings] == [WarningCode.ASK_USER_PAYLOAD_INVALID]
            return "asks-saved"
        case AskUser():
            return "asks" if outcome.question == QUESTION else "asks-made"
        case Final(done=False, problems=()) if outcome.warnings:
            assert [warning.code for warning in outcome.warnings] == [WarningCode.ASK_USER_PAYLOAD_INVALID]
            return "soft-warned"
        case Final() if outcome.warnings:
            assert [warning.code for warning in outcome.warnings] == [WarningCode.AUTO_RUN_ASKED]
            assert outcome.problems
            return "only-asked"
        case Final() if outcome.problems:
            return "repair"
        case Final():
            return "done" if outcome.done else "soft"


def outcome_of(case: tuple[str, ...]) -> TurnOutcome:
    mode, schema, marker, output, question, validation = case
    answer = answer_of(marker, output, question)
    return conclude(answer, mode=Mode(mode), validation=Validation(validation), has_schema=schema == "yes")


@pytest.mark.contract("C-1", "C-2", "C-3", "C-4", "C-5", "C-7", "T-4", "T-5")
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_every_answer_is_read_in_the_contracts_order(case: tuple[str, ...]) -> None:
    assert row_name(outcome_of(case)) == row_for(case)[-1]


def test_every_row_of_the_table_decides_something() -> None:
    deciding = {row_for(case) for case in CASES}
    assert [row for row in rows() if row not in deciding] == []


@pytest.mark.contract("C-7")
def test_no_answer_makes_an_auto_turn_ask_or_break() -> None:
    assert all(isinstance(outcome_of(case), Final) for case in CASES if case[0] == "auto")


@pytest.mark.contract("T-4")
def test_strict_validation_never_waits_on_a_malformed_question() -> None:
    strict = [case for case in CASES if case[0] == "interactive" and case[4:] == ("malformed", "strict")]
    assert not [case for case in strict if isinstance(outcome_of(case), AskUser)]


@pytest.mark.contract("T-3")
def test_a_final_outcome_has_the_data_that_was_validated() -> None:
    for case in CASES:
        outcome = outcome_of(case)
        if isinstance(outcome, Final):
            assert outcome.data == (None if case[3] == "none" else {"ok": 1})


@pytest.mark.contract("T-5", "C-5")
def test_a_malformed_question_is_asked_with_what_was_saved_of_it() -> None:
    answer = Answer(message=MESSAGE, question=SAVED, question_problems=MALFORMED)
    outcome = conclude(answer, mode=Mode.INTERACTIVE, validation=Validation.LENIENT, has_schema=True)
    assert isinstance(outcome, AskUser)
    assert outcome.question == SAVED
    assert MALFORMED[0] in outcome.warnings[0].message


@pytest.mark.contract("T-5", "C-4")
def test_a_soft_completion_beside_a_malformed_question_keeps_the_warning() -> None:
    outcome = outcome_of(("interactive", "yes", "no", "valid", "malformed", "lenient"))
    assert isinstance(outcome, Final)
    assert not outcome.done
    assert [warning.code for warning in outcome.warnings] == [WarningCode.ASK_USER_PAYLOAD_INVALID]
    assert MALFORMED[0] in outcome.warnings[0].message


@pytest.mark.contract("C-5")
@pytest.mark.parametrize(("message", "prompt"), [(f"\n {MESSAGE}\n", MESSAGE), ("", NO_MESSAGE), (" \n", NO_MESSAGE)])
def test_a_turn_without_evidence_asks_by_its_message(message: str, prompt: str) -> None:
    outcome = conclude(Answer(message=message), mode=Mode.INTERACTIVE, validation=Validation.STRICT, has_schema=True)
    assert outcome == AskUser(question=Question(prompt=prompt))


@pytest.mark.contract("C-3")
def test_a_marker_without_any_output_says_that_none_was_found() -> None:
    outcome = outcome_of(("interactive", "yes", "yes", "none", "none", "lenient"))
    assert isinstance(outcome, Final)
    assert outcome.problems == ("output: none was found",)


@pytest.mark.contract("C-3", "C-7")
@pytest.mark.parametrize(("mode", "marker", "question"), [("interactive", "yes", "none"), ("auto", "no", "valid")])
def test_what_the_schema_says_is_kept_for_the_repair(mode: str, marker: str, question: str) -> None:
    outcome = outcome_of((mode, "yes", marker, "invalid", question, "lenient"))
    assert isinstance(outcome, Final)
    assert outcome.problems == WRONG


@pytest.mark.contract("T-4")
def test_the_error_of_a_malformed_question_says_what_is_wrong() -> None:
    outcome = outcome_of(("interactive", "yes", "no", "none", "malformed", "strict"))
    assert isinstance(outcome, TurnError)
    assert MALFORMED[0] in outcome.error.message


# How an engine's failure is reported.

FINE_CODES = [
    code
    for code in ErrorCode
    if code.name.startswith("ENGINE_") or code in (ErrorCode.TURN_TIMEOUT, ErrorCode.OUTPUT_LIMIT_EXCEEDED)
]


@pytest.mark.contract("X-9")
@pytest.mark.parametrize("code", FINE_CODES)
@pytest.mark.parametrize(("resuming", "confirmed"), [(False, False), (False, True), (True, True)])
def test_a_failure_in_a_session_has_its_own_code(code: ErrorCode, resuming: bool, confirmed: bool) -> None:
    error = engine_failure(code, "it broke", detail="its words", resuming=resuming, confirmed=confirmed).error
    assert (error.code, error.cause, error.message, error.detail) == (code, None, "it broke", "its words")


@pytest.mark.contract("X-9", "X-1")
@pytest.mark.parametrize("code", FINE_CODES)
def test_a_failure_before_a_resumed_session_is_confirmed_is_a_failed_resume(code: ErrorCode) -> None:
    error = engine_failure(code, "it broke", detail="its words", resuming=True, confirmed=False).error
    assert (error.code, error.cause) == (ErrorCode.SESSION_RESUME_FAILED, code)
    assert "it broke" in error.message
    assert error.detail == "its words"


@pytest.mark.contract("X-1")
@pytest.mark.parametrize("confirmed", [True, False])
def test_a_failed_resume_is_not_its_own_cause(confirmed: bool) -> None:
    error = engine_failure(ErrorCode.SESSION_RESUME_FAILED, "no such session", resuming=True, confirmed=confirmed).error
    assert (error.code, error.cause) == (ErrorCode.SESSION_RESUME_FAILED, None)
