// The page behind a link: one question.

import { post, Problem } from "./api.js";
import { deadline } from "./deadline.js";
import { questionForm } from "./form.js";
import { questionText } from "./question_text.js";
import { t } from "./translations.js";

const place = document.getElementById("question");

async function send(response) {
  try {
    await post(`/v1${location.pathname}`, { response });
  } catch (problem) {
    if (problem.status !== 409) throw problem;
  }
  place.remove();
  const settled = document.getElementById("answered");
  settled.hidden = false;
  document.getElementById("main").focus();
}

/** A link allows no uploads; they require a token. */
async function noFiles() {
  throw new Problem(403, "FORBIDDEN", t("answer.no_files"));
}

if (place !== null) {
  const asked = JSON.parse(document.getElementById("first").textContent);
  const form = questionForm(asked, { t, onSend: send, files: noFiles });
  place.append(...[...questionText(asked), deadline(asked, asked.default), form].filter(Boolean));
}
