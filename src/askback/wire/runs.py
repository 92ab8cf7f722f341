"""Runs and what belongs to them: the inbox, events and results."""

from __future__ import annotations

from typing import Annotated, Any, Self

from askback.core import runs
from askback.core.errors import ErrorCode, LimitKind, WarningCode
from askback.core.events import EventType
from askback.core.permissions import policy_json
from askback.core.runs import InheritedFiles, Mode, ProfileKind, RunState
from askback.wire.artifacts import Artifact, Changes
from askback.wire.base import Actor, Moment, Page, RunId, Shape, about, choice, one_of
from askback.wire.questions import ClosedInteraction, Interaction

QueueReason = Annotated[
    str, choice("slots", "engine_slots", "token_slots", "starting", "no_worker", "unready", "usage_limit")
]


class Profile(Shape):
    """How an interactive run waits for its user."""

    kind: Annotated[
        ProfileKind,
        about(
            "`resumable`: the next turn resumes the session in a new process. `sticky_process`: the process is kept."
        ),
    ]
    reason: Annotated[str, about("What the probe of the engine found.", "its --help offers --resume")]
    session_timeout_sec: Annotated[float, about("How long a wait with a deadline lasts.", 1200.0)]


class RunWarning(Shape):
    """Something unexpected that did not fail the run."""

    code: Annotated[str, one_of(WarningCode), about("Stable, for programs.")]
    message: Annotated[str, about("For people.")]


class Limit(Shape):
    """A limit of the model provider."""

    kind: Annotated[str, one_of(LimitKind), about("Of what there is no more for now.", "usage_window")]
    resets_at: Annotated[Moment | None, about("When it ends. Null if the engine does not say it.")] = None


class RunError(Shape, omit_defaults=True):
    """Why a run failed."""

    code: Annotated[str, one_of(ErrorCode), about("Stable, for programs.")]
    message: Annotated[str, about("For people: what happened and what to do.")]
    cause: Annotated[Annotated[str, one_of(ErrorCode)] | None, about("A more specific code.")] = None
    detail: Annotated[str | None, about("The engine's own message, with secrets removed.")] = None
    limit: Annotated[
        Limit | None, about("The limit, if `code` or `cause` is `ENGINE_RATE_LIMITED` and a turn met it.")
    ] = None


_CACHED = about("Input tokens that came from a cache. Null if the engine does not report it.", 1480)
_REASONING = about("Output tokens of the model's reasoning. Null if the engine does not report it.", 210)
_COST = about("The cost in dollars, as the engine reports it. Null if it does not: Askback has no prices.", 0.042)


class ModelUsage(Shape):
    """What one model has used. Null: the engine does not report it."""

    model: Annotated[str | None, about("The model, in the words of the engine.", "claude-sonnet-4-5")]
    input_tokens: Annotated[int | None, about("Tokens sent to the model, with cached ones.", 2210)]
    output_tokens: Annotated[int | None, about("Tokens that the model produced, with its reasoning.", 640)]
    cached_tokens: Annotated[int | None, _CACHED]
    reasoning_tokens: Annotated[int | None, _REASONING]
    cost_usd: Annotated[float | None, _COST]


class Usage(Shape):
    """The tokens that the engine used, in all turns."""

    input_tokens: Annotated[int, about("Tokens sent to the model.", 2210, ge=0)]
    output_tokens: Annotated[int, about("Tokens that the model produced.", 640, ge=0)]
    cached_tokens: Annotated[int | None, _CACHED]
    total_tokens: Annotated[int, about("All tokens, as the engine counts them.", 2850, ge=0)]
    reasoning_tokens: Annotated[int | None, _REASONING] = None
    cost_usd: Annotated[float | None, _COST] = None
    by_model: Annotated[tuple[ModelUsage, ...], about("The same for each model.")] = ()


class HeldProcess(Shape):
    """The engine process of a sticky run that waits."""

    pid: Annotated[int, about("On the server's machine.", 41877)]
    until: Annotated[Moment | None, about("When the wait ends. Null if the process is being ended.")] = None


class Origin(Shape, omit_defaults=True):
    """The run that another one continues, and what was copied from it."""

    run_id: RunId
    files: Annotated[InheritedFiles | None, about("Which of its files were copied.")] = None
    session: Annotated[bool, about("Whether the engine's session was copied and continued.")] = False
    at: Annotated[str | None, about("The question with which the new run started.")] = None


class Run(Shape, omit_defaults=True):
    """One execution of a skill. Optional fields are left out if they have no value."""

    id: RunId
    state: Annotated[RunState, about("`succeeded`, `failed` and `canceled` are final.")]
    skill: Annotated[str, about("The ID of the skill.", "trip-planner")]
    skill_version: Annotated[str | None, about("The version of the skill.", "1.0.0")] = None
    skill_uploaded: Annotated[
        bool | None, about("True if the skill was uploaded for this run. `skill` is then the ID in the package.")
    ] = None
    engine: Annotated[str, about("The engine that executes the run.", "scripted")]
    mode: Annotated[Mode, about("Whether the run may ask its user.")]
    summary: Annotated[
        str | None,
        about("The input in one line, without secrets. `summary` in `runner.json` can define it.", "Lisbon · 3"),
    ] = None
    input: Annotated[
        dict[str, Any] | None,
        about(
            "Only in the response of `GET /v1/runs/{run_id}`: the input, unless it is larger than about 64 KB. Files are "
            "paths, and secrets are `[redacted]`.",
            {"destination": "Lisbon", "days": 3},
        ),
    ] = None
    labels: Annotated[
        dict[str, str] | None, about("Short texts by name, chosen by the caller.", {"customer": "4711"})
    ] = None
    from_run: Annotated[Origin | None, about("The run that this one continues.")] = None
    workdir: Annotated[
        str | None, about("The user's folder that the engine works in.", "/srv/repositories/website")
    ] = None
    permissions: Annotated[
        tuple[dict[str, Any], ...] | None,
        about(
            "The policies for its tool calls, each with its `source`, `rules` and `default`. The most restrictive one decides.",
            [{"source": "run", "rules": [], "default": "ask"}],
        ),
    ] = None
    env_names: Annotated[tuple[str, ...] | None, about("The names of its secret variables.", ["ZOTERO_API_KEY"])] = None
    attempt_number: Annotated[int, about("The current or last turn, from 1.", 1, ge=1)]
    interactive_profile: Annotated[Profile, about("How the run waits for its user.")]
    pending_interaction: Annotated[Interaction | None, about("The question that the run waits for.")] = None
    closed_interaction: Annotated[
        ClosedInteraction | None, about("How its last closed question was closed, and by whom.")
    ] = None
    wait_deadline_at: Annotated[
        Moment | None,
        about("When the wait ends without an answer. Set for sticky runs, and if the engine may then decide."),
    ] = None
    reply_required: Annotated[
        bool | None,
        about(
            "While the run waits: whether an answer is required. If true, a sticky run fails at its deadline, and any "
            "other run waits indefinitely. If false, the engine decides at the deadline."
        ),
    ] = None
    held_process: Annotated[
        HeldProcess | None, about("While a sticky run waits: the engine process, which keeps its slot.")
    ] = None
    canceled_by: Annotated[Actor | None, about("Who canceled the run, or requested it.")] = None
    warnings: Annotated[tuple[RunWarning, ...], about("Each warning once.")]
    error: Annotated[
        RunError | None, about("Why the run failed. On a waiting run: why it will fail once its process has ended.")
    ] = None
    usage: Annotated[Usage | None, about("The tokens used so far.")] = None
    created_at: Annotated[Moment, about("When the run was created.")]
    updated_at: Annotated[Moment, about("When the run last changed.")]
    started_at: Annotated[Moment | None, about("When the first turn started.")] = None
    finished_at: Annotated[Moment | None, about("When the run reached its final state.")] = None
    queue_reason: Annotated[
        QueueReason | None,
        about(
            "Why a queued run has not started: no free slot, no free slot for its engine, `token_slots`: the runs of its "
            "token have as many slots as `quotas.running` allows, it is about to start, no program that executes runs has "
            "its engine, `unready`: those that have it start no turns for now, for example because their disk is full, or "
            "`usage_limit`: the run is parked until `not_before`."
        ),
    ] = None
    not_before: Annotated[
        Moment | None, about("When a parked run is executed again, unless it is resumed or canceled before.")
    ] = None
    parked_for: Annotated[Limit | None, about("The limit of the model provider that a parked run waits for.")] = None

    @property
    def settled(self) -> bool:
        """Whether the run is final, or waits for its user."""
        return self.state.final or self.state is RunState.WAITING_USER

    @classmethod
    def of(cls, source: Any = None, **given: Any) -> Self:
        """The run. `queue_reason` and `input` are not part of it."""
        run: runs.Run = source
        held = None
        if run.state is RunState.WAITING_USER and run.process is not None:
            held = HeldProcess.of(run.process, until=run.wait_deadline_at)
        values = {
            "skill": run.skill.id,
            "skill_version": run.skill.version,
            "skill_uploaded": run.skill.uploaded or None,
            "labels": run.labels or None,
            "from_run": run.origin,
            "workdir": None if run.workdir is None else run.workdir.path,
            "permissions": None
            if run.permissions is None
            else tuple({"source": each.source, **policy_json(each.policy)} for each in run.permissions.policies),
            "env_names": run.env_names or None,
            "interactive_profile": run.profile,
            "reply_required": run.options.interactive_require_user_reply if run.pending_interaction else None,
            "held_process": held,
            "parked_for": run.parking.limit if run.parking is not None and run.not_before else None,
        }
        if run.not_before is not None:
            given["queue_reason"] = "usage_limit"
        return super().of(run, **values, **given)


class RunPage(Page[Run]):
    """Runs, newest first."""


class PendingQuestion(Interaction, omit_defaults=True):
    """A pending question with the run that asks it."""

    run_id: RunId
    skill: Annotated[str, about("The skill of the run.", "trip-planner")]
    engine: Annotated[str, about("The engine of the run.", "scripted")]
    summary: Annotated[str | None, about("The input of the run in one line, without secrets.", "Lisbon · 3")] = None
    labels: Annotated[dict[str, str] | None, about("The labels of the run.", {"customer": "4711"})] = None
    interactive_profile: Annotated[Profile, about("How the run waits.")]
    reply_required: Annotated[
        bool,
        about(
            "Whether an answer is required. If true, a sticky run fails at its deadline, and any other run waits "
            "indefinitely. If false, the engine decides at the deadline."
        ),
    ]
    wait_deadline_at: Annotated[Moment | None, about("When the wait ends without an answer.")] = None

    @classmethod
    def of(cls, source: Any = None, **given: Any) -> Self:
        """The question that a waiting run asks."""
        run: runs.Run = source
        values = {
            "run_id": run.id,
            "skill": run.skill.id,
            "engine": run.engine,
            "summary": run.summary,
            "labels": run.labels or None,
            "interactive_profile": run.profile,
            "reply_required": run.options.interactive_require_user_reply,
            "wait_deadline_at": run.wait_deadline_at,
        }
        return super().of(run.pending_interaction, **values, **given)


class Inbox(Page[PendingQuestion]):
    """Pending questions, oldest first or by deadline."""

    total: Annotated[int, about("How many pending questions match the filters, on all pages.", 1)]
    skills: Annotated[
        dict[str, int],
        about("The number of questions of each skill, with all filters but `skill`.", {"trip-planner": 1}),
    ]
    engines: Annotated[
        dict[str, int],
        about("The number of questions on each engine, with all filters but `engine`.", {"scripted": 1}),
    ]


class ClosedQuestion(Interaction, omit_defaults=True):
    """A question that is no longer pending, with the run that asked it."""

    run_id: RunId
    skill: Annotated[str, about("The skill of the run.", "trip-planner")]
    engine: Annotated[str, about("The engine of the run.", "scripted")]
    summary: Annotated[str | None, about("The input of the run in one line, without secrets.", "Lisbon · 3")] = None
    labels: Annotated[dict[str, str] | None, about("The labels of the run.", {"customer": "4711"})] = None
    state: Annotated[RunState, about("The current state of the run.", "succeeded")]

    @classmethod
    def of(cls, source: Any = None, **given: Any) -> Self:
        names = ("run_id", "skill", "engine", "summary", "state")
        about_run = {name: getattr(source, name) for name in names}
        return super().of(source.interaction, **about_run, labels=source.labels or None, **given)


class ClosedQuestionPage(Page[ClosedQuestion]):
    """Questions that are no longer pending, the last closed first."""


class Event(Shape):
    """Something that happened to a run."""

    seq: Annotated[int, about("Counts the events of a run, from 1 without gaps.", 2, ge=1)]
    run_id: RunId
    type: Annotated[str, one_of(EventType), about("What happened.", "run.state")]
    at: Annotated[Moment, about("When it happened.")]
    data: Annotated[dict[str, Any], about("Depends on the type.", {"from": "queued", "to": "running"})]


class EventPage(Page[Event]):
    """Events, in their order."""

    next_cursor: Annotated[
        str | None, about("Pass it as `after` to get the next page. Null if there are no more events yet.", "2")
    ] = None


class Result(Shape, omit_defaults=True):
    """How a run ended."""

    status: Annotated[RunState, about("The final state.", "succeeded")]
    data: Annotated[Any, about("The output, validated against the skill's output schema. Null unless it succeeded.")]
    warnings: Annotated[tuple[RunWarning, ...], about("The warnings of the run.")]
    error: Annotated[RunError | None, about("Why the run failed.")]
    artifacts: Annotated[
        tuple[Artifact, ...], about("The files that the run produced: the first page of its list of artifacts.")
    ]
    more_artifacts: Annotated[
        bool, about("Whether the list of artifacts has further pages. Left out if this is all of it.", True)
    ] = False
    changes: Annotated[
        Changes | None, about("What the run has changed in its `workdir`. Left out if it has no `workdir`.")
    ] = None

    @classmethod
    def of(cls, source: Any = None, **given: Any) -> Self:
        run: runs.Run = source.run
        return super().of(source, status=run.state, warnings=run.warnings, error=run.error, **given)
