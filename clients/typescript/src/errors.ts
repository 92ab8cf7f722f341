/**
 * The errors of the client.
 *
 * CallFailed
 * ├── ServerUnreachable    the connection failed or was lost
 * ├── WaitTimedOut         the run neither asked nor ended in time
 * ├── ResponseUnreadable   the response is not from an Askback server
 * └── Refused              an error response: `status`, `code`, `message`, `problems`, `answeredWith`
 *     ├── Unauthorized     401: no valid token
 *     ├── Forbidden        403: the token lacks a scope
 *     ├── NotFound         404
 *     ├── Conflict         409: not possible in the current state
 *     └── ServerFault      5xx: the server has a problem
 */

import type { Actor, Problem } from "./schema.js";

export class CallFailed extends Error {
  override name = "CallFailed";
}

export class ServerUnreachable extends CallFailed {
  override name = "ServerUnreachable";

  constructor(
    readonly url: string,
    reason: string,
    options?: ErrorOptions,
  ) {
    super(`cannot reach the server at ${url}: ${reason}`, options);
  }
}

export class WaitTimedOut extends CallFailed {
  override name = "WaitTimedOut";

  constructor(
    readonly runId: string,
    readonly timeoutMs: number,
  ) {
    super(`stopped waiting for run ${runId} after ${timeoutMs} ms; wait again, or cancel it`);
  }
}

export class ResponseUnreadable extends CallFailed {
  override name = "ResponseUnreadable";
}

/** The server refused the call. `code` is stable, `problems` lists every mistake of the request. */
export class Refused extends CallFailed {
  override name = "Refused";

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problems: readonly string[] = [],
    /** Who closed the question before, if that is why the call was refused. */
    readonly answeredWith: Actor | null = null,
  ) {
    super(message);
  }
}

export class Unauthorized extends Refused {
  override name = "Unauthorized";
}

export class Forbidden extends Refused {
  override name = "Forbidden";
}

export class NotFound extends Refused {
  override name = "NotFound";
}

export class Conflict extends Refused {
  override name = "Conflict";
}

export class ServerFault extends Refused {
  override name = "ServerFault";
}

const KINDS: Record<number, typeof Refused> = { 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict };

/** The error for a response whose status is not a success. */
export async function refusal(response: Response, call: string): Promise<Refused> {
  const Kind = response.status >= 500 ? ServerFault : (KINDS[response.status] ?? Refused);
  const problem = await readProblem(response);
  if (problem === null) {
    const message = `${call} returned status ${response.status}, not from an Askback server`;
    return new Kind(response.status, "NOT_ASKBACK", message);
  }
  return new Kind(response.status, problem.code, problem.detail, problem.problems ?? [], problem.answered_with ?? null);
}

async function readProblem(response: Response): Promise<Problem | null> {
  try {
    const problem: unknown = JSON.parse(await response.text());
    return isProblem(problem) ? problem : null;
  } catch {
    return null;
  }
}

function isProblem(value: unknown): value is Problem {
  return typeof value === "object" && value !== null && "code" in value && "detail" in value;
}
