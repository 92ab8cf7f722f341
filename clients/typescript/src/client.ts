/** The client of one server: every operation of the API as a method. */

import { type Call, Connection, either, type ConnectionOptions } from "./connection.js";
import { WaitTimedOut } from "./errors.js";
import { pathOf } from "./paths.js";
import type {
  AccessScope,
  Action,
  Artifact,
  ArtifactDiff,
  ArtifactVersion,
  AuditEntry,
  Background,
  ClosedQuestion,
  CreatedToken,
  Delivery,
  Engine,
  EngineModels,
  Event,
  Health,
  InboxOrder,
  Interaction,
  Invitation,
  Json,
  Link,
  ListedInvitation,
  ListedLink,
  PendingQuestion,
  Result,
  Run,
  RunCreate,
  RunState,
  Skill,
  SkillDetails,
  SkillFile,
  Statistics,
  Token,
  Upload,
  UsageKey,
  UsageReport,
  Worker,
} from "./schema.js";
import { decoded, messages, Patience, PATIENCE_MS, Position } from "./stream.js";

export interface CallOptions {
  /** Cancels the call; the promise is then rejected with the reason of the signal. */
  signal?: AbortSignal;
}

export interface CreateOptions extends CallOptions {
  /** A retry with the same key returns the same run. */
  idempotencyKey?: string;
}

export interface ListOptions extends CallOptions {
  state?: RunState;
  skill?: string;
  engine?: string;
  /** Only runs with all of these labels. */
  labels?: Labels;
  pageSize?: number;
}

/** Short texts by name, such as `{ customer: "4711" }`. */
export type Labels = Readonly<Record<string, string>>;

export interface LabelOptions extends CallOptions {
  /** Only what belongs to runs with all of these labels. */
  labels?: Labels;
}

export interface InboxOptions extends CallOptions {
  skill?: string;
  engine?: string;
  /** Only questions with these words. */
  words?: string;
  order?: InboxOrder;
  /** Only questions of runs with all of these labels. */
  labels?: Labels;
}

export interface AuditOptions extends CallOptions {
  actor?: string;
  action?: Action;
  runId?: string;
  /** From this time on. */
  since?: Date;
  /** Before this time. */
  until?: Date;
}

export interface FollowOptions extends CallOptions {
  /** Start after the event with this number; 0 means all events. */
  after?: number;
  /** How long a lost connection is retried, in milliseconds. */
  patienceMs?: number;
}

export interface WaitOptions extends CallOptions {
  /** Reject with `WaitTimedOut` after this time, in milliseconds. 0 or more; without it there is no limit. */
  timeoutMs?: number;
}

interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** A timer with a longer time would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

const FINAL: ReadonlySet<RunState> = new Set(["succeeded", "failed", "canceled"]);

/** Whether the run is over. */
export function isFinal(run: Run): boolean {
  return FINAL.has(run.state);
}

/** Whether the run waits for its user or is over. */
export function isSettled(run: Run): boolean {
  return isFinal(run) || run.state === "waiting_user";
}

export class Client {
  readonly #connection: Connection;

  constructor(url: string, options: ConnectionOptions = {}) {
    this.#connection = new Connection(url, options);
  }

  get url(): string {
    return this.#connection.url;
  }

  // Runs.

  async createRun(run: RunCreate, options: CreateOptions = {}): Promise<Run> {
    const { idempotencyKey, signal } = options;
    const headers: Record<string, string> = idempotencyKey === undefined ? {} : { "Idempotency-Key": idempotencyKey };
    return await this.#connection.json({ method: "POST", path: "/v1/runs", json: run as unknown as Json, headers, signal });
  }

  async run(runId: string, options: CallOptions = {}): Promise<Run> {
    return await this.#get(runPath(runId), options);
  }

  /** Runs, newest first. Pages are fetched as needed. */
  runs(options: ListOptions = {}): AsyncGenerator<Run, void, undefined> {
    const { state, skill, engine, labels, pageSize, signal } = options;
    return this.#items("/v1/runs", { state, skill, engine, label: labelTexts(labels), limit: pageSize }, signal);
  }

  async cancel(runId: string, options: CallOptions = {}): Promise<Run> {
    return await this.#connection.json({ method: "POST", path: runPath(runId, "cancel"), ...options });
  }

  /** Continue a run now that waits for a limit. */
  async resume(runId: string, options: CallOptions = {}): Promise<Run> {
    return await this.#connection.json({ method: "POST", path: runPath(runId, "resume"), ...options });
  }

  /** Delete a run with everything that belongs to it. Rejects with `Conflict` until it is over. */
  async deleteRun(runId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.send({ method: "DELETE", path: runPath(runId), ...options });
  }

  /** The result of the run. Rejects with `Conflict` until it is over. */
  async result(runId: string, options: CallOptions = {}): Promise<Result> {
    return await this.#get(runPath(runId, "result"), options);
  }

  // Questions.

  /** The pending question. Rejects with `NotFound` if there is none. */
  async interaction(runId: string, options: CallOptions = {}): Promise<Interaction> {
    return await this.#get(runPath(runId, "interaction"), options);
  }

  async reply(runId: string, interactionId: string, response: Json, options: CallOptions = {}): Promise<Run> {
    const json = { interaction_id: interactionId, response };
    return await this.#connection.json({ method: "POST", path: runPath(runId, "interaction", "reply"), json, ...options });
  }

  async interactions(runId: string, options: CallOptions = {}): Promise<Interaction[]> {
    return (await this.#get<Page<Interaction>>(runPath(runId, "interactions"), options)).items;
  }

  /** What led to the pending question: the engine's last messages, changed files, and earlier answers. */
  async background(runId: string, options: CallOptions = {}): Promise<Background> {
    return await this.#get(runPath(runId, "interaction", "background"), options);
  }

  /** A link to the pending question, for a user without a token. `recipient` is the name in `answered_with`. */
  async link(
    runId: string,
    expiresInSec = 86_400,
    options: CallOptions & { recipient?: string } = {},
  ): Promise<Link> {
    const { recipient, ...rest } = options;
    const json = { expires_in_sec: expiresInSec, ...(recipient === undefined ? {} : { recipient }) };
    return await this.#connection.json({ method: "POST", path: runPath(runId, "interaction", "link"), json, ...rest });
  }

  /** The valid links to the pending question, without their URLs. */
  async links(runId: string, options: CallOptions = {}): Promise<ListedLink[]> {
    return (await this.#get<Page<ListedLink>>(runPath(runId, "interaction", "links"), options)).items;
  }

  /** Revoke every link to the pending question. */
  async revokeLinks(runId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.send({ method: "DELETE", path: runPath(runId, "interaction", "links"), ...options });
  }

  async revokeLink(runId: string, linkId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.send({ method: "DELETE", path: runPath(runId, "interaction", "links", linkId), ...options });
  }

  /** The pending questions of all runs, oldest first; with `order: "deadline"` the nearest deadline first. */
  inbox(options: InboxOptions = {}): AsyncGenerator<PendingQuestion, void, undefined> {
    const { skill, engine, words, order, labels, signal } = options;
    return this.#items("/v1/inbox", { skill, engine, q: words, order, label: labelTexts(labels) }, signal);
  }

  /** The audit log, newest first. Requires the scope `admin`. */
  audit(options: AuditOptions = {}): AsyncGenerator<AuditEntry, void, undefined> {
    const { actor, action, runId, since, until, signal } = options;
    const query = { actor, action, run_id: runId, since: since?.toISOString(), until: until?.toISOString() };
    return this.#items("/v1/audit", query, signal);
  }

  /** The questions of all runs that are no longer pending, the last closed first. */
  closedQuestions(options: LabelOptions = {}): AsyncGenerator<ClosedQuestion, void, undefined> {
    return this.#items("/v1/interactions", { label: labelTexts(options.labels) }, options.signal);
  }

  // Events.

  /** Every event exactly once, past and new ones, until the run is over. Reconnects if the connection is lost. */
  async *events(runId: string, options: FollowOptions = {}): AsyncGenerator<Event, void, undefined> {
    const { after = 0, patienceMs = PATIENCE_MS, signal } = options;
    const position = new Position(after);
    const patience = new Patience(patienceMs);
    for (;;) {
      try {
        for await (const event of this.#stream(runId, position.after, signal)) {
          patience.received();
          if (position.isNew(event)) {
            yield event;
          }
        }
        // The end of a stream does not prove that the run is over, nor that every event has arrived.
        if (isFinal(await this.run(runId, options))) {
          yield* await this.#rest(runId, position, signal);
          return;
        }
      } catch (error) {
        patience.lost(error);
      }
      await patience.pause(signal);
    }
  }

  async *#stream(runId: string, after: number, signal: AbortSignal | undefined): AsyncGenerator<Event, void, undefined> {
    const headers = { Accept: "text/event-stream", "Last-Event-ID": String(after) };
    const call: Call = { method: "GET", path: runPath(runId, "events"), headers, signal };
    for await (const message of messages(this.#connection, call)) {
      yield decoded<Event>(message);
    }
  }

  async #rest(runId: string, position: Position, signal: AbortSignal | undefined): Promise<Event[]> {
    const found: Event[] = [];
    for await (const event of this.#items<Event>(runPath(runId, "events"), { after: position.after }, signal, "after")) {
      if (position.isNew(event)) {
        found.push(event);
      }
    }
    return found;
  }

  /** The events so far. */
  async *pastEvents(runId: string, options: { after?: number } & CallOptions = {}): AsyncGenerator<Event, void, undefined> {
    yield* this.#items(runPath(runId, "events"), { after: options.after ?? 0 }, options.signal, "after");
  }

  /** Wait until the run asks its user or is over. */
  async wait(runId: string, options: WaitOptions = {}): Promise<Run> {
    const { timeoutMs = Infinity, signal } = options;
    if (!(timeoutMs >= 0)) {
      throw new RangeError(`timeoutMs must be 0 or more, not ${timeoutMs}`);
    }
    const limit = new AbortController();
    const late = (): void => limit.abort(new WaitTimedOut(runId, timeoutMs));
    const timer = timeoutMs === Infinity ? undefined : setTimeout(late, Math.min(timeoutMs, MAX_TIMER_MS));
    try {
      return await this.#settled(runId, either(limit.signal, signal));
    } finally {
      clearTimeout(timer);
    }
  }

  async #settled(runId: string, signal: AbortSignal): Promise<Run> {
    let run = await this.run(runId, { signal });
    if (isSettled(run)) {
      return run;
    }
    for await (const event of this.events(runId, { signal })) {
      if (event.type === "run.state") {
        run = await this.run(runId, { signal });
        if (isSettled(run)) {
          break;
        }
      }
    }
    return run;
  }

  // Files.

  /** Upload a file. Use `reference(upload)` in the input of a run, or in a reply. */
  async upload(file: Blob, name: string, options: CallOptions = {}): Promise<Upload> {
    const form = new FormData();
    form.append("file", file, name);
    return await this.#connection.json({ method: "POST", path: "/v1/uploads", form, ...options });
  }

  async artifacts(runId: string, options: CallOptions = {}): Promise<Artifact[]> {
    const found: Artifact[] = [];
    for await (const each of this.#items<Artifact>(runPath(runId, "artifacts"), {}, options.signal)) {
      found.push(each);
    }
    return found;
  }

  /** An artifact as it was at the end of each turn that changed it. */
  async versions(runId: string, path: string, options: CallOptions = {}): Promise<ArtifactVersion[]> {
    const call: Call = { method: "GET", path: runPath(runId, "versions"), query: { path }, ...options };
    return (await this.#connection.json<Page<ArtifactVersion>>(call)).items;
  }

  /** What has changed in a text file since the end of a turn (0: before the first), until the end of `to`, or now. */
  async diff(runId: string, path: string, from: number, to?: number, options: CallOptions = {}): Promise<ArtifactDiff> {
    const query = { path, from, to: to ?? "now" };
    return await this.#connection.json({ method: "GET", path: runPath(runId, "diff"), query, ...options });
  }

  /** One artifact. */
  async download(runId: string, path: string, options: CallOptions = {}): Promise<Blob> {
    const below = runPath(runId, "artifacts", ...path.split("/"));
    return await this.#connection.blob({ method: "GET", path: below, ...options });
  }

  /** All artifacts as a zip. */
  async bundle(runId: string, options: CallOptions = {}): Promise<Blob> {
    return await this.#connection.blob({ method: "GET", path: runPath(runId, "bundle"), ...options });
  }

  // Skills, engines, the server.

  async skills(options: CallOptions = {}): Promise<Skill[]> {
    return (await this.#get<Page<Skill>>("/v1/skills", options)).items;
  }

  async skill(skillId: string, options: CallOptions = {}): Promise<SkillDetails> {
    return await this.#get(pathOf("skills", skillId), options);
  }

  /** The files of the version that new runs use, with their digests. */
  async skillFiles(skillId: string, options: CallOptions = {}): Promise<SkillFile[]> {
    return (await this.#get<Page<SkillFile>>(pathOf("skills", skillId, "files"), options)).items;
  }

  /** One file of a skill. */
  async downloadSkillFile(skillId: string, path: string, options: CallOptions = {}): Promise<Blob> {
    const below = pathOf("skills", skillId, "files", ...path.split("/"));
    return await this.#connection.blob({ method: "GET", path: below, ...options });
  }

  /** Install a skill from the zip of its folder. */
  async installSkill(zip: Blob, options: CallOptions = {}): Promise<Skill> {
    const form = new FormData();
    form.append("file", zip, "skill.zip");
    return await this.#connection.json({ method: "POST", path: "/v1/skills", form, ...options });
  }

  /** Delete a skill. Runs that use it are not affected. */
  async deleteSkill(skillId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.send({ method: "DELETE", path: pathOf("skills", skillId), ...options });
  }

  async engines(options: CallOptions = {}): Promise<Engine[]> {
    return (await this.#get<Page<Engine>>("/v1/engines", options)).items;
  }

  /** The programs that execute runs, with their engines and slots. */
  async workers(options: CallOptions = {}): Promise<Worker[]> {
    return (await this.#get<Page<Worker>>("/v1/workers", options)).items;
  }

  /** The models that a run on this engine can name. `models` is null if the engine cannot list them. */
  async models(engine: string, options: CallOptions = {}): Promise<EngineModels> {
    return await this.#get(pathOf("engines", engine, "models"), options);
  }

  /** Deliveries to webhooks, done and due, of one run or of all runs. */
  async *deliveries(runId?: string, options: CallOptions = {}): AsyncGenerator<Delivery, void, undefined> {
    const path = runId === undefined ? "/v1/deliveries" : runPath(runId, "deliveries");
    yield* this.#items(path, {}, options.signal);
  }

  /** The server's own token and all others, with their last use. Requires the scope `admin`. */
  async tokens(options: CallOptions = {}): Promise<Token[]> {
    return (await this.#get<Page<Token>>("/v1/tokens", options)).items;
  }

  /** Create a token for a person or a program. Its text is only available here. */
  async createToken(
    name: string,
    scopes: AccessScope[],
    options: { labels?: Record<string, string>; expiresInSec?: number } & CallOptions = {},
  ): Promise<CreatedToken> {
    const { expiresInSec, labels = {}, ...rest } = options;
    const json = { name, scopes, labels, ...(expiresInSec === undefined ? {} : { expires_in_sec: expiresInSec }) };
    return await this.#connection.json({ method: "POST", path: "/v1/tokens", json, ...rest });
  }

  /** Revoke a token at once, with its sessions, links and invitations. */
  async revokeToken(name: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.send({ method: "DELETE", path: pathOf("tokens", name), ...options });
  }

  /** The invitations that were not used yet, without their URLs. */
  async invitations(options: CallOptions = {}): Promise<ListedInvitation[]> {
    return (await this.#get<Page<ListedInvitation>>("/v1/invitations", options)).items;
  }

  /** A URL that signs one device in as the person of the token, once. */
  async invite(token: string, expiresInSec = 86_400, options: CallOptions = {}): Promise<Invitation> {
    const json = { token, expires_in_sec: expiresInSec };
    return await this.#connection.json({ method: "POST", path: "/v1/invitations", json, ...options });
  }

  async revokeInvitation(invitationId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.send({ method: "DELETE", path: pathOf("invitations", invitationId), ...options });
  }

  /** Runs, failures and tokens of the last days, and what waits now. */
  async statistics(days = 30, options: LabelOptions = {}): Promise<Statistics> {
    const { labels, ...rest } = options;
    const query = { days, label: labelTexts(labels) };
    return await this.#connection.json({ method: "GET", path: "/v1/stats", query, ...rest });
  }

  /** Tokens and costs of the last days, by day, engine, model, skill, token or label. */
  async usage(by: UsageKey = "day", days = 30, options: LabelOptions = {}): Promise<UsageReport> {
    const { labels, ...rest } = options;
    const query = { by, days, label: labelTexts(labels) };
    return await this.#connection.json({ method: "GET", path: "/v1/usage", query, ...rest });
  }

  /** The state of the server. Requires no token. */
  async health(options: CallOptions = {}): Promise<Health> {
    return await this.#connection.json({ method: "GET", path: "/healthz", accepts: [503], ...options });
  }

  async #get<T>(path: string, options: CallOptions): Promise<T> {
    const { signal } = options;
    return await this.#connection.json({ method: "GET", path, signal });
  }

  async *#items<T>(
    path: string,
    query: NonNullable<Call["query"]>,
    signal: AbortSignal | undefined,
    cursorName = "cursor",
  ): AsyncGenerator<T, void, undefined> {
    let cursor: string | null = null;
    do {
      const more: Record<string, string> = cursor === null ? {} : { [cursorName]: cursor };
      const page: Page<T> = await this.#connection.json({ method: "GET", path, query: { ...query, ...more }, signal });
      yield* page.items;
      cursor = page.next_cursor;
    } while (cursor !== null);
  }
}

/** What names an upload in the input of a run, or in a reply. */
export function reference(upload: Upload): { upload_id: string } {
  return { upload_id: upload.upload_id };
}

function labelTexts(labels: Labels = {}): string[] {
  return Object.entries(labels).map(([name, value]) => `${name}:${value}`);
}

function runPath(runId: string, ...below: string[]): string {
  return pathOf("runs", runId, ...below);
}
