// The page behind a link: one question, or how it ended.

import { post, Problem } from "./api.js";
import { deadline } from "./deadline.js";
import { draftOf } from "./drafts.js";
import { make } from "./elements.js";
import { questionForm } from "./form.js";
import { formAnswers } from "./form_answers.js";
import { outcomeText } from "./outcomes.js";
import { questionText } from "./question_text.js";
import { exactly } from "./time.js";
import { t } from "./translations.js";

const GONE = 409;
const place = document.getElementById("question");
const title = document.getElementById("answer-title");
const given = (id) => JSON.parse(document.getElementById(id).textContent);

async function send(asked, response) {
  try {
    showClosed(await post(`/v1${location.pathname}`, { response }), { mine: true });
  } catch (problem) {
    if (problem.status !== GONE) throw problem;
    // The server says how the question ended; the page shows it.
    draftOf(asked.run_id, asked)?.drop();
    location.reload();
    await new Promise(() => {});
  }
}

/** What was answered, and when. */
function showClosed(closed, { mine = false } = {}) {
  const answered = closed?.outcome === "answered";
  title.textContent = t(answered ? "answer.answered.title" : "answer.closed.title");
  document.title = `${title.textContent} · ${t("frame.product")}`;
  place.replaceChildren();
  if (closed === null) {
    place.append(make("p", {}, t("inbox.row.closed")));
    return;
  }
  const said = answered && typeof closed.response !== "object" ? t("answer.was", { text: wordsOf(closed.response) }) : answered ? t("answer.sent") : outcomeText(closed);
  const when = make("p", { class: "muted small" }, closed.answered_at ? exactly(new Date(closed.answered_at)) : "");
  const note = make("div", { class: "alert alert-ok", role: "status", id: "answered" }, make("p", {}, make("strong", {}, said)), when);
  const answers = answered ? formAnswers(closed, closed.response) : null;
  if (answers !== null) note.querySelector("p").after(answers);
  place.append(...questionText(closed, { heading: true }), note, make("p", { class: "muted" }, t(mine ? "answer.thanks" : "answer.done")));
  if (mine) document.getElementById("main").focus();
}

function wordsOf(response) {
  return typeof response === "boolean" ? t(response ? "form.yes" : "form.no") : String(response);
}

/** A link allows no uploads; they require a token. */
async function noFiles() {
  throw new Problem(403, "FORBIDDEN", t("answer.no_files"));
}

function show(asked) {
  const draft = draftOf(asked.run_id, asked);
  const form = questionForm(asked, { t, onSend: (response) => send(asked, response), files: noFiles, draft });
  place.append(...[...questionText(asked, { heading: true }), deadline(asked, asked), form].filter(Boolean));
}

for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => {
    document.cookie = `askback_language=${button.dataset.language}; path=/; max-age=31536000; samesite=strict`;
    location.reload();
  });
}
const asked = given("first");
if (asked === null) showClosed(given("closed"));
else show(asked);
