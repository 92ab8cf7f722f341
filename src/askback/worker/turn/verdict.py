"""The outcome of a turn, once its engine has ended it or was stopped."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, assert_never

from askback.core.errors import ErrorCode, RunError, RunWarning, WarningCode, raise_if_temporary
from askback.core.interactions import FormField, Json, Question, bounded
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome, conclude, engine_failure
from askback.core.runs import Mode, Run, Workdir
from askback.engines.base import Completed, TurnFailed
from askback.engines.failures import known_failure
from askback.engines.limits import read_limit
from askback.engines.parser import Messages
from askback.fs.paths import open_below
from askback.process.isolation import Breach, Resource, ResourceLimits
from askback.questions.reading import read_answer
from askback.skills.diagnostics import format_path, short
from askback.skills.package import SkillPackage
from askback.skills.schema_files import FileSearch, NamedFile, TooLarge, with_names
from askback.skills.validation import output_check
from askback.text.json_text import refuse_constant
from askback.text.redaction import Redactor
from askback.worker.turn.context import Parsing
from askback.worker.turn.observe import TurnObserver
from askback.worker.turn.prepare import PreparedTurn
from askback.workspace.artifacts import ARTIFACTS_DIR
from askback.workspace.layout import Workspace

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
    at: datetime,
    resuming: bool,
    put: Question | None = None,
) -> TurnOutcome:
    """The turn's outcome at `at`, without secrets. `resuming`: the engine was to resume a session in a new process.

    `put` is the question that the engine asked by its ask tool. It counts as a valid question in a message, and comes before
    one: it was the model's last word on what to ask. A turn that failed after it has asked all the same.
    """
    outcome = await _verdict(parsing, run, prepared, observer, result, at=at, resuming=resuming, put=put)
    return await parsing.run(lambda: _masked(outcome, observer.redactor), observer.printed)


def _masked(outcome: TurnOutcome, redactor: Redactor) -> TurnOutcome:
    """Mask last: a mask must not make a valid output fail its schema."""

    def masked(part: Question | FormField, *names: str) -> dict[str, Any]:
        names = (*names, "prompt", "kind", "options", "default", "response_schema", "context")
        return {name: redactor.value(getattr(part, name)) for name in names}

    match outcome:
        case Final():
            problems = tuple(redactor.text(problem) for problem in outcome.problems)
            warnings = _masked_warnings(outcome.warnings, redactor)
            return replace(outcome, data=redactor.value(outcome.data), problems=problems, warnings=warnings)
        case AskUser(question=question):
            fields = tuple(replace(field, **masked(field, "id")) for field in question.questions)
            question = replace(question, **masked(question, "interaction_id"), questions=fields)
            return replace(outcome, question=question, warnings=_masked_warnings(outcome.warnings, redactor))
        case TurnError(error=error):
            detail = None if error.detail is None else redactor.text(error.detail)
            return replace(outcome, error=replace(error, message=redactor.text(error.message), detail=detail))
        case _:
            assert_never(outcome)


def _masked_warnings(warnings: tuple[RunWarning, ...], redactor: Redactor) -> tuple[RunWarning, ...]:
    return tuple(replace(each, message=redactor.text(each.message)) for each in warnings)


async def _verdict(
    parsing: Parsing,
    run: Run,
    prepared: PreparedTurn,
    observer: TurnObserver,
    result: Completed | TurnFailed,
    *,
    at: datetime,
    resuming: bool,
    put: Question | None,
) -> TurnOutcome:
    """A turn that resumes a session is valid only in that session."""
    if observer.strayed.is_set():
        message = "the engine used another session than the one it was asked to resume"
        return engine_failure(ErrorCode.SESSION_RESUME_FAILED, message, detail=observer.session)
    if put is not None and put.approval and _can_wait(run, observer, resuming=resuming):
        return _asking(AskUser(question=put))
    if isinstance(result, TurnFailed) and put is not None and _can_wait(run, observer, resuming=resuming):
        return _asking(AskUser(question=put))
    if isinstance(result, TurnFailed):
        code = result.code
        if resuming and not observer.confirmed and code in (ErrorCode.ENGINE_CRASHED, ErrorCode.TURN_TIMEOUT):
            # Before its first event an engine can only say on stderr what is wrong.
            code = known_failure(result.detail or "") or code
        is_limit = code is ErrorCode.ENGINE_RATE_LIMITED
        return engine_failure(
            code,
            result.message,
            detail=result.detail,
            limit=read_limit(result.detail or "", at, result.reset) if is_limit else None,
            resuming=resuming,
            confirmed=observer.confirmed,
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
    if isinstance(outcome, Final) and said > MAX_RESULT_BYTES // _WORST_GROWTH:
        size = len(json.dumps(outcome.data, ensure_ascii=False).encode(errors="replace"))
        if size > MAX_RESULT_BYTES:
            # A repair turn reports this to the engine.
            problem = f"output: it is larger than {MAX_RESULT_BYTES:,} bytes as JSON"
            return replace(outcome, data=None, problems=(problem,))
    return outcome


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
    key = "cpu_sec" if breach.resource is Resource.CPU else breach.resource
    advice = f"raise limits.{key}, or engines.{run.engine}.limits.{key}, if it needs more"
    if breach.resource is Resource.RESERVE:
        advice = "make room, or lower limits.disk_reserve"
    return RunError(
        code=ErrorCode.RESOURCE_LIMIT_EXCEEDED,
        cause=_CAUSES[breach.resource],
        message=f"{_what(limits, breach)}; {advice}",
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


def _mb(number: int) -> int:
    return round(number / _MB)


MAX_FILES = 1000
MAX_LOOKS = 10_000
"""How many files are looked for in one turn."""
_LOOKS_FOR_MANIFEST = 100
"""Reading a manifest costs as much as looking for this many files."""
MAX_MANIFEST_BYTES = 1_000_000
_MAX_PROBLEMS = 50
_OUTSIDE = "is not a path in the working directory; write the file under `artifacts/`, and name it from there"

Check = Callable[[Json], tuple[str, ...]]


class _Invalid(ValueError):
    """A file that the output names is not there, or is not what it should be."""


class OutputFiles:
    """The files of the outputs of one turn. The work for all of them is bounded."""

    def __init__(self, package: SkillPackage, workspace: Workspace, workdir: Workdir | None = None) -> None:
        self._schema = package.output_schema
        self._workspace = workspace
        self._workdir = workdir
        """A folder of the user, in which files stay where they are."""
        self._search = FileSearch(self._schema)
        self._looks_left = MAX_LOOKS

    def with_files(self, check: Check) -> Check:
        """The check of an output, and then of the files that it names."""
        return lambda output: check(output) or self.problems(output)

    def problems(self, output: Json) -> tuple[str, ...]:
        try:
            named = self._search.named_in(output)
        except TooLarge:
            return ("output: it is too large to look for the files that it names",)
        if len(named) > MAX_FILES:
            return (f"output: it names more than {MAX_FILES:,} files",)
        found = (problem for each in named for problem in self._problems_of(each))
        return tuple(itertools.islice(found, _MAX_PROBLEMS))

    def _problems_of(self, named: NamedFile) -> Iterator[str]:
        where = format_path("output", named.path)
        if not named.name.strip():
            if named.required:
                yield f"{where}: must name a file; write it under `artifacts/`"
            return
        try:
            path = self._found(named.name)
            for key, name in self._listed(path).items() if named.is_manifest else ():
                self._found_in(path, key, name)
        except _Invalid as invalid:
            yield f"{where}: {invalid}"

    def _found(self, name: str) -> str:
        """The path of an existing file from the working directory."""
        self._look(1)
        path = self._relative(name)
        file = self._open(path)
        if file is None:
            raise _Invalid(f"there is no file {short(name)}; write it, then send the result again")
        file.close()
        return path

    def _open(self, path: str) -> BinaryIO | None:
        if self._workdir is not None:
            return open_below(Path(self._workdir.path), path)
        return self._workspace.open_work(path)

    def _look(self, times: int) -> None:
        self._looks_left -= times
        if self._looks_left < 0:
            raise _Invalid("too many files are named in this turn")

    def _relative(self, name: str) -> str:
        path = PurePosixPath(name.strip())
        cwd = self._workspace.engine_cwd(self._workdir)
        for base in (cwd, cwd.resolve()) if path.is_absolute() else ():
            if path.is_relative_to(base.as_posix()):
                path = path.relative_to(base.as_posix())
                break
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise _Invalid(f"{short(name)} {_OUTSIDE}")
        return path.as_posix()

    def _found_in(self, manifest: str, key: str, name: Any) -> str:
        if not isinstance(name, str) or not name.strip():
            raise _Invalid(f"{short(manifest)} must be a JSON object of paths; {short(key)} is none")
        try:
            return self._found(name)
        except _Invalid as invalid:
            raise _Invalid(f"{short(key)} in {short(manifest)}: {invalid}") from None

    def _listed(self, manifest: str) -> Mapping[str, Any]:
        self._look(_LOOKS_FOR_MANIFEST)
        file = self._open(manifest)
        content = b""
        if file is not None:
            with file:
                content = file.read(MAX_MANIFEST_BYTES + 1)
        try:
            document = json.loads(content[: MAX_MANIFEST_BYTES + 1], parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or len(content) > MAX_MANIFEST_BYTES:
            raise _Invalid(f"{short(manifest)} must be a JSON object of paths, of at most 1 MB")
        if len(document) > MAX_FILES:
            raise _Invalid(f"{short(manifest)} lists more than {MAX_FILES:,} files")
        return document

    def collect(self, output: Json) -> tuple[Json, tuple[str, ...]]:
        """Put the files of a valid output under `artifacts/`. Returns the output with their paths there.

        A resident engine is alive at this moment, and may remove a file that was just found.
        """
        names: dict[tuple[str | int, ...], str] = {}
        self._looks_left = MAX_LOOKS
        for named in FileSearch(self._schema).named_in(output):
            if not named.name.strip():
                continue
            try:
                path = self._relative(named.name)
                for key, name in self._listed(path).items() if named.is_manifest else ():
                    self._add(self._found_in(path, key, name))
                names[named.path] = self._add(path)
            except (_Invalid, OSError) as fault:
                if isinstance(fault, OSError):
                    raise_if_temporary(fault)
                where = format_path("output", named.path)
                return output, (f"{where}: {short(named.name)} cannot be put under `artifacts/`; write it there",)
        return with_names(output, names), ()

    def _add(self, path: str) -> str:
        if self._workdir is not None or PurePosixPath(path).parts[0] == ARTIFACTS_DIR:
            return path
        self._workspace.add_artifact(path)
        return f"{ARTIFACTS_DIR}/{path}"
