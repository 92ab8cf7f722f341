// Calls to the API with the page's cookie. An error is a Problem whose message can be shown.

import { known, language, t } from "./translations.js";

const SERVER_LANGUAGE = "en";

/** `problems` are the mistakes in the request: {path, code, message, line}, where `line` is for people. */
export class Problem extends Error {
  constructor(status, code, message, problems = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.problems = problems;
  }
}

/** @returns {Promise<any>} the JSON at that address */
export function get(path) {
  return call(path, { headers: { Accept: "application/json" } });
}

/** Send JSON. */
export function post(path, body, more = {}) {
  const headers = { Accept: "application/json", ...more };
  if (body === undefined) return call(path, { method: "POST", headers });
  headers["Content-Type"] = "application/json";
  return call(path, { method: "POST", headers, body: JSON.stringify(body) });
}

/** @returns {Promise<{upload_id: string, name: string, size: number}>} */
export function upload(file, path = "/v1/uploads") {
  const form = new FormData();
  form.append("file", file);
  return call(path, { method: "POST", body: form, headers: { Accept: "application/json" } });
}

export function remove(path) {
  return call(path, { method: "DELETE", headers: { Accept: "application/json" } });
}

async function call(path, request) {
  let answer;
  try {
    answer = await fetch(path, { ...request, credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new Problem(0, "OFFLINE", t("frame.offline"));
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer.status === 204 ? null : answer.json();
}

async function problemOf(answer) {
  if (answer.status === 401) return new Problem(401, "UNAUTHORIZED", t("frame.signed_out"));
  try {
    const body = await answer.json();
    if (body.code === "TOO_MANY_FAILED_SIGN_INS") return new Problem(401, "UNAUTHORIZED", t("frame.signed_out"));
    return new Problem(answer.status, body.code, inOurLanguage(body), mistakes(body));
  } catch {
    return new Problem(answer.status, "UNKNOWN", t("frame.failed", { status: answer.status }));
  }
}

function mistakes({ problems = [], errors = [] }) {
  return problems.map((line, place) => ({ line, path: [], message: line, ...errors[place] }));
}

/** The server explains a refusal in English. In another language, the meaning of its code comes first. */
function inOurLanguage({ code, detail }) {
  const key = `refusal.${code}`;
  if (language === SERVER_LANGUAGE || !known(key)) return detail;
  return t("frame.refused", { meaning: t(key), detail });
}
