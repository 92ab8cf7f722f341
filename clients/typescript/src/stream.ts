/** Event streams (SSE): parsing them, and following a run across lost connections. */

import { either, unreachable, type Call, type Connection } from "./connection.js";
import { type CallFailed, ResponseUnreadable, ServerFault, ServerUnreachable } from "./errors.js";
import type { Event } from "./schema.js";

/** A server sends a heartbeat every 15 seconds; after this time without one it is considered lost. */
const SILENCE_MS = 45_000;
const MIN_DELAY_MS = 50;
const MAX_DELAY_MS = 2_000;
export const PATIENCE_MS = 60_000;

/** Splits a stream of text into the data of its messages. Comments, names and ids are dropped: the data has them, too. */
export class MessageParser {
  #rest = "";
  #data: string[] = [];

  /** The messages that are complete with this text. */
  feed(text: string): string[] {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#line(line.replace(/\r$/, "")));
  }

  #line(line: string): string[] {
    if (line === "") {
      const message = this.#data.join("\n");
      const complete = this.#data.length > 0 ? [message] : [];
      this.#data = [];
      return complete;
    }
    if (line.startsWith("data:")) {
      this.#data.push(line.slice(5).replace(/^ /, ""));
    }
    return [];
  }
}

/** The messages of one connection, until it ends. A silent one is lost. */
export async function* messages(connection: Connection, call: Call): AsyncGenerator<string, void, undefined> {
  const silence = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const listen = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(new ServerUnreachable(connection.url, "it is silent")), SILENCE_MS);
  };
  try {
    const response = await connection.send({ ...call, signal: either(silence.signal, call.signal) });
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    const parser = new MessageParser();
    listen();
    for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
      listen();
      yield* parser.feed(decoder.decode(part.value, { stream: true }));
    }
  } catch (error) {
    call.signal?.throwIfAborted();
    silence.signal.throwIfAborted();
    throw error instanceof TypeError ? unreachable(connection.url, error) : error;
  } finally {
    clearTimeout(timer);
    // Also when the consumer stops early: the connection is closed.
    silence.abort();
  }
}

/** Decode the data of a message. */
export function decoded<T>(data: string): T {
  try {
    return JSON.parse(data) as T;
  } catch {
    throw new ResponseUnreadable("cannot decode an event: it is not JSON");
  }
}

/** How a follower behaves on lost connections: how long it waits before each attempt, and when it gives up. */
export class Patience {
  #connectedOnce = false;
  #lostAt: number | null = null;
  #delayMs = MIN_DELAY_MS;

  constructor(readonly patienceMs: number) {}

  received(): void {
    this.#connectedOnce = true;
    this.#lostAt = null;
    this.#delayMs = MIN_DELAY_MS;
  }

  /** Throws the error if it is no lost connection, if there was never one, or if it was lost for too long. */
  lost(error: unknown): void {
    if (!(error instanceof ServerUnreachable || error instanceof ServerFault)) {
      throw error;
    }
    this.#lostAt ??= Date.now();
    if (!this.#connectedOnce || Date.now() - this.#lostAt > this.patienceMs) {
      throw error as CallFailed;
    }
  }

  /** Wait before the next attempt: longer each time that nothing was received. */
  async pause(signal: AbortSignal | undefined): Promise<void> {
    const delayMs = this.#delayMs;
    this.#delayMs = Math.min(2 * delayMs, MAX_DELAY_MS);
    await sleep(delayMs, signal);
  }
}

async function sleep(delayMs: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve) => {
    const timer = setTimeout(done, delayMs);
    function done(): void {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    }
    signal?.addEventListener("abort", done);
  });
  signal?.throwIfAborted();
}

/** Keeps the number of the last event, so that each event is seen exactly once. */
export class Position {
  constructor(public after: number) {}

  isNew(event: Event): boolean {
    if (event.seq <= this.after) {
      return false;
    }
    this.after = event.seq;
    return true;
  }
}
