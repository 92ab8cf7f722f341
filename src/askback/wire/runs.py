"""Runs and what belongs to them: questions, events, results, artifacts, links and deliveries to webhooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from askback.core import errors, events, forms, interactions, runs, webhooks
from askback.core.changes import Changes as FoundChanges
from askback.core.changes import ChangeStatus, NoSummary
from askback.core.errors import ErrorCode, WarningCode
from askback.core.events import EventType
from askback.core.interactions import AnsweredBy, InteractionOutcome
from askback.core.runs import InheritedFiles, Mode, ProfileKind, RunState
from askback.core.webhooks import DeliveryReason, WebhookKind
from askback.wire.base import Actor, Moment, Page, RunId, Shape, WholeList, about, choice, one_of, utc

QueueReason = Annotated[str, choice("slots", "engine_slots", "starting")]


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

    @classmethod
    def of(cls, profile: runs.Profile) -> Self:
        return cls(kind=profile.kind, reason=profile.reason, session_timeout_sec=profile.session_timeout_sec)


class FormField(Shape):
    """One question of a form."""

    id: Annotated[str, about("Its name in the answer. Unique within the form.", "pace")]
    kind: Annotated[str, about("`text`, `choice`, `confirm`, `secret`, or the engine's own word.", "choice")]
    prompt: Annotated[str, about("The question.", "What pace would you like?")]
    options: Annotated[
        tuple[Any, ...],
        about("The answers to choose from: strings, or objects with `label` and `value`.", ["relaxed", "packed"]),
    ]
    default: Annotated[Any, about("The suggested answer.", "relaxed")]
    required: Annotated[bool, about("Whether it must be answered.", True)]
    response_schema: Annotated[dict[str, Any] | None, about("The JSON Schema of its answer.")]
    context: Annotated[Any, about("Further information from the engine.")]

    @classmethod
    def of(cls, field: forms.FormField) -> Self:
        return cls(
            id=field.id,
            kind=field.kind,
            prompt=field.prompt,
            options=field.options,
            default=field.default,
            required=field.required,
            response_schema=field.response_schema,
            context=field.context,
        )


class Interaction(Shape):
    """A question to the user, with its answer once there is one."""

    interaction_id: Annotated[str, about("Unique within the run.", "pace")]
    kind: Annotated[
        str, about("`text`, `choice`, `secret`, `form` for several questions, or the engine's own word.", "choice")
    ]
    prompt: Annotated[str, about("The question, or the introduction of a form.", "What pace would you like?")]
    options: Annotated[
        tuple[Any, ...],
        about("The answers to choose from: strings, or objects with `label` and `value`.", ["relaxed", "packed"]),
    ]
    questions: Annotated[
        tuple[FormField, ...],
        about("The questions of a form, which are answered together: the answer is an object with their ids.", []),
    ] = ()
    default: Annotated[
        Any,
        about(
            "The suggested answer: used if the user presses Enter, and passed to the engine if nobody answers in time.",
            "relaxed",
        ),
    ]
    response_schema: Annotated[
        dict[str, Any] | None,
        about("The JSON Schema of the answer: a scalar, or a flat object. A form always has one."),
    ]
    context: Annotated[Any, about("Further information from the engine.")]
    attempt_number: Annotated[int, about("The turn that asked.", 1, ge=1)]
    asked_at: Annotated[Moment, about("When the question was asked.")]
    outcome: Annotated[InteractionOutcome, about("How the question ended, or `pending`.")]
    response: Annotated[Any, about("The answer. Null for a `secret` question; in a form, its secret fields are null.")]
    answered_by: Annotated[AnsweredBy | None, about("Who answered.")]
    answered_at: Annotated[Moment | None, about("When the question ended.")]
    answered_with: Annotated[
        Actor | None,
        about("Who closed the question, and by which way. Null while it is pending, and if it is not known."),
    ]

    @property
    def secret(self) -> bool:
        """Whether the answer must not be shown."""
        return forms.is_secret(self.kind, self.response_schema)

    @property
    def heading(self) -> str:
        """The question for one line."""
        return forms.heading(self.prompt, self.questions)

    @classmethod
    def of(cls, asked: interactions.Interaction, **more: Any) -> Self:
        return cls(
            interaction_id=asked.interaction_id,
            kind=asked.kind,
            prompt=asked.prompt,
            options=asked.options,
            questions=tuple(FormField.of(field) for field in asked.questions),
            default=asked.default,
            response_schema=asked.response_schema,
            context=asked.context,
            attempt_number=asked.attempt_number,
            asked_at=utc(asked.asked_at),
            outcome=asked.outcome,
            response=asked.shown_response,
            answered_by=asked.answered_by,
            answered_at=utc(asked.answered_at),
            answered_with=Actor.of(asked.answered_with),
            **more,
        )


class ClosedInteraction(Shape):
    """How a question was closed."""

    interaction_id: Annotated[str, about("The question.", "pace")]
    outcome: Annotated[InteractionOutcome, about("How it ended.", "answered")]
    answered_with: Annotated[Actor | None, about("Who closed it, and by which way.")]

    @classmethod
    def of(cls, closing: interactions.Closing | None) -> Self | None:
        if closing is None:
            return None
        by = Actor.of(closing.answered_with)
        return cls(interaction_id=closing.interaction_id, outcome=closing.outcome, answered_with=by)


class RunWarning(Shape):
    """Something unexpected that did not fail the run."""

    code: Annotated[str, one_of(WarningCode), about("Stable, for programs.")]
    message: Annotated[str, about("For people.")]


class RunError(Shape, omit_defaults=True):
    """Why a run failed."""

    code: Annotated[str, one_of(ErrorCode), about("Stable, for programs.")]
    message: Annotated[str, about("For people: what happened and what to do.")]
    cause: Annotated[Annotated[str, one_of(ErrorCode)] | None, about("A more specific code.")] = None
    detail: Annotated[str | None, about("The engine's own message, with secrets removed.")] = None

    @classmethod
    def of(cls, error: errors.RunError | None) -> Self | None:
        if error is None:
            return None
        return cls(code=error.code, message=error.message, cause=error.cause, detail=error.detail)


class Usage(Shape):
    """The tokens that the engine used, in all turns."""

    input_tokens: Annotated[int, about("Tokens sent to the model.", 2210, ge=0)]
    output_tokens: Annotated[int, about("Tokens that the model produced.", 640, ge=0)]
    cached_tokens: Annotated[int, about("Input tokens that came from a cache.", 1480, ge=0)]
    total_tokens: Annotated[int, about("All tokens, as the engine counts them.", 2850, ge=0)]

    @classmethod
    def of(cls, usage: runs.Usage | None) -> Self | None:
        if usage is None:
            return None
        return cls(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            total_tokens=usage.total_tokens,
        )


class HeldProcess(Shape):
    """The engine process of a sticky run that waits."""

    pid: Annotated[int, about("On the server's machine.", 41877)]
    until: Annotated[Moment | None, about("When the wait ends. Null if the process is being ended.")] = None

    @classmethod
    def of(cls, run: runs.Run) -> Self | None:
        if run.state is not RunState.WAITING_USER or run.process is None:
            return None
        return cls(pid=run.process.pid, until=utc(run.wait_deadline_at))


class Origin(Shape, omit_defaults=True):
    """The run that another one continues, and what was copied from it."""

    run_id: RunId
    files: Annotated[InheritedFiles | None, about("Which of its files were copied.")] = None
    session: Annotated[bool, about("Whether the engine's session was copied and continued.")] = False
    at: Annotated[str | None, about("The question with which the new run started.")] = None

    @classmethod
    def of(cls, origin: runs.Origin | None) -> Self | None:
        return (
            None
            if origin is None
            else cls(run_id=origin.run_id, files=origin.files, session=origin.session, at=origin.at)
        )


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
        about("Why a queued run has not started: no free slot, no free slot for its engine, or it is about to start."),
    ] = None

    @property
    def settled(self) -> bool:
        """Whether the run is final, or waits for its user."""
        return self.state.final or self.state is RunState.WAITING_USER

    @classmethod
    def of(cls, run: runs.Run, *, queue_reason: str | None = None, input_: dict[str, Any] | None = None) -> Self:
        pending = run.pending_interaction
        return cls(
            id=run.id,
            state=run.state,
            skill=run.skill.id,
            skill_version=run.skill.version,
            skill_uploaded=run.skill.uploaded or None,
            engine=run.engine,
            mode=run.mode,
            summary=run.summary,
            input=input_,
            labels=run.labels or None,
            from_run=Origin.of(run.origin),
            workdir=None if run.workdir is None else run.workdir.path,
            env_names=run.env_names or None,
            attempt_number=run.attempt_number,
            interactive_profile=Profile.of(run.profile),
            pending_interaction=Interaction.of(pending) if pending else None,
            closed_interaction=ClosedInteraction.of(run.closed_interaction),
            wait_deadline_at=utc(run.wait_deadline_at),
            reply_required=run.options.interactive_require_user_reply if pending else None,
            canceled_by=Actor.of(run.canceled_by),
            held_process=HeldProcess.of(run),
            warnings=_warnings(run),
            error=RunError.of(run.error),
            usage=Usage.of(run.usage),
            created_at=utc(run.created_at),
            updated_at=utc(run.updated_at),
            started_at=utc(run.started_at),
            finished_at=utc(run.finished_at),
            queue_reason=queue_reason,
        )


def _warnings(run: runs.Run) -> tuple[RunWarning, ...]:
    return tuple(RunWarning(code=warning.code, message=warning.message) for warning in run.warnings)


class RunPage(Page[Run]):
    """Runs, newest first."""


# Questions.


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
    def in_run(cls, run: runs.Run) -> Self:
        """The question that a waiting run asks."""
        assert run.pending_interaction is not None
        return cls.of(
            run.pending_interaction,
            run_id=run.id,
            skill=run.skill.id,
            engine=run.engine,
            summary=run.summary,
            labels=run.labels or None,
            interactive_profile=Profile.of(run.profile),
            reply_required=run.options.interactive_require_user_reply,
            wait_deadline_at=utc(run.wait_deadline_at),
        )


Counts = Iterable[tuple[str, int]]


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

    @classmethod
    def of(
        cls, waiting: Iterable[runs.Run], next_cursor: str | None, total: int, skills: Counts, engines: Counts
    ) -> Self:
        items = tuple(PendingQuestion.in_run(run) for run in waiting)
        return cls(items=items, next_cursor=next_cursor, total=total, skills=dict(skills), engines=dict(engines))


class ClosedQuestion(Interaction, omit_defaults=True):
    """A question that is no longer pending, with the run that asked it."""

    run_id: RunId
    skill: Annotated[str, about("The skill of the run.", "trip-planner")]
    engine: Annotated[str, about("The engine of the run.", "scripted")]
    summary: Annotated[str | None, about("The input of the run in one line, without secrets.", "Lisbon · 3")] = None
    labels: Annotated[dict[str, str] | None, about("The labels of the run.", {"customer": "4711"})] = None
    state: Annotated[RunState, about("The current state of the run.", "succeeded")]

    @classmethod
    def with_run(cls, closed: runs.ClosedQuestion) -> Self:
        return cls.of(
            closed.interaction,
            run_id=closed.run_id,
            skill=closed.skill,
            engine=closed.engine,
            summary=closed.summary,
            labels=closed.labels or None,
            state=closed.state,
        )


class ClosedQuestionPage(Page[ClosedQuestion]):
    """Questions that are no longer pending, the last closed first."""


class InteractionList(WholeList[Interaction]):
    """All questions of a run, in the order in which they were asked."""


class Link(Shape):
    """A new link to one question."""

    id: Annotated[str, about("Identifies the link when it is revoked.", "9f2c01ab")]
    url: Annotated[str, about("Lets its holder read and answer this question, and nothing else.")]
    expires_at: Annotated[Moment, about("When the link expires.")]


class ListedLink(Shape):
    """A link to a question, without its URL."""

    id: Annotated[str, about("Identifies the link when it is revoked.", "9f2c01ab")]
    interaction_id: Annotated[str, about("The question.", "pace")]
    token: Annotated[
        str | None,
        about(
            "The name of the token that created the link. Revoking the token ends it. Null if the link was sent to a "
            "recipient of the server's settings.",
            "main",
        ),
    ]
    created_at: Annotated[Moment, about("When the link was created.")]
    expires_at: Annotated[Moment, about("When the link expires.")]
    recipient: Annotated[
        str | None,
        about("Who the link is for, and whose name `answered_with` has. Null: the token that created it.", "anna"),
    ] = None


class LinkList(WholeList[ListedLink]):
    """The links to one question, oldest first."""


# Events, results, artifacts.


class Event(Shape):
    """Something that happened to a run."""

    seq: Annotated[int, about("Counts the events of a run, from 1 without gaps.", 2, ge=1)]
    run_id: RunId
    type: Annotated[str, one_of(EventType), about("What happened.", "run.state")]
    at: Annotated[Moment, about("When it happened.")]
    data: Annotated[dict[str, Any], about("Depends on the type.", {"from": "queued", "to": "running"})]

    @classmethod
    def of(cls, event: events.Event) -> Self:
        return cls(seq=event.seq, run_id=event.run_id, type=event.type, at=utc(event.at), data=event.data)


class EventPage(Page[Event]):
    """Events, in their order."""

    next_cursor: Annotated[
        str | None, about("Pass it as `after` to get the next page. Null if there are no more events yet.", "2")
    ] = None


class Artifact(Shape, omit_defaults=True):
    """A file that a run produced."""

    path: Annotated[str, about("Relative to the run's artifacts folder, with `/` between folders.", "itinerary.md")]
    size: Annotated[int, about("In bytes.", 171, ge=0)]
    turn: Annotated[
        int | None,
        about("The turn that changed it last; 0 if it was copied from another run. Missing if unknown.", 2),
    ] = None


class ArtifactList(WholeList[Artifact]):
    """The files that a run has produced so far, folder by folder."""


class ArtifactVersion(Shape, omit_defaults=True):
    """An artifact as it was at the end of a turn."""

    turn: Annotated[int, about("The turn; 0 if the file was copied from another run.", 2, ge=0)]
    size: Annotated[int, about("In bytes.", 171, ge=0)]
    kept: Annotated[bool, about("Whether the content is kept, so that it can be compared.")]
    digest: Annotated[
        str | None, about("The SHA-256 of the content. Missing if the file is larger than 1 MB.", "9f86d081884c7d65…")
    ] = None
    removed: Annotated[bool, about("Whether the file was removed.")] = False


class VersionList(WholeList[ArtifactVersion]):
    """The versions of one artifact, oldest first."""


class ArtifactDiff(Shape, rename={"from_": "from"}):
    """What has changed in an artifact."""

    path: Annotated[str, about("The path of the artifact.", "itinerary.md")]
    from_: Annotated[int, about("The turn at whose end the comparison starts.", 1, ge=0)]
    to: Annotated[int | Literal["now"], about("The turn at whose end it ends, or `now`.", 2)]
    diff: Annotated[
        str | None,
        about(
            "A unified diff without the two lines that name the files. Empty if nothing has changed. Null if one of the "
            "contents is not kept: it is not text, is larger than 1 MB, or the run's space for versions is full.",
            "@@ -1,1 +1,1 @@\n-Day 1: museum\n+Day 1: harbour\n",
        ),
    ]
    cut: Annotated[
        bool, about("Whether the end is left out: the diff is longer than 10,000 lines or 500,000 characters.")
    ]


class ChangedFile(Shape):
    """A file in the `workdir` that a run has changed."""

    path: Annotated[str, about("Relative to the `workdir`, with `/` between folders.", "src/site.css")]
    status: Annotated[ChangeStatus, about("What happened to it.", "modified")]
    insertions: Annotated[int | None, about("Added lines. Null if it is not text.", 12)]
    deletions: Annotated[int | None, about("Removed lines. Null if it is not text.", 3)]


class Changes(Shape):
    """What a run has changed in its `workdir`, compared with the folder as it was when the run started. Covers all files
    that git does not ignore, except those below `artifacts/`."""

    files: Annotated[tuple[ChangedFile, ...], about("The first 200 changed files.")]
    total: Annotated[int, about("The number of changed files.", 1, ge=0)]
    insertions: Annotated[int, about("Added lines in all files.", 12, ge=0)]
    deletions: Annotated[int, about("Removed lines in all files.", 3, ge=0)]
    unavailable: Annotated[
        NoSummary | None,
        about(
            "Why there is no summary. `not_a_repository`: the folder is not the top folder of a git repository, or it is "
            "a linked worktree. `git_missing`: the server has no git. `too_slow`, `unreadable`: git could not compare the "
            "folder in time, or not at all. `not_started`: the run never started a turn there. Null if there is a summary."
        ),
    ]

    @classmethod
    def of(cls, found: FoundChanges | None) -> Self | None:
        if found is None:
            return None
        files = tuple(
            ChangedFile(path=each.path, status=each.status, insertions=each.insertions, deletions=each.deletions)
            for each in found.files
        )
        return cls(
            files=files,
            total=found.total,
            insertions=found.insertions,
            deletions=found.deletions,
            unavailable=found.unavailable,
        )


class Result(Shape, omit_defaults=True):
    """How a run ended."""

    status: Annotated[RunState, about("The final state.", "succeeded")]
    data: Annotated[Any, about("The output, validated against the skill's output schema. Null unless it succeeded.")]
    warnings: Annotated[tuple[RunWarning, ...], about("The warnings of the run.")]
    error: Annotated[RunError | None, about("Why the run failed.")]
    artifacts: Annotated[tuple[Artifact, ...], about("The files that the run produced.")]
    changes: Annotated[
        Changes | None, about("What the run has changed in its `workdir`. Left out if it has no `workdir`.")
    ] = None

    @classmethod
    def of(cls, run: runs.Run, data: Any, artifacts: Iterable[Artifact], changed: FoundChanges | None = None) -> Self:
        return cls(
            status=run.state,
            data=data,
            warnings=_warnings(run),
            error=RunError.of(run.error),
            artifacts=tuple(artifacts),
            changes=Changes.of(changed),
        )


# Webhooks.


_NOTIFICATION_TYPES = {
    DeliveryReason.STATE: EventType.RUN_STATE.value,
    DeliveryReason.REMINDER: "interaction.reminder",
    DeliveryReason.EXPIRING: EventType.INTERACTION_EXPIRING.value,
}
_TYPES_SCHEMA = {"enum": list(_NOTIFICATION_TYPES.values())}


class Delivery(Shape):
    """The notification of one webhook: of one change of state, or again of a question."""

    id: Annotated[
        str, about("The same for every attempt. Sent to the receiver as `webhook-id`.", "msg_1m7gekfsksrgk77s_2_1")
    ]
    run_id: RunId
    url: Annotated[str, about("The URL of the webhook, without parts that may be secret.", "https://example.com/hook")]
    kind: Annotated[str, one_of(WebhookKind), about("The format of the request.")]
    reason: Annotated[
        str,
        one_of(DeliveryReason),
        about(
            "`state`: the run changed its state. `reminder`: its question is still open. `expiring`: its deadline is near."
        ),
    ]
    event: Annotated[str, about("The `type` of the notification.", extra_json_schema=_TYPES_SCHEMA)]
    seq: Annotated[int, about("The number of the event. For a reminder: of the change to `waiting_user`.", 2, ge=1)]
    to: Annotated[RunState, about("The new state of the run.")]
    attempts: Annotated[int, about("The number of attempts so far.", 1, ge=0)]
    last_status: Annotated[int | None, about("The HTTP status of the last attempt; of an e-mail the SMTP status.", 204)]
    last_error: Annotated[str | None, about("Why the last attempt failed.")]
    next_attempt_at: Annotated[Moment | None, about("When the next attempt is due. Null if there is none.")]
    delivered_at: Annotated[Moment | None, about("When it was delivered. Null if it was not.")]

    @classmethod
    def of(cls, delivery: webhooks.Delivery) -> Self:
        return cls(
            id=delivery.id,
            run_id=delivery.run_id,
            url=delivery.webhook.shown_url,
            kind=delivery.webhook.kind,
            reason=delivery.reason,
            event=_NOTIFICATION_TYPES[delivery.reason],
            seq=delivery.seq,
            to=delivery.new,
            attempts=delivery.attempts,
            last_status=delivery.last_status,
            last_error=delivery.last_error,
            next_attempt_at=utc(delivery.next_attempt_at),
            delivered_at=utc(delivery.delivered_at),
        )


class DeliveryPage(Page[Delivery]):
    """Deliveries, newest first."""


class StateChange(Shape, omit_defaults=True, rename={"old": "from", "new": "to"}):
    """A run that has changed its state, or still waits with the same question."""

    run: Annotated[Run, about("The run, as it was right after the change; in a reminder, as it is now.")]
    old: Annotated[
        RunState | None,
        about("The previous state. Null for a new run. The same as `to` if the run still waits.", "running"),
    ]
    new: Annotated[RunState, about("The new state.", "waiting_user")]
    seq: Annotated[int, about("The number of the event.", 2, ge=1)]
    answer_url: Annotated[
        str | None,
        about(
            "A link to the question of a waiting run, for people: its holder can answer this question without a token, "
            "while it is pending. Left out if the server has no `public_url`, or the receiver may not answer.",
            "https://askback.example/answers/WyIxbTdnZWtmc2tzcmdr",
        ),
    ] = None


class Notification(Shape):
    """The body that a `standard` webhook receives."""

    type: Annotated[
        str,
        about(
            "`run.state`: the run changed its state. `interaction.reminder`: its question is still open. "
            "`interaction.expiring`: the deadline of its question is near.",
            extra_json_schema=_TYPES_SCHEMA,
        ),
    ]
    timestamp: Annotated[Moment, about("When the state changed, the reminder was due or the deadline was announced.")]
    data: Annotated[StateChange, about("What changed.")]

    @classmethod
    def of(cls, due: webhooks.DueDelivery, answer_url: str | None = None) -> Self:
        delivery = due.delivery
        change = StateChange(
            run=Run.of(due.run), old=delivery.old, new=delivery.new, seq=delivery.seq, answer_url=answer_url
        )
        return cls(type=_NOTIFICATION_TYPES[delivery.reason], timestamp=delivery.at, data=change)
