// The deadline of a question: a countdown, and what happens at its end.

import { make } from "./elements.js";
import { countdown, untilTime } from "./time.js";
import { t } from "./translations.js";

const SOON_SEC = 120;
const SHORT = 80;

/**
 * @param {{wait_deadline_at?: string, reply_required: boolean, interactive_profile: {kind: string}}} waiting
 * @param {{default: unknown, options?: unknown[]}} question its default is used if nobody answers in time
 * @returns {HTMLElement | null}
 */
export function deadline({ wait_deadline_at: at, reply_required: required, interactive_profile: profile }, question) {
  const held = profile.kind === "sticky_process";
  if (at === undefined) return held ? make("p", { class: "deadline" }, t("inbox.held")) : null;
  const moment = new Date(at);
  const left = countdownElement(at);
  const suggested = labelOfDefault(question);
  const answer = ["string", "number"].includes(typeof suggested) ? String(suggested).slice(0, SHORT) : null;
  const end = required ? "fail" : answer === null ? "decide" : "default";
  const meaning = t(`inbox.deadline.${end}`, { time: untilTime(moment), answer });
  return make("p", { class: "deadline" }, left, make("span", {}, held ? `${t("inbox.held")} ${meaning}` : meaning));
}

/** The default as the buttons show it. */
function labelOfDefault({ default: suggested, options }) {
  const chosen = (options ?? []).find((option) => typeof option === "object" && option?.value === suggested);
  return chosen?.label ?? suggested;
}

/** The time that is left, which counts down. */
export function countdownElement(at) {
  const left = make("strong", { class: "deadline-left", role: "timer", "data-deadline": at });
  tick(left);
  return left;
}

function tick(element) {
  const seconds = (new Date(element.dataset.deadline).getTime() - Date.now()) / 1000;
  element.textContent = seconds > 0 ? t("inbox.deadline", { left: countdown(seconds) }) : t("inbox.overdue");
  element.classList.toggle("soon", seconds < SOON_SEC);
}

setInterval(() => {
  for (const element of document.querySelectorAll("[data-deadline]")) tick(element);
}, 1000);
