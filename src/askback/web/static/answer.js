// The page behind a link: one question, or how it ended.

import { post, Problem, upload } from "./api.js";
import { deadline } from "./deadline.js";
import { draftOf } from "./drafts.js";
import { make, newId } from "./elements.js";
import { questionForm } from "./form.js";
import { formAnswers } from "./form_answers.js";
import { closedBy, inWords, outcomeText } from "./outcomes.js";
import { questionText } from "./question_text.js";
import { refreshTimes, timeElement } from "./time.js";
import { t } from "./translations.js";
import { tree } from "./tree.js";

const GONE = 409;
const place = document.getElementById("question");
const title = document.getElementById("answer-title");
const given = (id) => JSON.parse(document.getElementById(id).textContent);
const address = `/v1${location.pathname}`;
const files = new Map();

/** A link allows no uploads: a file waits here, and is sent as the answer. */
async function hold(file) {
  const id = newId("held");
  files.set(id, file);
  return { upload_id: id };
}

function isHeld(value) {
  return typeof value === "object" && value !== null && files.has(value.upload_id);
}

/** @returns {Promise<object>} the answered question */
function deliver(response) {
  if (isHeld(response)) return upload(files.get(response.upload_id), `${address}/file`);
  const inside = typeof response === "object" && response !== null ? Object.values(response) : [];
  if (inside.some(isHeld)) throw new Problem(422, "FORBIDDEN", t("answer.no_files"));
  return post(address, { response });
}

async function send(asked, response) {
  try {
    showClosed(await deliver(response), { mine: true });
  } catch (problem) {
    if (problem.status === 401) throw new Problem(401, problem.code, t("answer.invalid.text"));
    if (problem.status !== GONE) throw problem;
    // The server says how the question ended; the page shows it.
    draftOf(address, asked)?.drop();
    location.reload();
    await new Promise(() => {});
  }
}

/** What was answered. Nothing of a secret: the server does not send it. */
function answerParts(closed) {
  const { kind, response, outcome } = closed;
  if (outcome !== "answered") return [make("strong", {}, outcomeText(closed))];
  if (response === null) return [make("strong", {}, t("answer.sent"))];
  if (typeof response === "object") return [make("strong", {}, t("answer.sent")), formAnswers(closed, response) ?? tree(response)];
  const file = kind === "file" ? /([^/]+)$/.exec(String(response))?.[1] : undefined;
  return [make("strong", {}, file === undefined ? t("answer.was", { text: inWords(response) }) : t("answer.file", { name: file }))];
}

/** `by anna · 10 minutes ago` */
function byLine(closed, mine) {
  const { outcome, answered_at: at } = closed;
  const by = mine || outcome !== "answered" ? null : closedBy(closed);
  const parts = by === null ? [] : [t("answer.by", { name: by }), " · "];
  if (at) parts.push(timeElement(at));
  return make("p", { class: "muted small" }, ...parts);
}

/** What was answered, by whom, and when. */
function showClosed(closed, { mine = false } = {}) {
  const answered = closed.outcome === "answered";
  title.textContent = t(mine ? "answer.answered.title" : answered ? "answer.already.title" : "answer.closed.title");
  document.title = `${title.textContent} · ${t("frame.product")}`;
  const note = make("div", { class: "alert alert-ok closed-answer", role: "status", id: "answered" }, ...answerParts(closed), byLine(closed, mine));
  place.replaceChildren(...questionText(closed, { heading: true }), note, make("p", { class: "muted" }, t(mine ? "answer.thanks" : "answer.done")));
  setInterval(refreshTimes, 20_000);
  if (mine) document.getElementById("main").focus();
}

/** The place of the option that the address names: `?choose=1`. Only a tap sends it. */
function chosen() {
  const text = new URLSearchParams(location.search).get("choose") ?? "";
  return /^\d{1,4}$/.test(text) ? Number(text) : null;
}

function show(asked) {
  const draft = draftOf(address, asked);
  const form = questionForm(asked, { t, onSend: (response) => send(asked, response), files: hold, draft, chosen: chosen() });
  place.append(...[...questionText(asked, { heading: true }), deadline(asked, asked), form].filter(Boolean));
}

function showConnection() {
  document.getElementById("offline").hidden = navigator.onLine;
}

for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => {
    document.cookie = `askback_language=${button.dataset.language}; path=/; max-age=31536000; samesite=strict`;
    location.reload();
  });
}
window.addEventListener("online", showConnection);
window.addEventListener("offline", showConnection);
showConnection();
const asked = given("first");
if (asked === null) showClosed(given("closed"));
else show(asked);
