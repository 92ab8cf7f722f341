/** Requests to one server: the token, time limits, and errors as typed values. Knows no operation of the API. */

import { refusal, ResponseUnreadable, ServerUnreachable } from "./errors.js";
import type { Json } from "./schema.js";

export interface ConnectionOptions {
  /** The server's token, or one from `askback tokens create`. */
  token?: string;
  /** How long the server may take to respond, in milliseconds. Does not limit uploads, downloads and event streams. */
  timeoutMs?: number;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
}

export interface Call {
  method: "GET" | "POST" | "DELETE";
  path: string;
  /** A list is sent as a parameter that is repeated. */
  query?: Record<string, string | number | readonly string[] | undefined>;
  headers?: Record<string, string>;
  json?: Json;
  form?: FormData;
  /** Cancels the call. */
  signal?: AbortSignal | undefined;
  /** Statuses other than 2xx whose body is returned, too. */
  accepts?: readonly number[];
}

const TIMEOUT_MS = 30_000;

export class Connection {
  readonly url: string;
  readonly #token: string | undefined;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;

  constructor(url: string, options: ConnectionOptions = {}) {
    this.url = url.replace(/\/+$/, "");
    this.#token = options.token;
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    // A browser's fetch must be called as a function of its window.
    this.#fetch = options.fetch ?? ((...words) => fetch(...words));
  }

  /** The decoded body of the response. */
  async json<T>(call: Call): Promise<T> {
    const response = await this.send(call);
    const text = await this.#reading(call, () => response.text());
    try {
      return JSON.parse(text) as T;
    } catch {
      throw new ResponseUnreadable(`${call.method} ${call.path}: the response is not JSON`);
    }
  }

  /** The body of the response as a file in memory. */
  async blob(call: Call): Promise<Blob> {
    const response = await this.send(call);
    return await this.#reading(call, () => response.blob());
  }

  /** The response, once its headers are there. Throws `Refused` for an error status. */
  async send(call: Call): Promise<Response> {
    const limit = new AbortController();
    const late = new ServerUnreachable(this.url, `no response within ${this.#timeoutMs} ms`);
    const timer = call.form ? undefined : setTimeout(() => limit.abort(late), this.#timeoutMs);
    const signal = either(limit.signal, call.signal);
    try {
      const request = { ...this.#request(call), signal };
      const response = await this.#reading(call, () => this.#fetch(this.#address(call), request));
      if (!response.ok && !call.accepts?.includes(response.status)) {
        throw await refusal(response, `${call.method} ${call.path}`);
      }
      return response;
    } catch (error) {
      throw limit.signal.reason === late ? late : error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** A failure of the network as `ServerUnreachable`; the caller's own abort as its reason. */
  async #reading<T>(call: Call, read: () => Promise<T>): Promise<T> {
    try {
      return await read();
    } catch (error) {
      call.signal?.throwIfAborted();
      throw unreachable(this.url, error);
    }
  }

  #address(call: Call): string {
    const given = Object.entries(call.query ?? {}).filter(([, value]) => value !== undefined);
    const query = new URLSearchParams(given.flatMap(([name, value]) => [value].flat().map((each) => [name, String(each)])));
    return `${this.url}${call.path}${query.size > 0 ? `?${query}` : ""}`;
  }

  #request(call: Call): RequestInit {
    const headers: Record<string, string> = { ...call.headers };
    if (this.#token !== undefined) {
      headers["Authorization"] = `Bearer ${this.#token}`;
    }
    // The token alone gives access: no cookie of the page takes part.
    const request: RequestInit = { method: call.method, headers, credentials: "omit" };
    if (call.json !== undefined) {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(call.json);
    } else if (call.form !== undefined) {
      request.body = call.form;
    }
    return request;
  }
}

/** A signal that is aborted with the first of the two. */
export function either(own: AbortSignal, given: AbortSignal | undefined): AbortSignal {
  return given === undefined ? own : AbortSignal.any([own, given]);
}

/** What the network reported, with the cause that Node hides in `cause`. */
export function unreachable(url: string, error: unknown): ServerUnreachable {
  if (error instanceof ServerUnreachable) {
    return error;
  }
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const reason = cause instanceof Error ? cause.message || cause.name : String(cause);
  return new ServerUnreachable(url, reason, { cause: error });
}
