// A form of several questions as text: its questions, and afterwards each with its answer.

import { choicesOf, same } from "./checks.js";
import { make } from "./elements.js";
import { t } from "./translations.js";
import { tree } from "./tree.js";

/** The questions in their order; null for a question that is no form. */
export function formQuestions({ questions }) {
  if (!questions?.length) return null;
  const items = questions.map(({ prompt }) => make("li", { class: "plain" }, prompt));
  return make("ol", { class: "tree-list form-questions", "aria-label": t("form.questions") }, ...items);
}

/** Each question with its answer; null for a question that is no form, or without an answer. */
export function formAnswers({ questions }, response) {
  if (!questions?.length || typeof response !== "object" || response === null) return null;
  const rows = questions.map((field) => {
    const said = make("dd", {}, answerOf(field, response));
    return make("div", { class: "tree-row tree-deep" }, make("dt", { class: "plain" }, field.prompt), said);
  });
  return make("dl", { class: "tree form-answers" }, ...rows);
}

/** The server sends null for a secret; what is missing was left out. */
function answerOf({ id, response_schema: schema }, response) {
  if (!Object.hasOwn(response, id)) return make("em", { class: "muted" }, t("form.no_answer"));
  const value = response[id];
  if (value === null) return make("em", {}, t("form.not_shown"));
  const chosen = choicesOf(schema ?? {})?.find((choice) => same(choice.value, value));
  if (chosen) return chosen.label;
  return typeof value === "boolean" ? t(value ? "form.yes" : "form.no") : tree(value);
}
