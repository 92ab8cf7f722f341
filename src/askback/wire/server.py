"""Everything but runs: problems, uploads, skills, engines, browser sessions and the health of the server."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from askback.core.errors import FieldCode
from askback.core.permissions import GateKind
from askback.core.runs import Mode, ProfileKind, UsageKey
from askback.wire.base import Actor, Moment, Shape, WholeList, about, choice
from askback.wire.runs import Usage


class FieldError(Shape):
    """A mistake in a request, for programs."""

    path: Annotated[
        tuple[str | int, ...],
        about("The names and indexes that lead to the field. Empty: the whole request.", ["input", "days"]),
    ]
    code: Annotated[str, choice(*FieldCode), about("Stable, for programs.", "required")]
    message: Annotated[str, about("For people, without the path.", "is required")]


class Problem(Shape, omit_defaults=True):
    """An error as RFC 9457 describes it, with a stable `code`."""

    type: Annotated[str, about("Always `about:blank`: use `code` to tell errors apart.", "about:blank")]
    title: Annotated[str, about("The phrase of the HTTP status.", "Conflict")]
    status: Annotated[int, about("The HTTP status.", 409)]
    code: Annotated[str, about("Stable, for programs.", "INTERACTION_NOT_PENDING")]
    detail: Annotated[str, about("For people: what happened and what to do.", "the question is no longer pending")]
    problems: Annotated[
        tuple[str, ...] | None,
        about("Every mistake in the request, each with its path.", ["input.days: 'x' is not of type integer"]),
    ] = None
    errors: Annotated[tuple[FieldError, ...] | None, about("The same mistakes in the same order, for programs.")] = None
    answered_with: Annotated[
        Actor | None, about("With `INTERACTION_NOT_PENDING`: who closed the question, if that is known.")
    ] = None


class Upload(Shape):
    """An uploaded file."""

    upload_id: Annotated[
        str, about('Use it in `input` or in a reply as `{"upload_id": "…"}`.', "up-0f3c2a7b9d1e4c5a6b7d8e9f")
    ]
    name: Annotated[str, about("The name of the file, made safe for every file system.", "report.pdf")]
    size: Annotated[int, about("In bytes.", 48213, ge=0)]

    @property
    def reference(self) -> dict[str, str]:
        """The value that stands for this file in an input or a reply."""
        return {"upload_id": self.upload_id}


class Skill(Shape):
    """A skill that a run can name."""

    id: Annotated[str, about("The name for `POST /v1/runs`.", "trip-planner")]
    version: Annotated[str | None, about("The version that new runs use.", "1.0.0")]
    versions: Annotated[tuple[str | None, ...], about("Every installed version, newest last.")]
    name: Annotated[str | None, about("The display name.", "trip-planner")]
    description: Annotated[str | None, about("What the skill does.")]
    execution_modes: Annotated[tuple[Mode, ...], about("The supported modes. The first is the default.")]
    engines: Annotated[tuple[str, ...] | None, about("The supported engines. Null: all.")]
    installed: Annotated[bool, about("False if the skill is in one of the server's skill folders.")]
    problem: Annotated[str | None, about("Why the skill cannot be run. Null if it can.")]


class SkillSchemas(Shape):
    """The JSON Schemas of a skill. Null where it has none."""

    input: Annotated[dict[str, Any] | bool | None, about("The schema of `input`.")]
    parameter: Annotated[dict[str, Any] | bool | None, about("The schema of `parameter`.")]
    output: Annotated[dict[str, Any] | bool | None, about("The schema of `data` in the result.")]


class SkillDetails(Skill):
    """A skill with its instructions and schemas."""

    instructions: Annotated[str, about("The text of `SKILL.md`.")]
    schemas: Annotated[SkillSchemas, about("What the skill takes and returns.")]


class SkillList(WholeList[Skill]):
    """The skills that a run can name, installed ones first."""


class SkillFile(Shape):
    """A file of a skill."""

    path: Annotated[str, about("Relative to the skill's folder, with `/` between folders.", "references/style.md")]
    size: Annotated[int, about("In bytes.", 171, ge=0)]
    digest: Annotated[str, about("The SHA-256 of the content.", "9f86d081884c7d65…")]


class SkillFileList(WholeList[SkillFile]):
    """All files of a skill, by path."""


class Slots(Shape):
    """Engine processes."""

    total: Annotated[int, about("How many may run at the same time.", 4, ge=0)]
    taken: Annotated[int, about("How many slots are in use.", 1, ge=0)]


class EngineProfile(Shape):
    """How the runs of an engine wait."""

    kind: Annotated[ProfileKind, about("The profile that `interactive_profile: auto` selects.")]
    reason: Annotated[str, about("What the probe found.")]
    offers: Annotated[
        str | None, about("The option or command that resumes sessions, if the probe found it.", "--resume")
    ] = None


class Engine(Shape):
    """A coding-agent CLI."""

    name: Annotated[str, about("The name for `POST /v1/runs`.", "codex")]
    title: Annotated[str | None, about("The display name.", "Codex")] = None
    found: Annotated[bool, about("Whether it is installed on the server, or on one of its workers.")]
    path: Annotated[str | None, about("The path of the program.")] = None
    version: Annotated[str | None, about("The version that it reports.", "0.120.0")] = None
    interactive_profile: Annotated[EngineProfile | None, about("How its runs wait. Null if it is not installed.")] = (
        None
    )
    profiles: Annotated[
        tuple[ProfileKind, ...],
        about("The profiles that an interactive run may choose.", ["resumable", "sticky_process"]),
    ] = ()
    warm: Annotated[
        bool, about("Whether the process of a resumable run can be kept warm while the run waits (`warm_sec`).")
    ] = False
    gate: Annotated[
        GateKind,
        about(
            "How a tool call waits for an approval (`permissions`). `park`: the call itself waits, without a process. `hold`: it "
            "waits in a process. `repeat`: it is denied, and allowed once when the model repeats it. `none`: the engine has no "
            "gate, and runs with `permissions` are refused."
        ),
    ] = GateKind.NONE
    signed_in: Annotated[bool | None, about("Null if it is unknown.")] = None
    advice: Annotated[str | None, about("What to do if it is not installed or not signed in.")] = None
    workers: Annotated[
        int | None, about("How many programs start turns of it. Null with SQLite: this server does.", 2)
    ] = None


class EngineList(WholeList[Engine]):
    """Every known engine, by name."""


class WorkerEngine(Shape):
    """An engine as one worker has it."""

    name: Annotated[str, about("The name for `POST /v1/runs`.", "codex")]
    version: Annotated[str | None, about("The version that it reports.", "0.120.0")] = None
    interactive_profile: Annotated[ProfileKind, about("How its runs wait there.")]
    signed_in: Annotated[bool | None, about("Whether it is signed in there. Null if it is unknown.")] = None
    slots: Annotated[int | None, about("How many of its processes may run there, if it is limited separately.")] = None
    taken: Annotated[int, about("How many of its processes run there.", 1, ge=0)] = 0


class Worker(Shape):
    """A program that executes runs: a worker, or a server."""

    name: Annotated[str, about("Its name, new at every start.", "program-5f0c1d2e3a4b")]
    kind: Annotated[str, choice("worker", "server"), about("`server`: it serves the API as well.", "worker")]
    host: Annotated[str, about("The name of its machine.", "build-7")]
    pid: Annotated[int, about("The id of its process there.", 4711)]
    version: Annotated[str, about("Its version of Askback.", "0.1.0")]
    state: Annotated[
        str,
        choice("alive", "draining", "unready", "gone"),
        about(
            "`draining`: it is being stopped and starts no more turns. `unready`: it starts no turns for now, see `problem`. "
            "`gone`: it has not been heard of for a while."
        ),
    ]
    labels: Annotated[dict[str, str], about("For people: `worker.labels` of its settings.", {"zone": "eu"})]
    slots: Annotated[Slots, about("Its engine processes.")]
    engines: Annotated[tuple[WorkerEngine, ...], about("The engines whose turns it executes, by name.")]
    started_at: Annotated[Moment, about("When it was started.")]
    problem: Annotated[
        str | None, about("Why it starts no turns for now: an error code, such as `DISK_FULL`.", None)
    ] = None


class WorkerList(WholeList[Worker]):
    """The programs that execute runs, the oldest first."""


class EngineModel(Shape):
    """A model that a run on this engine can name as `options.model`."""

    id: Annotated[str, about("The name for `options.model`.", "gpt-6.1-sol")]
    title: Annotated[str | None, about("The display name.", "GPT-6.1-Sol")] = None
    description: Annotated[str | None, about("What the engine says about it.")] = None
    efforts: Annotated[
        tuple[str, ...], about("The values for `options.effort`, if the engine lists them.", ["low", "medium", "high"])
    ] = ()
    is_default: Annotated[bool, about("Whether the engine uses it if a run names none.")] = False


class EngineModels(Shape):
    """The models of an engine. Not every engine can list them, and other names may work as well."""

    engine: Annotated[str, about("The name of the engine.", "codex")]
    models: Annotated[tuple[EngineModel, ...] | None, about("Null if the engine cannot list them; see `reason`.")]
    reason: Annotated[str | None, about("Why there is no list.", None)]
    asked_at: Annotated[Moment, about("When the engine was asked. An answer is kept for an hour.")]


class Limits(Shape):
    """What enforces each limit on engines. An empty list: nothing does."""

    memory: Annotated[tuple[str, ...], about("Memory of the engine and its child processes.", ["watchdog"])] = ()
    processes: Annotated[tuple[str, ...], about("The number of processes.", ["watchdog", "rlimit"])] = ()
    cpu: Annotated[tuple[str, ...], about("CPU time.", ["watchdog", "rlimit"])] = ()
    disk: Annotated[tuple[str, ...], about("The size of the run's folders.", ["watchdog", "rlimit"])] = ()
    oom: Annotated[
        tuple[str, ...], about("Whether the kernel ends engines first if memory runs out.", ["oom_score_adj"])
    ] = ()


class Isolation(Shape):
    """What an engine can access."""

    files: Annotated[
        str,
        choice("run", "user"),
        about(
            "`run`: the files of that run, and system files read-only. `user`: everything that the server's user can "
            "read and change, including the server's token.",
            "run",
        ),
    ]
    shares_folders: Annotated[bool, about("Whether the settings share further folders with all engines.")]
    network: Annotated[
        str,
        choice("host", "no-loopback", "none"),
        about("The setting `network`. If engines differ, the most permissive value.", "host"),
    ]
    message: Annotated[str, about("What an engine can do without a sandbox. Empty if there is one.", "")]


class Readiness(Shape):
    """Whether a server or a worker should get work now."""

    ready: Annotated[bool, about("Sent with status 200 if true, else with 503.", True)]
    database: Annotated[str, about("Whether its tables can be read and written: `ok`, or an error code.", "ok")]
    files: Annotated[
        str, about("Whether the data folder and the store of `files` can be used: `ok`, or an error code.", "ok")
    ]
    machine: Annotated[
        str,
        about(
            "Whether the machine has what turns need: its folders, free disk space, processes and open files. `ok`, or an "
            "error code.",
            "ok",
        ),
    ]
    draining: Annotated[bool, about("Whether it is being stopped and starts no more turns.", False)]


class Health(Shape):
    """The state of the server."""

    status: Annotated[
        str,
        choice("ok", "degraded", "failing"),
        about(
            "`failing`: the database or the stored files cannot be used, or no turns are started, see `machine`. `degraded`: requests are slow, "
            "see `loop_lag_sec` and `stuck`. Both are sent with status 503."
        ),
    ]
    version: Annotated[str, about("The version of Askback.", "0.1.0")]
    database: Annotated[str, about("`ok`, or an error code.", "ok")]
    files: Annotated[
        str | None, about("The store of `files`: `ok`, or an error code. Null if the settings name none.", "ok")
    ] = None
    machine: Annotated[str, about("Why no turns are started for now: an error code. `ok` if they are.", "ok")]
    disk_free_bytes: Annotated[int, about("Free space for the data folder.", 83119443968, ge=0)]
    slots: Annotated[
        Slots, about("The engine processes of this server; if it executes no runs itself, those of all workers.")
    ]
    workers: Annotated[
        int | None, about("How many programs start turns, this server included. Null with SQLite.", 3)
    ] = None
    oldest_queued_sec: Annotated[float | None, about("How long a run has been queued, at most.")] = None
    loop_lag_sec: Annotated[float, about("The longest recent delay of the server's event loop.", ge=0)] = 0.0
    stuck: Annotated[tuple[str, ...], about("Thread pools whose work does not finish.", [])] = ()
    sandbox: Annotated[
        str,
        choice("bubblewrap", "guardian", "none", "unknown"),
        about(
            "How engines are isolated. `bubblewrap`: an engine sees only its own processes and few files, and no process "
            "outlives its run. `guardian`: no process outlives its run. `none`: only its process group is ended. `unknown`: "
            "it could not be tested yet.",
            "bubblewrap",
        ),
    ]
    telegram: Annotated[
        str | None,
        about(
            "The Telegram bot: `ok`, `starting`, `standby` if another server takes its answers, or what is wrong. Null if "
            "there is none.",
            "ok",
        ),
    ] = None
    limits: Annotated[
        Limits,
        about(
            "What enforces the limits on engines. `cgroup v2`: the kernel, at once. `watchdog`: a check several times a "
            "second, so an engine can briefly exceed the limit. `rlimit`: the kernel, for each process."
        ),
    ]
    isolation: Annotated[Isolation, about("The files and networks that engines can access.")]


Day = date
Count = Annotated[int, about("How many.", 3, ge=0)]


class Finished(Shape):
    """Runs that ended."""

    succeeded: Count = 0
    failed: Count = 0
    canceled: Count = 0
    usage: Annotated[Usage, about("The tokens of these runs, in all their turns.")]

    @property
    def runs(self) -> int:
        return self.succeeded + self.failed + self.canceled


class DayStats(Finished):
    """The runs that ended on one day."""

    date: Annotated[Day, about("The day, in UTC.", "2026-03-01")]
    failures: Annotated[dict[str, int], about("Failed runs by the `code` of their error.", {"ENGINE_RATE_LIMITED": 2})]


class NamedStats(Finished):
    """The runs of one skill or engine that ended."""

    name: Annotated[str, about("The skill or the engine.", "trip-planner")]


class AnswerStats(Shape):
    """How long users took to answer. Of the latest 1,000 questions, those that were answered in this time."""

    count: Annotated[int, about("How many answers.", 40, ge=0)]
    median_sec: Annotated[float | None, about("Half of the answers took longer. Null without answers.", 95.5)] = None
    p90_sec: Annotated[float | None, about("One in ten answers took longer. Null without answers.", 3600.0)] = None


class Unfinished(Shape):
    """The runs that are not over."""

    queued: Count
    running: Count
    waiting_user: Count
    oldest_asked_at: Annotated[Moment | None, about("When the oldest pending question was asked.")] = None


class Statistics(Shape):
    """What happened in the last days.

    A run counts on the UTC day on which it ended, with the tokens of all its turns, and still counts after it was
    deleted. Answers of deleted runs do not count.
    """

    first: Annotated[Day, about("The first day.", "2026-02-01")]
    last: Annotated[Day, about("The last day: today, in UTC.", "2026-03-01")]
    days: Annotated[tuple[DayStats, ...], about("Every day, oldest first.")]
    skills: Annotated[tuple[NamedStats, ...], about("By skill, most runs first; at most 50.")]
    engines: Annotated[tuple[NamedStats, ...], about("By engine, most runs first; at most 50.")]
    answers: Annotated[AnswerStats, about("How long questions waited.")]
    unfinished: Annotated[Unfinished, about("The runs that are not over now.")]


class UsageSum(Shape):
    """What turns have used. Null: no engine has reported it."""

    name: Annotated[
        str | None,
        about(
            "The day, engine, model, skill, token, or label as `name=value`. Null: the engine does not name its model, the "
            "run was created without a token, or it is the sum of all.",
            "trip-planner",
        ),
    ]
    turns: Annotated[int, about("How many turns. One with several models counts for the first.", 12, ge=0)]
    input_tokens: Annotated[int | None, about("Tokens sent to the model, with cached ones.", 22100)]
    output_tokens: Annotated[int | None, about("Tokens that the model produced, with its reasoning.", 6400)]
    cached_tokens: Annotated[int | None, about("Input tokens that came from a cache.", 14800)]
    reasoning_tokens: Annotated[int | None, about("Output tokens of the model's reasoning.", 2100)]
    cost_usd: Annotated[float | None, about("The cost in dollars, as engines report it.", 0.42)]
    turns_with_cost: Annotated[int, about("For how many of the turns the cost is known.", 9, ge=0)]


class UsageReport(Shape):
    """What the turns of some days have used."""

    by: Annotated[UsageKey, about("By what it is added up.", "skill")]
    first: Annotated[Day, about("The first day.", "2026-02-01")]
    last: Annotated[Day, about("The last day: today, in UTC.", "2026-03-01")]
    total: Annotated[UsageSum, about("The sum of all turns.")]
    items: Annotated[tuple[UsageSum, ...], about("Days in their order, anything else by input tokens, most first.")]
