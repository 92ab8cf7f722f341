/** The path of a request from its segments. What a caller names stays one segment, below the collection it is in. */

import { NotFound } from "./errors.js";

const COLLECTIONS = new Map([
  ["runs", { code: "RUN_NOT_FOUND", noun: "run" }],
  ["links", { code: "LINK_NOT_FOUND", noun: "link" }],
  ["artifacts", { code: "ARTIFACT_NOT_FOUND", noun: "artifact" }],
  ["skills", { code: "SKILL_NOT_FOUND", noun: "skill" }],
  ["files", { code: "SKILL_FILE_NOT_FOUND", noun: "file" }],
  ["engines", { code: "ENGINE_NOT_FOUND", noun: "engine" }],
]);
const OF_PATHS = ["artifacts", "files"];

/**
 * Throws `NotFound` for a name that would lead elsewhere: `fetch` resolves `.` and `..`, and the server takes an encoded
 * slash for a slash.
 */
export function pathOf(...segments: string[]): string {
  const wrong = segments.findIndex((segment) => ["", ".", ".."].includes(segment) || segment.includes("/"));
  if (wrong !== -1) {
    throw noSuch(segments, wrong);
  }
  return `/v1/${segments.map(encodeURIComponent).join("/")}`;
}

/** For the name that starts below the nearest collection: a path has several segments, an id has one. */
function noSuch(segments: readonly string[], wrong: number): NotFound {
  const above = segments.slice(0, wrong);
  // The folders of a path may be named like a collection.
  const path = above.findIndex((segment) => OF_PATHS.includes(segment));
  const at = path !== -1 ? path : Math.max(...above.map((segment, index) => (COLLECTIONS.has(segment) ? index : -1)));
  const { code, noun } = COLLECTIONS.get(segments[at] ?? "") ?? { code: "NOT_FOUND", noun: "resource" };
  const name = at === path ? segments.slice(at + 1).join("/") : segments[wrong];
  return new NotFound(404, code, `there is no ${noun} '${name}'`);
}
