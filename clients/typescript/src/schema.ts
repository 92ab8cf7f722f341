// Made by tools/generate_docs.py; change the code and run `make docs`.

/** The shapes of the HTTP API. Fields that are marked `?` are left out if they have no value. */

/** Any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** What a token allows; `admin` allows everything. */
export type AccessScope = "submit" | "answer" | "approve" | "read" | "admin";

/** What was written. */
export type Action = "run.submit" | "run.cancel" | "run.resume" | "run.delete" | "interaction.reply" | "permission.decide" | "link.create" | "link.revoke" | "upload.create" | "skill.install" | "skill.remove" | "token.create" | "token.revoke" | "invitation.create" | "invitation.revoke" | "session.start" | "session.end" | "push.subscribe" | "push.unsubscribe" | "push.test";

/** Who did something, and through which channel. */
export interface Actor {
  /** The name of the token, of the link's recipient, or of the user of the server's machine. */
  name: string;
  /** `askback`: Askback itself, for example at a deadline. */
  via: Via;
}

/** How long users took to answer. Of the latest 1,000 questions, those that were answered in this time. */
export interface AnswerStats {
  /** How many answers. */
  count: number;
  /** Half of the answers took longer. Null without answers. */
  median_sec: number | null;
  /** One in ten answers took longer. Null without answers. */
  p90_sec: number | null;
}

/** Whether a person answered, or the engine decided because nobody did. */
export type AnsweredBy = "user" | "auto_decide";

/** A file that a run produced. */
export interface Artifact {
  /** Relative to the run's artifacts folder, with `/` between folders. */
  path: string;
  /** In bytes. */
  size: number;
  /** The turn that changed it last; 0 if it was copied from another run. Missing if unknown. */
  turn?: number;
}

/** What has changed in an artifact. */
export interface ArtifactDiff {
  /** The path of the artifact. */
  path: string;
  /** The turn at whose end the comparison starts. */
  from: number;
  /** The turn at whose end it ends, or `now`. */
  to: number | "now";
  /** A unified diff without the two lines that name the files. Empty if nothing has changed. Null if one of the contents is not kept: it is not text, is larger than 1 MB, or the run's space for versions is full. */
  diff: string | null;
  /** Whether the end is left out: the diff is longer than 10,000 lines or 500,000 characters. */
  cut: boolean;
}

/** The files that a run has produced so far, folder by folder. */
export interface ArtifactList {
  /** At most `limit` items, fewer if their paths are long. */
  items: Array<Artifact>;
  /** Pass it as `cursor` to get the next page. Null on the last page. */
  next_cursor: string | null;
}

/** An artifact as it was at the end of a turn. */
export interface ArtifactVersion {
  /** The turn; 0 if the file was copied from another run. */
  turn: number;
  /** In bytes. */
  size: number;
  /** Whether the content is kept, so that it can be compared. */
  kept: boolean;
  /** The SHA-256 of the content. Missing if the file is larger than 1 MB. */
  digest?: string;
  /** Whether the file was removed. */
  removed?: boolean;
}

/** Something that somebody wrote. It never has an answer, an input or a secret. */
export interface AuditEntry {
  /** Increases with every entry. */
  id: number;
  /** When it was written. */
  at: string;
  /** Who wrote it, and through which channel. */
  actor: Actor;
  /** What was written. */
  action: Action;
  /** The run. It may be deleted by now. */
  run_id?: string;
  /** The question. */
  interaction_id?: string;
  /** The name of the token, or the ID of the link, upload, skill, session or invitation. Of an answer by link, its ID and the token that created it, or `the server` for a link in a notification. */
  object?: string;
  /** The address that the request came from. Missing for commands on the server's machine. */
  address?: string;
}

/** Entries of the audit log, newest first. */
export interface AuditEntryPage {
  /** At most `limit` items. */
  items: Array<AuditEntry>;
  /** Pass it as `cursor` to get the next page. Null on the last page. */
  next_cursor: string | null;
}

/** What led to a pending question. */
export interface Background {
  /** The last messages of the engine in the turn that asked, oldest first. A long one has only its end. */
  messages: Array<string>;
  /** The last questions before it, with their answers. */
  interactions: Array<Interaction>;
  /** The files that the turn has changed, at most 100. */
  files: Array<Artifact>;
}

/** How a file differs from what it was before the run. */
export type ChangeStatus = "added" | "modified" | "deleted";

/** A file in the `workdir` that a run has changed. */
export interface ChangedFile {
  /** Relative to the `workdir`, with `/` between folders. */
  path: string;
  /** What happened to it. */
  status: ChangeStatus;
  /** Added lines. Null if it is not text. */
  insertions: number | null;
  /** Removed lines. Null if it is not text. */
  deletions: number | null;
}

/** What a run has changed in its `workdir`, compared with the folder as it was when the run started. Covers all files that git does not ignore, except those below `artifacts/`. */
export interface Changes {
  /** The first 200 changed files. */
  files: Array<ChangedFile>;
  /** The number of changed files. */
  total: number;
  /** Added lines in all files. */
  insertions: number;
  /** Removed lines in all files. */
  deletions: number;
  /** Why there is no summary. `not_a_repository`: the folder is not the top folder of a git repository, or it is a linked worktree. `git_missing`: the server has no git. `too_slow`, `unreadable`: git could not compare the folder in time, or not at all. `not_started`: the run never started a turn there. Null if there is a summary. */
  unavailable: NoSummary | null;
}

/** How a question was closed. */
export interface ClosedInteraction {
  /** The question. */
  interaction_id: string;
  /** How it ended. */
  outcome: InteractionOutcome;
  /** Who closed it, and through which channel. */
  answered_with: Actor | null;
}

/** A question that is no longer pending, with the run that asked it. */
export interface ClosedQuestion {
  /** Unique within the run. */
  interaction_id: string;
  /** `text`, `choice`, `secret`, `form` for several questions, `approval` for a tool call, or the engine's own word. */
  kind: string;
  /** The question, or the introduction of a form. */
  prompt: string;
  /** The answers to choose from: strings, or objects with `label` and `value`. */
  options: Array<Json>;
  /** The questions of a form, which are answered together: the answer is an object with their ids. */
  questions?: Array<FormField>;
  /** The suggested answer: used if the user presses Enter, and passed to the engine if nobody answers in time. */
  default: Json;
  /** The JSON Schema of the answer: a scalar, or a flat object. A form always has one. */
  response_schema: { [key: string]: Json } | null;
  /** The fields of the answer that are secret. Null if the whole answer is. Never store or show them. */
  secret_fields?: Array<string>;
  /** Further information from the engine. */
  context: Json;
  /** Of an approval: the tool, by the engine's name for it. */
  tool?: string;
  /** Of an approval: the input of the call, exactly as the engine will use it. */
  input?: { [key: string]: Json };
  /** Of an approval: the folder of the call. */
  cwd?: string;
  /** Of an approval: what the call changes in a file, if that is known. */
  diff?: string;
  /** The turn that asked. */
  attempt_number: number;
  /** When the question was asked. */
  asked_at: string;
  /** How the question ended, or `pending`. */
  outcome: InteractionOutcome;
  /** The answer. Null if it is secret; in an object, its secret fields are null. */
  response: Json;
  /** Who answered. */
  answered_by: AnsweredBy | null;
  /** When the question ended. */
  answered_at: string | null;
  /** Who closed the question, and through which channel. Null while it is pending, and if it is not known. */
  answered_with: Actor | null;
  /** The ID of the run. */
  run_id: string;
  /** The skill of the run. */
  skill: string;
  /** The engine of the run. */
  engine: string;
  /** The input of the run in one line, without secrets. */
  summary?: string;
  /** The labels of the run. */
  labels?: { [key: string]: string };
  /** The current state of the run. */
  state: RunState;
}

/** Questions that are no longer pending, the last closed first. */
export interface ClosedQuestionPage {
  /** At most `limit` items. */
  items: Array<ClosedQuestion>;
  /** Pass it as `cursor` to get the next page. Null on the last page. */
  next_cursor: string | null;
}

/** A new token with its text, which is shown only once. */
export interface CreatedToken {
  /** Whose token it is. */
  name: string;
  /** Whether it is the server's own token, which allows everything and cannot be revoked. */
  main: boolean;
  /** What it allows; `admin` allows everything. */
  scopes: Array<AccessScope>;
  /** If there are any, it is restricted to runs that have all of them. */
  labels: { [key: string]: string };
  /** Null for the server's own token. */
  created_at: string | null;
  /** Null: never. An expired token is listed until it is revoked. */
  expires_at: string | null;
  /** Whether it has expired. */
  expired: boolean;
  /** Null: never. After a crash of the server some minutes may be missing. */
  last_used_at: string | null;
  /** `api`: by a program with the token. `page`: by a browser that was signed in with it. `mcp`, `acp`: by a client of that protocol. */
  last_used_via: "api" | "page" | "mcp" | "acp" | null;
  /** How many browsers and devices are signed in with it. */
  sessions: number;
  /** The token itself. Only its digest is stored. */
  token: string;
}

/** The runs that ended on one day. */
export interface DayStats {
  /** How many. */
  succeeded: number;
  /** How many. */
  failed: number;
  /** How many. */
  canceled: number;
  /** The tokens of these runs, in all their turns. */
  usage: Usage;
  /** The day, in UTC. */
  date: string;
  /** Failed runs by the `code` of their error. */
  failures: { [key: string]: number };
}

/** The notification of one webhook: of one change of state, or again of a question. */
export interface Delivery {
  /** The same for every attempt. Sent to the receiver as `webhook-id`. */
  id: string;
  /** The ID of the run. */
  run_id: string;
  /** The URL of the webhook, without parts that may be secret. */
  url: string;
  /** The format of the request. */
  kind: WebhookKind;
  /** `state`: the run changed its state. `reminder`: its question is still open. `expiring`: its deadline is near. `parked`, `resumed`: it waits for a limit of the model provider to end, or does not wait any more. */
  reason: DeliveryReason;
  /** The `type` of the notification. */
  event: "run.state" | "interaction.reminder" | "interaction.expiring" | "run.parked" | "run.resumed";
  /** The number of the event. For a reminder: of the change to `waiting_user`. */
  seq: number;
  /** The new state of the run. */
  to: RunState;
  /** The number of attempts so far. */
  attempts: number;
  /** The HTTP status of the last attempt; of an e-mail the SMTP status. */
  last_status: number | null;
  /** Why the last attempt failed. */
  last_error: string | null;
  /** When the next attempt is due. Null if there is none. */
  next_attempt_at: string | null;
  /** When it was delivered. Null if it was not. */
  delivered_at: string | null;
}

/** Deliveries, newest first. */
export interface DeliveryPage {
  /** At most `limit` items. */
  items: Array<Delivery>;
  /** Pass it as `cursor` to get the next page. Null on the last page. */
  next_cursor: string | null;
}

/** Why something is sent. */
export type DeliveryReason = "state" | "reminder" | "expiring" | "parked" | "resumed";

/** A coding-agent CLI. */
export interface Engine {
  /** The name for `POST /v1/runs`. */
  name: string;
  /** The display name. */
  title: string | null;
  /** Whether it is installed on the server, or on one of its workers. */
  found: boolean;
  /** The path of the program. */
  path: string | null;
  /** The version that it reports. */
  version: string | null;
  /** How its runs wait. Null if it is not installed. */
  interactive_profile: EngineProfile | null;
  /** The profiles that an interactive run may choose. */
  profiles: Array<ProfileKind>;
  /** Whether the process of a resumable run can be kept warm while the run waits (`warm_sec`). */
  warm: boolean;
  /** How a tool call waits for an approval (`permissions`). `park`: the call itself waits, without a process. `hold`: it waits in a process. `repeat`: it is denied, and allowed once when the model repeats it. `none`: the engine has no gate, and runs with `permissions` are refused. */
  gate: GateKind;
  /** Null if it is unknown. */
  signed_in: boolean | null;
  /** What to do if it is not installed or not signed in. */
  advice: string | null;
  /** How many programs start turns of it. Null with SQLite: this server does. */
  workers: number | null;
}

/** Every known engine, by name. */
export interface EngineList {
  /** All items. */
  items: Array<Engine>;
  /** Always null. */
  next_cursor: null;
}

/** A model that a run on this engine can name as `options.model`. */
export interface EngineModel {
  /** The name for `options.model`. */
  id: string;
  /** The display name. */
  title: string | null;
  /** What the engine says about it. */
  description: string | null;
  /** The values for `options.effort`, if the engine lists them. */
  efforts: Array<string>;
  /** Whether the engine uses it if a run names none. */
  is_default: boolean;
}

/** The models of an engine. Not every engine can list them, and other names may work as well. */
export interface EngineModels {
  /** The name of the engine. */
  engine: string;
  /** Null if the engine cannot list them; see `reason`. */
  models: Array<EngineModel> | null;
  /** Why there is no list. */
  reason: string | null;
  /** When the engine was asked. An answer is kept for an hour. */
  asked_at: string;
}

/** How the runs of an engine wait. */
export interface EngineProfile {
  /** The profile that `interactive_profile: auto` selects. */
  kind: ProfileKind;
  /** What the probe found. */
  reason: string;
  /** The option or command that resumes sessions, if the probe found it. */
  offers: string | null;
}

/** Why a run failed. Each code means one thing and is never reused. */
export type ErrorCode = "SESSION_RESUME_FAILED" | "INTERACTION_WAIT_TIMEOUT" | "INTERACTION_PROCESS_LOST" | "INTERACTIVE_MAX_ATTEMPT_EXCEEDED" | "ASK_USER_PAYLOAD_INVALID" | "OUTPUT_SCHEMA_INVALID" | "ORCHESTRATOR_RESTART_INTERRUPTED" | "ENGINE_NOT_FOUND" | "ENGINE_AUTH_REQUIRED" | "ENGINE_RATE_LIMITED" | "ENGINE_UNREACHABLE" | "ENGINE_API_ERROR" | "ENGINE_CRASHED" | "SCRIPT_INVALID" | "TURN_TIMEOUT" | "OUTPUT_LIMIT_EXCEEDED" | "ENGINE_START_FAILED" | "WORKDIR_UNAVAILABLE" | "RESOURCE_LIMIT_EXCEEDED" | "MEMORY_LIMIT" | "PROCESS_LIMIT" | "CPU_LIMIT" | "DISK_LIMIT" | "PERMISSION_GATE_FAILED" | "INTERNAL_ERROR";

/** Something that happened to a run. */
export interface Event {
  /** Counts the events of a run, from 1 without gaps. */
  seq: number;
  /** The ID of the run. */
  run_id: string;
  /** What happened. */
  type: EventType;
  /** When it happened. */
  at: string;
  /** Depends on the type. */
  data: { [key: string]: Json };
}

/** Events, in their order. */
export interface EventPage {
  /** At most `limit` items. */
  items: Array<Event>;
  /** Pass it as `after` to get the next page. Null if there are no more events yet. */
  next_cursor: string | null;
}

/** What happened to a run. */
export type EventType = "run.created" | "run.state" | "run.warning" | "turn.started" | "turn.ended" | "assistant.message" | "tool.started" | "tool.ended" | "permission.decided" | "interaction.asked" | "interaction.expiring" | "interaction.closed" | "run.parked" | "run.resumed" | "usage";

/** A mistake in a request, for programs. */
export interface FieldError {
  /** The names and indexes that lead to the field. Empty: the whole request. */
  path: Array<string | number>;
  /** Stable, for programs. */
  code: "required" | "unknown" | "invalid";
  /** For people, without the path. */
  message: string;
}

/** One question of a form. */
export interface FormField {
  /** Its name in the answer. Unique within the form. */
  id: string;
  /** `text`, `choice`, `confirm`, `secret`, or the engine's own word. */
  kind: string;
  /** The question. */
  prompt: string;
  /** The answers to choose from: strings, or objects with `label` and `value`. */
  options: Array<Json>;
  /** The suggested answer. */
  default: Json;
  /** Whether it must be answered. */
  required: boolean;
  /** The JSON Schema of its answer. */
  response_schema: { [key: string]: Json } | null;
  /** Further information from the engine. */
  context: Json;
}

/** A run to continue, and what to copy from it. */
export interface FromRun {
  /** The run. It must be over, or wait without a process. */
  run_id: string;
  /** `artifacts`: its output files. `workspace`: its whole working directory. */
  files?: InheritedFiles | null;
  /** Whether the engine's session is copied and continued: the model sees the earlier conversation. */
  session?: boolean;
  /** An `interaction_id`: fork at this question. The session is as it was when it was asked, and the new run waits with the same question. Requires `session`. The new run has the input and parameters of the source. */
  at?: string | null;
  /** With `at`: the answer to the question, instead of waiting for it. */
  response?: Json;
}

/** How a call waits for an approval. */
export type GateKind = "hold" | "none" | "park" | "repeat";

/** The state of the server. */
export interface Health {
  /** `failing`: the database or the stored files cannot be used, or no turns are started, see `machine`. `degraded`: requests are slow, see `loop_lag_sec` and `stuck`. Both are sent with status 503. */
  status: "ok" | "degraded" | "failing";
  /** The version of Askback. */
  version: string;
  /** `ok`, or an error code. */
  database: string;
  /** The store of `files`: `ok`, or an error code. Null if the settings name none. */
  files: string | null;
  /** Why no turns are started for now: an error code. `ok` if they are. */
  machine: string;
  /** Free space for the data folder. */
  disk_free_bytes: number;
  /** The engine processes of this server; if it executes no runs itself, those of all workers. */
  slots: Slots;
  /** How many programs start turns, this server included. Null with SQLite. */
  workers: number | null;
  /** How long a run has been queued, at most. */
  oldest_queued_sec: number | null;
  /** The longest recent delay of the server's event loop. */
  loop_lag_sec: number;
  /** Thread pools whose work does not finish. */
  stuck: Array<string>;
  /** How engines are isolated. `bubblewrap`: an engine sees only its own processes and few files, and no process outlives its run. `guardian`: no process outlives its run. `none`: only its process group is ended. `unknown`: it could not be tested yet. */
  sandbox: "bubblewrap" | "guardian" | "none" | "unknown";
  /** The Telegram bot: `ok`, `starting`, `standby` if another server takes its answers, or what is wrong. Null if there is none. */
  telegram: string | null;
  /** What enforces the limits on engines. `cgroup v2`: the kernel, at once. `watchdog`: a check several times a second, so an engine can briefly exceed the limit. `rlimit`: the kernel, for each process. */
  limits: Limits;
  /** The files and networks that engines can access. */
  isolation: Isolation;
}

/** The engine process of a sticky run that waits. */
export interface HeldProcess {
  /** On the server's machine. */
  pid: number;
  /** When the wait ends. Null if the process is being ended. */
  until: string | null;
}

/** Pending questions, oldest first or by deadline. */
export interface Inbox {
  /** At most `limit` items. */
  items: Array<PendingQuestion>;
  /** Pass it as `cursor` to get the next page. Null on the last page. */
  next_cursor: string | null;
  /** How many pending questions match the filters, on all pages. */
  total: number;
  /** The number of questions of each skill, with all filters but `skill`. */
  skills: { [key: string]: number };
  /** The number of questions on each engine, with all filters but `engine`. */
  engines: { [key: string]: number };
}

/** How a list of open questions is sorted. */
export type InboxOrder = "oldest" | "deadline";

/** What a run copies of another run's files. */
export type InheritedFiles = "artifacts" | "workspace";

/** A question to the user, with its answer once there is one. */
export interface Interaction {
  /** Unique within the run. */
  interaction_id: string;
  /** `text`, `choice`, `secret`, `form` for several questions, `approval` for a tool call, or the engine's own word. */
  kind: string;
  /** The question, or the introduction of a form. */
  prompt: string;
  /** The answers to choose from: strings, or objects with `label` and `value`. */
  options: Array<Json>;
  /** The questions of a form, which are answered together: the answer is an object with their ids. */
  questions: Array<FormField>;
  /** The suggested answer: used if the user presses Enter, and passed to the engine if nobody answers in time. */
  default: Json;
  /** The JSON Schema of the answer: a scalar, or a flat object. A form always has one. */
  response_schema: { [key: string]: Json } | null;
  /** The fields of the answer that are secret. Null if the whole answer is. Never store or show them. */
  secret_fields: Array<string> | null;
  /** Further information from the engine. */
  context: Json;
  /** Of an approval: the tool, by the engine's name for it. */
  tool: string | null;
  /** Of an approval: the input of the call, exactly as the engine will use it. */
  input: { [key: string]: Json } | null;
  /** Of an approval: the folder of the call. */
  cwd: string | null;
  /** Of an approval: what the call changes in a file, if that is known. */
  diff: string | null;
  /** The turn that asked. */
  attempt_number: number;
  /** When the question was asked. */
  asked_at: string;
  /** How the question ended, or `pending`. */
  outcome: InteractionOutcome;
  /** The answer. Null if it is secret; in an object, its secret fields are null. */
  response: Json;
  /** Who answered. */
  answered_by: AnsweredBy | null;
  /** When the question ended. */
  answered_at: string | null;
  /** Who closed the question, and through which channel. Null while it is pending, and if it is not known. */
  answered_with: Actor | null;
}

/** All questions of a run, in the order in which they were asked. */
export interface InteractionList {
  /** All items. */
  items: Array<Interaction>;
  /** Always null. */
  next_cursor: null;
}

/** How a question ended. */
export type InteractionOutcome = "pending" | "answered" | "auto_decided" | "expired" | "canceled" | "abandoned";

/** A new invitation. */
export interface Invitation {
  /** Identifies the invitation when it is revoked. Grants no access. */
  id: string;
  /** The name of the token that the device signs in with. */
  token: string;
  /** When it was created. */
  created_at: string;
  /** When it expires. */
  expires_at: string;
  /** Open it on the device and confirm: it signs the device in, once. */
  url: string;
}

/** An invitation for one device. */
export interface InvitationCreate {
  /** The name of the token that the device signs in with. */
  token: string;
  /** When the invitation expires if it is not used, in seconds. */
  expires_in_sec?: number;
}

/** The unused invitations, oldest first. */
export interface InvitationList {
  /** All items. */
  items: Array<ListedInvitation>;
  /** Always null. */
  next_cursor: null;
}

/** What an engine can access. */
export interface Isolation {
  /** `run`: the files of that run, and system files read-only. `user`: everything that the server's user can read and change, including the server's token. */
  files: "run" | "user";
  /** Whether the settings share further folders with all engines. */
  shares_folders: boolean;
  /** The setting `network`. If engines differ, the most permissive value. */
  network: "host" | "no-loopback" | "none";
  /** What an engine can do without a sandbox. Empty if there is one. */
  message: string;
}

/** A limit of the model provider. */
export interface Limit {
  /** Of what there is no more for now. */
  kind: LimitKind;
  /** When it ends. Null if the engine does not say it. */
  resets_at: string | null;
}

/** Of what the model provider allows no more for now. */
export type LimitKind = "rate" | "usage_window" | "quota" | "credits" | "spending_cap";

/** What enforces each limit on engines. An empty list: nothing does. */
export interface Limits {
  /** Memory of the engine and its child processes. */
  memory: Array<string>;
  /** The number of processes. */
  processes: Array<string>;
  /** CPU time. */
  cpu: Array<string>;
  /** The size of the run's folders. */
  disk: Array<string>;
  /** Whether the kernel ends engines first if memory runs out. */
  oom: Array<string>;
}

/** A new link to one question. */
export interface Link {
  /** Identifies the link when it is revoked. */
  id: string;
  /** Lets its holder read and answer this question, and nothing else. */
  url: string;
  /** When the link expires. */
  expires_at: string;
}

/** Settings of a new link. */
export interface LinkCreate {
  /** When the link expires, in seconds. */
  expires_in_sec?: number;
  /** Who the link is for, on one line of printable characters: the name in `answered_with`. Without it, that of the token that creates the link. */
  recipient?: string | null;
}

/** The links to one question, oldest first. */
export interface LinkList {
  /** All items. */
  items: Array<ListedLink>;
  /** Always null. */
  next_cursor: null;
}

/** An answer to the question of a link. */
export interface LinkedReply {
  /** The value of an option, a value that `response_schema` accepts, or any value if there is none. For a form, an object with the answers by the ids of its questions. */
  response: Json;
}

/** An invitation that was not used yet, without its URL. */
export interface ListedInvitation {
  /** Identifies the invitation when it is revoked. Grants no access. */
  id: string;
  /** The name of the token that the device signs in with. */
  token: string;
  /** When it was created. */
  created_at: string;
  /** When it expires. */
  expires_at: string;
}

/** A link to a question, without its URL. */
export interface ListedLink {
  /** Identifies the link when it is revoked. */
  id: string;
  /** The question. */
  interaction_id: string;
  /** The name of the token that created the link. Revoking the token ends it. Null if the link was sent to a recipient of the server's settings. */
  token: string | null;
  /** When the link was created. */
  created_at: string;
  /** When the link expires. */
  expires_at: string;
  /** Who the link is for, and whose name `answered_with` has. Null: the token that created it. */
  recipient: string | null;
}

/** Whether a run may ask. */
export type Mode = "auto" | "interactive";

/** What one model has used. Null: the engine does not report it. */
export interface ModelUsage {
  /** The model, in the words of the engine. */
  model: string | null;
  /** Tokens sent to the model, with cached ones. */
  input_tokens: number | null;
  /** Tokens that the model produced, with its reasoning. */
  output_tokens: number | null;
  /** Input tokens that came from a cache. Null if the engine does not report it. */
  cached_tokens: number | null;
  /** Output tokens of the model's reasoning. Null if the engine does not report it. */
  reasoning_tokens: number | null;
  /** The cost in dollars, as the engine reports it. Null if it does not: Askback has no prices. */
  cost_usd: number | null;
}

/** The runs of one skill or engine that ended. */
export interface NamedStats {
  /** How many. */
  succeeded: number;
  /** How many. */
  failed: number;
  /** How many. */
  canceled: number;
  /** The tokens of these runs, in all their turns. */
  usage: Usage;
  /** The skill or the engine. */
  name: string;
}

/** Why there is no summary of the changes. */
export type NoSummary = "not_a_repository" | "git_missing" | "too_slow" | "unreadable" | "not_started";

/** The body that a `standard` webhook receives. */
export interface Notification {
  /** `run.state`: the run changed its state. `interaction.reminder`: its question is still open. `interaction.expiring`: the deadline of its question is near. `run.parked`: the run waits until `not_before` for a limit of the model provider. `run.resumed`: it does not wait any more. */
  type: "run.state" | "interaction.reminder" | "interaction.expiring" | "run.parked" | "run.resumed";
  /** When the state changed, the reminder was due or the deadline was announced. */
  timestamp: string;
  /** What changed. */
  data: StateChange;
}

/** The run that another one continues, and what was copied from it. */
export interface Origin {
  /** The ID of the run. */
  run_id: string;
  /** Which of its files were copied. */
  files?: InheritedFiles;
  /** Whether the engine's session was copied and continued. */
  session?: boolean;
  /** The question with which the new run started. */
  at?: string;
}

/** A pending question with the run that asks it. */
export interface PendingQuestion {
  /** Unique within the run. */
  interaction_id: string;
  /** `text`, `choice`, `secret`, `form` for several questions, `approval` for a tool call, or the engine's own word. */
  kind: string;
  /** The question, or the introduction of a form. */
  prompt: string;
  /** The answers to choose from: strings, or objects with `label` and `value`. */
  options: Array<Json>;
  /** The questions of a form, which are answered together: the answer is an object with their ids. */
  questions?: Array<FormField>;
  /** The suggested answer: used if the user presses Enter, and passed to the engine if nobody answers in time. */
  default: Json;
  /** The JSON Schema of the answer: a scalar, or a flat object. A form always has one. */
  response_schema: { [key: string]: Json } | null;
  /** The fields of the answer that are secret. Null if the whole answer is. Never store or show them. */
  secret_fields?: Array<string>;
  /** Further information from the engine. */
  context: Json;
  /** Of an approval: the tool, by the engine's name for it. */
  tool?: string;
  /** Of an approval: the input of the call, exactly as the engine will use it. */
  input?: { [key: string]: Json };
  /** Of an approval: the folder of the call. */
  cwd?: string;
  /** Of an approval: what the call changes in a file, if that is known. */
  diff?: string;
  /** The turn that asked. */
  attempt_number: number;
  /** When the question was asked. */
  asked_at: string;
  /** How the question ended, or `pending`. */
  outcome: InteractionOutcome;
  /** The answer. Null if it is secret; in an object, its secret fields are null. */
  response: Json;
  /** Who answered. */
  answered_by: AnsweredBy | null;
  /** When the question ended. */
  answered_at: string | null;
  /** Who closed the question, and through which channel. Null while it is pending, and if it is not known. */
  answered_with: Actor | null;
  /** The ID of the run. */
  run_id: string;
  /** The skill of the run. */
  skill: string;
  /** The engine of the run. */
  engine: string;
  /** The input of the run in one line, without secrets. */
  summary?: string;
  /** The labels of the run. */
  labels?: { [key: string]: string };
  /** How the run waits. */
  interactive_profile: Profile;
  /** Whether an answer is required. If true, a sticky run fails at its deadline, and any other run waits indefinitely. If false, the engine decides at the deadline. */
  reply_required: boolean;
  /** When the wait ends without an answer. */
  wait_deadline_at?: string;
}

/** An error as RFC 9457 describes it, with a stable `code`. */
export interface Problem {
  /** Always `about:blank`: use `code` to tell errors apart. */
  type: string;
  /** The phrase of the HTTP status. */
  title: string;
  /** The HTTP status. */
  status: number;
  /** Stable, for programs. */
  code: string;
  /** For people: what happened and what to do. */
  detail: string;
  /** Every mistake in the request, each with its path. */
  problems?: Array<string>;
  /** The same mistakes in the same order, for programs. */
  errors?: Array<FieldError>;
  /** With `INTERACTION_NOT_PENDING`: who closed the question, if that is known. */
  answered_with?: Actor;
}

/** How an interactive run waits for its user. */
export interface Profile {
  /** `resumable`: the next turn resumes the session in a new process. `sticky_process`: the process is kept. */
  kind: ProfileKind;
  /** What the probe of the engine found. */
  reason: string;
  /** How long a wait with a deadline lasts. */
  session_timeout_sec: number;
}

/** How an interactive run waits: without a process, or with one. */
export type ProfileKind = "resumable" | "sticky_process";

/** What a browser needs for pushes, and the subscriptions of the caller's token. */
export interface Push {
  /** The `applicationServerKey` for `PushManager.subscribe()`. */
  public_key: string;
  /** The name of the caller's token. Subscriptions end with it. */
  token: string;
  /** The subscriptions of the caller's token, newest first. */
  items: Array<PushSubscription>;
}

/** The keys of a push subscription, as the browser gives them: base64url. */
export interface PushKeys {
  /** The public key of the browser. */
  p256dh: string;
  /** The secret that the browser shares with the server. */
  auth: string;
}

/** A browser that gets a push when a question is asked. */
export interface PushSubscription {
  /** Identifies the subscription when it is removed. Grants no access. */
  id: string;
  /** The browser and system, from its `User-Agent`. */
  device: string;
  /** The host of the push service. */
  service: string;
  /** Whether the session of this request added it. */
  current: boolean;
  /** When it was added, or last renewed by its browser. */
  created_at: string;
  /** When the push service last accepted a push, accurate to a minute. Null if never. */
  last_success_at: string | null;
}

/** A browser that wants pushes: what `PushSubscription.toJSON()` returns there. */
export interface PushSubscriptionCreate {
  /** The URL of the push service for this browser. */
  endpoint: string;
  /** For the encryption of messages. */
  keys: PushKeys;
}

/** How a test push went. */
export interface PushTest {
  /** Whether the push service accepted it. */
  delivered: boolean;
  /** Why it was not accepted. */
  error: string | null;
}

/** Whether a server or a worker should get work now. */
export interface Readiness {
  /** Sent with status 200 if true, else with 503. */
  ready: boolean;
  /** Whether its tables can be read and written: `ok`, or an error code. */
  database: string;
  /** Whether the data folder and the store of `files` can be used: `ok`, or an error code. */
  files: string;
  /** Whether the machine has what turns need: its folders, free disk space, processes and open files. `ok`, or an error code. */
  machine: string;
  /** Whether it is being stopped and starts no more turns. */
  draining: boolean;
}

/** When a webhook is notified again of a question that is still open. */
export interface ReminderCreate {
  /** So many seconds after the question was asked, at least 60 apart. Default: as in the settings. */
  after_sec?: Array<number> | null;
  /** Then again and again, with so many seconds in between. Default: no more. */
  repeat_sec?: number | null;
  /** At most so many reminders of one question. Default: 10. */
  max?: number | null;
  /** Whether the webhook is notified of a near deadline. */
  expiring?: boolean;
}

/** An answer to the pending question. */
export interface Reply {
  /** The question. */
  interaction_id: string;
  /** The value of an option, a value that `response_schema` accepts, any value if there is no schema, or an uploaded file as `{"upload_id": "…"}`. For a form, an object with the answers by the ids of its questions. */
  response: Json;
}

/** How a run ended. */
export interface Result {
  /** The final state. */
  status: RunState;
  /** The output, validated against the skill's output schema. Null unless it succeeded. */
  data: Json;
  /** The warnings of the run. */
  warnings: Array<RunWarning>;
  /** Why the run failed. */
  error: RunError | null;
  /** The files that the run produced: the first page of its list of artifacts. */
  artifacts: Array<Artifact>;
  /** Whether the list of artifacts has further pages. Left out if this is all of it. */
  more_artifacts?: boolean;
  /** What the run has changed in its `workdir`. Left out if it has no `workdir`. */
  changes?: Changes;
}

/** One execution of a skill. Optional fields are left out if they have no value. */
export interface Run {
  /** The ID of the run. */
  id: string;
  /** `succeeded`, `failed` and `canceled` are final. */
  state: RunState;
  /** The ID of the skill. */
  skill: string;
  /** The version of the skill. */
  skill_version?: string;
  /** True if the skill was uploaded for this run. `skill` is then the ID in the package. */
  skill_uploaded?: boolean;
  /** The engine that executes the run. */
  engine: string;
  /** Whether the run may ask its user. */
  mode: Mode;
  /** The input in one line, without secrets. `summary` in `runner.json` can define it. */
  summary?: string;
  /** Only in the response of `GET /v1/runs/{run_id}`: the input, unless it is larger than about 64 KB. Files are paths, and secrets are `[redacted]`. */
  input?: { [key: string]: Json };
  /** Short texts by name, chosen by the caller. */
  labels?: { [key: string]: string };
  /** The run that this one continues. */
  from_run?: Origin;
  /** The user's folder that the engine works in. */
  workdir?: string;
  /** The policies for its tool calls, each with its `source`, `rules` and `default`. The most restrictive one decides. */
  permissions?: Array<{ [key: string]: Json }>;
  /** The names of its secret variables. */
  env_names?: Array<string>;
  /** The current or last turn, from 1. */
  attempt_number: number;
  /** How the run waits for its user. */
  interactive_profile: Profile;
  /** The question that the run waits for. */
  pending_interaction?: Interaction;
  /** How its last closed question was closed, and by whom. */
  closed_interaction?: ClosedInteraction;
  /** When the wait ends without an answer. Set for sticky runs, and if the engine may then decide. */
  wait_deadline_at?: string;
  /** While the run waits: whether an answer is required. If true, a sticky run fails at its deadline, and any other run waits indefinitely. If false, the engine decides at the deadline. */
  reply_required?: boolean;
  /** While a sticky run waits: the engine process, which keeps its slot. */
  held_process?: HeldProcess;
  /** Who canceled the run, or requested it. */
  canceled_by?: Actor;
  /** Each warning once. */
  warnings: Array<RunWarning>;
  /** Why the run failed. On a waiting run: why it will fail once its process has ended. */
  error?: RunError;
  /** The tokens used so far. */
  usage?: Usage;
  /** When the run was created. */
  created_at: string;
  /** When the run last changed. */
  updated_at: string;
  /** When the first turn started. */
  started_at?: string;
  /** When the run reached its final state. */
  finished_at?: string;
  /** Why a queued run has not started: no free slot, no free slot for its engine, `token_slots`: the runs of its token have as many slots as `quotas.running` allows, it is about to start, no program that executes runs has its engine, `unready`: those that have it start no turns for now, for example because their disk is full, or `usage_limit`: the run is parked until `not_before`. */
  queue_reason?: "slots" | "engine_slots" | "token_slots" | "starting" | "no_worker" | "unready" | "usage_limit";
  /** When a parked run is executed again, unless it is resumed or canceled before. */
  not_before?: string;
  /** The limit of the model provider that a parked run waits for. */
  parked_for?: Limit;
}

/** A skill to run, with its input. */
export interface RunCreate {
  /** The ID of the skill, or `{"upload_id": "…"}`: an uploaded zip of its folder. It is checked like an installed skill, used for this run alone, and deleted with it. */
  skill: string | SkillUpload;
  /** Default: the first installed engine that the skill supports, signed-in ones first. */
  engine?: string | null;
  /** Default: the first of the skill's `execution_modes`. */
  mode?: Mode | null;
  /** Validated against the skill's input schema. Name an uploaded file as `{"upload_id": "…"}`. */
  input?: { [key: string]: Json };
  /** Validated against the skill's parameter schema. */
  parameter?: { [key: string]: Json };
  /** `session_timeout_sec`, `turn_timeout_sec`, `interactive_require_user_reply`, `interactive_profile`, `ask_user_validation`, `repair_attempts`, `on_lost_session`, `model`, `effort`, `warm_sec`. */
  options?: { [key: string]: Json };
  /** Which calls of the engine's tools run, need an approval, or never run: `{rules, default}`, or the name of a ready policy: `careful`, `read-only`, `workspace`. It only adds to those of the settings, the token and the skill. Needs an engine with a `gate`. */
  permissions?: { [key: string]: Json } | string | null;
  /** Start with the files or the session of another run. Requires the scope `read` as well. */
  from_run?: FromRun | null;
  /** A folder on the server's machine for the engine to work in, as an absolute path. It must be one of the `workdirs` of the settings, or below one. No other unfinished run may work there. */
  workdir?: string | null;
  /** Secret variables for the engine's environment, each of 8 characters or more. They are masked in everything that the run shows, and erased when it is over. Reserved names are refused. */
  env?: { [key: string]: string };
  /** Short texts by name, at most 16, to find the run again and to restrict tokens to it. A name has up to 63 letters, digits, `.`, `_` or `-`; a value has up to 200 characters in one line. Default: those of `from_run`, without `mcp_call` and `acp-session`. */
  labels?: { [key: string]: string } | null;
  /** Notified when this run changes its state. */
  webhooks?: Array<WebhookCreate>;
}

/** Why a run failed. */
export interface RunError {
  /** Stable, for programs. */
  code: ErrorCode;
  /** For people: what happened and what to do. */
  message: string;
  /** A more specific code. */
  cause?: ErrorCode;
  /** The engine's own message, with secrets removed. */
  detail?: string;
  /** The limit, if `code` or `cause` is `ENGINE_RATE_LIMITED` and a turn met it. */
  limit?: Limit;
}

/** Runs, newest first. */
export interface RunPage {
  /** At most `limit` items. */
  items: Array<Run>;
  /** Pass it as `cursor` to get the next page. Null on the last page. */
  next_cursor: string | null;
}

/** The state of a run. */
export type RunState = "queued" | "running" | "waiting_user" | "succeeded" | "failed" | "canceled";

/** Something unexpected that did not fail the run. */
export interface RunWarning {
  /** Stable, for programs. */
  code: WarningCode;
  /** For people. */
  message: string;
}

/** A browser that is signed in. */
export interface Session {
  /** Identifies the session when it is ended. Grants no access. */
  id: string;
  /** The name of the token that created it. Revoking the token ends it. */
  token: string;
  /** The browser and system, from its `User-Agent`. */
  browser: string;
  /** The only host name for which it is valid. */
  host: string;
  /** Whether the device was signed in by an invitation, so that it stays signed in. */
  invited: boolean;
  /** Whether this request uses it. */
  current: boolean;
  /** When the user signed in. */
  created_at: string;
  /** When it was last used, accurate to a few minutes. */
  last_seen_at: string;
  /** When it ends unless it is used before then. At most 30 days after the sign-in; for an invited device, `server.device_days`. */
  expires_at: string;
}

/** Browser sessions, most recently used first. */
export interface SessionList {
  /** All items. */
  items: Array<Session>;
  /** Always null. */
  next_cursor: null;
}

/** A skill that a run can name. */
export interface Skill {
  /** The name for `POST /v1/runs`. */
  id: string;
  /** The version that new runs use. */
  version: string | null;
  /** Every installed version, newest last. */
  versions: Array<string | null>;
  /** The display name. */
  name: string | null;
  /** What the skill does. */
  description: string | null;
  /** The supported modes. The first is the default. */
  execution_modes: Array<Mode>;
  /** The supported engines. Null: all. */
  engines: Array<string> | null;
  /** False if the skill is in one of the server's skill folders. */
  installed: boolean;
  /** Why the skill cannot be run. Null if it can. */
  problem: string | null;
}

/** A skill with its instructions and schemas. */
export interface SkillDetails {
  /** The name for `POST /v1/runs`. */
  id: string;
  /** The version that new runs use. */
  version: string | null;
  /** Every installed version, newest last. */
  versions: Array<string | null>;
  /** The display name. */
  name: string | null;
  /** What the skill does. */
  description: string | null;
  /** The supported modes. The first is the default. */
  execution_modes: Array<Mode>;
  /** The supported engines. Null: all. */
  engines: Array<string> | null;
  /** False if the skill is in one of the server's skill folders. */
  installed: boolean;
  /** Why the skill cannot be run. Null if it can. */
  problem: string | null;
  /** The text of `SKILL.md`. */
  instructions: string;
  /** What the skill takes and returns. */
  schemas: SkillSchemas;
}

/** A file of a skill. */
export interface SkillFile {
  /** Relative to the skill's folder, with `/` between folders. */
  path: string;
  /** In bytes. */
  size: number;
  /** The SHA-256 of the content. */
  digest: string;
}

/** All files of a skill, by path. */
export interface SkillFileList {
  /** All items. */
  items: Array<SkillFile>;
  /** Always null. */
  next_cursor: null;
}

/** The skills that a run can name, installed ones first. */
export interface SkillList {
  /** All items. */
  items: Array<Skill>;
  /** Always null. */
  next_cursor: null;
}

/** The JSON Schemas of a skill. Null where it has none. */
export interface SkillSchemas {
  /** The schema of `input`. */
  input: { [key: string]: Json } | boolean | null;
  /** The schema of `parameter`. */
  parameter: { [key: string]: Json } | boolean | null;
  /** The schema of `data` in the result. */
  output: { [key: string]: Json } | boolean | null;
}

/** A skill that comes with its run: an uploaded zip of its folder. */
export interface SkillUpload {
  /** The upload. */
  upload_id: string;
}

/** Engine processes. */
export interface Slots {
  /** How many may run at the same time. */
  total: number;
  /** How many slots are in use. */
  taken: number;
}

/** A run that has changed its state, or still waits with the same question. */
export interface StateChange {
  /** The run, as it was right after the change; in a reminder, as it is now. */
  run: Run;
  /** The previous state. Null for a new run. The same as `to` if the run still waits. */
  from: RunState | null;
  /** The new state. */
  to: RunState;
  /** The number of the event. */
  seq: number;
  /** A link to the question of a waiting run, for people: its holder can answer this question without a token, while it is pending. Left out if the server has no `public_url`, or the receiver may not answer. */
  answer_url?: string;
}

/** What happened in the last days. A run counts on the UTC day on which it ended, with the tokens of all its turns, and still counts after it was deleted. Answers of deleted runs do not count. */
export interface Statistics {
  /** The first day. */
  first: string;
  /** The last day: today, in UTC. */
  last: string;
  /** Every day, oldest first. */
  days: Array<DayStats>;
  /** By skill, most runs first; at most 50. */
  skills: Array<NamedStats>;
  /** By engine, most runs first; at most 50. */
  engines: Array<NamedStats>;
  /** How long questions waited. */
  answers: AnswerStats;
  /** The runs that are not over now. */
  unfinished: Unfinished;
}

/** A token, without its text. */
export interface Token {
  /** Whose token it is. */
  name: string;
  /** Whether it is the server's own token, which allows everything and cannot be revoked. */
  main: boolean;
  /** What it allows; `admin` allows everything. */
  scopes: Array<AccessScope>;
  /** If there are any, it is restricted to runs that have all of them. */
  labels: { [key: string]: string };
  /** Null for the server's own token. */
  created_at: string | null;
  /** Null: never. An expired token is listed until it is revoked. */
  expires_at: string | null;
  /** Whether it has expired. */
  expired: boolean;
  /** Null: never. After a crash of the server some minutes may be missing. */
  last_used_at: string | null;
  /** `api`: by a program with the token. `page`: by a browser that was signed in with it. `mcp`, `acp`: by a client of that protocol. */
  last_used_via: "api" | "page" | "mcp" | "acp" | null;
  /** How many browsers and devices are signed in with it. */
  sessions: number;
}

/** A token for a person or a program. */
export interface TokenCreate {
  /** Whose token it is. It starts with a letter or digit, and has at most 100 characters: letters, digits, '.', '_' and '-'; 'main' and 'askback' are reserved. Shown with everything that its holder does. */
  name: string;
  /** What it allows; `admin` allows everything. */
  scopes: Array<AccessScope>;
  /** Restrict the token to runs that have all of these labels. Not with `admin`. Default: all runs. */
  labels?: { [key: string]: string };
  /** A policy for the tool calls of the runs that it creates, as in `POST /v1/runs`. Runs can only restrict more. */
  permissions?: { [key: string]: Json } | string | null;
  /** When the token expires, in seconds. Default: never. */
  expires_in_sec?: number | null;
}

/** The server's own token, then all others, oldest first. */
export interface TokenList {
  /** All items. */
  items: Array<Token>;
  /** Always null. */
  next_cursor: null;
}

/** The runs that are not over. */
export interface Unfinished {
  /** How many. */
  queued: number;
  /** How many. */
  running: number;
  /** How many. */
  waiting_user: number;
  /** When the oldest pending question was asked. */
  oldest_asked_at: string | null;
}

/** An uploaded file. */
export interface Upload {
  /** Use it in `input` or in a reply as `{"upload_id": "…"}`. */
  upload_id: string;
  /** The name of the file, made safe for every file system. */
  name: string;
  /** In bytes. */
  size: number;
}

/** The tokens that the engine used, in all turns. */
export interface Usage {
  /** Tokens sent to the model. */
  input_tokens: number;
  /** Tokens that the model produced. */
  output_tokens: number;
  /** Input tokens that came from a cache. Null if the engine does not report it. */
  cached_tokens: number | null;
  /** All tokens, as the engine counts them. */
  total_tokens: number;
  /** Output tokens of the model's reasoning. Null if the engine does not report it. */
  reasoning_tokens: number | null;
  /** The cost in dollars, as the engine reports it. Null if it does not: Askback has no prices. */
  cost_usd: number | null;
  /** The same for each model. */
  by_model: Array<ModelUsage>;
}

/** By what usage is added up. */
export type UsageKey = "day" | "engine" | "label" | "model" | "skill" | "token";

/** What the turns of some days have used. */
export interface UsageReport {
  /** By what it is added up. */
  by: UsageKey;
  /** The first day. */
  first: string;
  /** The last day: today, in UTC. */
  last: string;
  /** The sum of all turns. */
  total: UsageSum;
  /** Days in their order, anything else by input tokens, most first. */
  items: Array<UsageSum>;
}

/** What turns have used. Null: no engine has reported it. */
export interface UsageSum {
  /** The day, engine, model, skill, token, or label as `name=value`. Null: the engine does not name its model, the run was created without a token, or it is the sum of all. */
  name: string | null;
  /** How many turns. One with several models counts for the first. */
  turns: number;
  /** Tokens sent to the model, with cached ones. */
  input_tokens: number | null;
  /** Tokens that the model produced, with its reasoning. */
  output_tokens: number | null;
  /** Input tokens that came from a cache. */
  cached_tokens: number | null;
  /** Output tokens of the model's reasoning. */
  reasoning_tokens: number | null;
  /** The cost in dollars, as engines report it. */
  cost_usd: number | null;
  /** For how many of the turns the cost is known. */
  turns_with_cost: number;
}

/** The versions of one artifact, oldest first. */
export interface VersionList {
  /** All items. */
  items: Array<ArtifactVersion>;
  /** Always null. */
  next_cursor: null;
}

/** The channel through which somebody reached Askback. */
export type Via = "api" | "page" | "link" | "cli" | "telegram" | "mcp" | "acp" | "askback";

/** What a run may report without failing. */
export type WarningCode = "INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER" | "ASK_USER_PAYLOAD_INVALID" | "AUTO_RUN_ASKED" | "ENGINE_LINE_TRUNCATED" | "SIGN_IN_CHANGE_REFUSED" | "ASSISTANT_TEXT_TRUNCATED" | "EVENTS_TRUNCATED" | "QUESTION_TRUNCATED" | "RESPONSE_SCHEMA_IGNORED" | "PERMISSION_NOT_ASKED" | "EFFORT_IGNORED" | "CONTEXT_REBUILT" | "ENGINE_START_DELAYED" | "WORKDIR_TURN_REPEATED" | "WORKDIR_GIT_CREATED" | "ARTIFACTS_NOT_COLLECTED" | "FILES_NOT_KEPT";

/** A URL that is notified when the run changes its state. */
export interface WebhookCreate {
  /** Where to send the notification. */
  url: string;
  /** `standard`: the key of the Standard Webhooks signature. `ntfy`: the access token. */
  secret?: string | null;
  /** The format of the request: `standard`, `ntfy` or `slack`. Others are refused in a request. */
  kind?: WebhookKind;
  /** Only notify about these states. Default: all. */
  states?: Array<RunState> | null;
  /** Whether open questions are notified again, or when. Default: as in the settings; never for `standard`. */
  reminders?: boolean | ReminderCreate | null;
}

/** The format of the message. */
export type WebhookKind = "standard" | "ntfy" | "slack" | "email" | "telegram" | "push";

/** A program that executes runs: a worker, or a server. */
export interface Worker {
  /** Its name, new at every start. */
  name: string;
  /** `server`: it serves the API as well. */
  kind: "worker" | "server";
  /** The name of its machine. */
  host: string;
  /** The id of its process there. */
  pid: number;
  /** Its version of Askback. */
  version: string;
  /** `draining`: it is being stopped and starts no more turns. `unready`: it starts no turns for now, see `problem`. `gone`: it has not been heard of for a while. */
  state: "alive" | "draining" | "unready" | "gone";
  /** For people: `worker.labels` of its settings. */
  labels: { [key: string]: string };
  /** Its engine processes. */
  slots: Slots;
  /** The engines whose turns it executes, by name. */
  engines: Array<WorkerEngine>;
  /** When it was started. */
  started_at: string;
  /** Why it starts no turns for now: an error code, such as `DISK_FULL`. */
  problem: string | null;
}

/** An engine as one worker has it. */
export interface WorkerEngine {
  /** The name for `POST /v1/runs`. */
  name: string;
  /** The version that it reports. */
  version: string | null;
  /** How its runs wait there. */
  interactive_profile: ProfileKind;
  /** Whether it is signed in there. Null if it is unknown. */
  signed_in: boolean | null;
  /** How many of its processes may run there, if it is limited separately. */
  slots: number | null;
  /** How many of its processes run there. */
  taken: number;
}

/** The programs that execute runs, the oldest first. */
export interface WorkerList {
  /** All items. */
  items: Array<Worker>;
  /** Always null. */
  next_cursor: null;
}
