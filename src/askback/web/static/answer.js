// The page behind a link: one question, or how it ended.

import { get, post, Problem, upload } from "./api.js";
import { deadline } from "./deadline.js";
import { draftOf } from "./drafts.js";
import { make, newId } from "./elements.js";
import { questionForm } from "./form.js";
import { answerAsText, formAnswers } from "./form_answers.js";
import { closedBy, inWords, outcomeText, takenText } from "./outcomes.js";
import { questionPane, questionText } from "./question_text.js";
import { refreshTimes, timeElement } from "./time.js";
import { t } from "./translations.js";
import { tree } from "./tree.js";
import { unsent } from "./unsent.js";

const GONE = 409;
const LOOK_MS = 10_000;
const place = document.getElementById("question");
const title = document.getElementById("answer-title");
const given = (id) => JSON.parse(document.getElementById(id).textContent);
const address = `/v1${location.pathname}`;
const files = new Map();
let sending = false;
let timer = null;

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
  sending = true;
  try {
    showClosed(await deliver(response), { mine: true });
  } catch (problem) {
    if (problem.status === 401) throw new Problem(401, problem.code, t("answer.invalid.text"));
    const closed = problem.status === GONE ? await closedNow() : null;
    if (closed === null) throw problem;
    const held = isHeld(response) ? files.get(response.upload_id).name : null;
    showTaken(closed, t("answer.unused"), held ?? answerAsText(asked, response));
  } finally {
    sending = false;
  }
}

/** How the question ended, as the page of the link now says; null if that cannot be read. */
async function closedNow() {
  try {
    const page = await fetch(location.pathname, { headers: { Accept: "text/html" }, cache: "no-store" });
    const said = new DOMParser().parseFromString(await page.text(), "text/html").getElementById("closed");
    return said === null ? null : JSON.parse(said.textContent);
  } catch {
    return null;
  }
}

/** Whether somebody else has closed the question meanwhile. A link has no stream. */
async function look(asked, draft) {
  if (timer === null || sending || document.hidden) return;
  try {
    await get(address);
  } catch ({ status }) {
    // A link that is no longer valid stays so; sending says it.
    if (status === 401) stopLooking();
    const closed = status === GONE ? await closedNow() : null;
    if (closed === null || sending || timer === null) return;
    const begun = draft?.read();
    const text = begun === undefined ? null : answerAsText(asked, begun);
    if (text === null) showClosed(closed);
    else showTaken(closed, t("inbox.unsent"), text);
    draft?.drop();
  }
}

function stopLooking() {
  clearInterval(timer);
  timer = null;
}

/** What was answered. Nothing of a secret: the server does not send it. */
function answerParts(closed, mine) {
  const { kind, response, outcome } = closed;
  if (outcome !== "answered") return [make("strong", {}, outcomeText(closed))];
  if (response === null) return [make("strong", {}, t(mine ? "answer.sent" : "answer.secret"))];
  if (typeof response === "object") {
    return [make("strong", {}, t(mine ? "answer.sent" : "answer.given")), formAnswers(closed, response) ?? tree(response)];
  }
  const file = kind === "file" ? /([^/]+)$/.exec(String(response))?.[1] : undefined;
  return [make("strong", {}, file === undefined ? t("answer.was", { text: inWords(response, closed) }) : t("answer.file", { name: file }))];
}

/** `by anna · 10 minutes ago` */
function byLine(closed, mine) {
  const { outcome, answered_at: at } = closed;
  const by = mine || outcome !== "answered" ? null : closedBy(closed);
  const parts = by === null ? [] : [t("answer.by", { name: by }), " · "];
  if (at) parts.push(timeElement(at));
  return make("p", { class: "muted small" }, ...parts);
}

/** What was answered, by whom, and when. `above` is said first. */
function showClosed(closed, { mine = false, above = [] } = {}) {
  stopLooking();
  const answered = closed.outcome === "answered";
  title.textContent = t(mine ? "answer.answered.title" : answered ? "answer.already.title" : "answer.closed.title");
  document.title = `${title.textContent} · ${t("frame.product")}`;
  const look = mine ? "alert alert-ok closed-answer" : "alert closed-answer";
  const note = make("div", { class: look, role: "status", id: "answered" }, ...answerParts(closed, mine), byLine(closed, mine));
  const end = make("p", { class: "muted" }, t(mine ? "answer.thanks" : "answer.done"));
  place.replaceChildren(...questionText(closed, { heading: true }), ...above, note, end);
  setInterval(refreshTimes, 20_000);
  if (mine) document.getElementById("main").focus();
}

/** Somebody else was faster. What the user has entered stays readable; null if it is nothing, or secret. */
function showTaken(closed, heading, text) {
  const note = make("p", { class: "alert alert-warn", role: "alert", id: "taken", tabindex: "-1" }, takenText(closed));
  showClosed(closed, { above: text === null ? [note] : [note, unsent(heading, text)] });
  note.focus();
}

/** The place of the option that the address names: `?choose=1`. Only a tap sends it. */
function chosen() {
  const text = new URLSearchParams(location.search).get("choose") ?? "";
  return /^\d{1,4}$/.test(text) ? Number(text) : null;
}

function show(asked) {
  const draft = draftOf(address, asked);
  const form = questionForm(asked, { t, onSend: (response) => send(asked, response), files: hold, draft, chosen: chosen() });
  place.append(questionPane(questionText(asked, { heading: true }), [deadline(asked, asked), form].filter(Boolean)));
  timer = setInterval(() => look(asked, draft), LOOK_MS);
  for (const type of ["focus", "online"]) window.addEventListener(type, () => look(asked, draft));
  document.addEventListener("visibilitychange", () => look(asked, draft));
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
