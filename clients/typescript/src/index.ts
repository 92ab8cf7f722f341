export * from "./client.js";
export type { ConnectionOptions } from "./connection.js";
export {
  CallFailed,
  Conflict,
  Forbidden,
  NotFound,
  Refused,
  ResponseUnreadable,
  ServerFault,
  ServerUnreachable,
  Unauthorized,
  WaitTimedOut,
} from "./errors.js";
export type * from "./schema.js";
