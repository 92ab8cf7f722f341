// A form as text: its questions, and afterwards each with its answer.

import { choicesOf, same } from "./checks.js";
import { make } from "./elements.js";
import { titleOf } from "./fields.js";
import { inWords } from "./outcomes.js";
import { t } from "./translations.js";
import { tree } from "./tree.js";

/** The questions in their order; null for a question that is no form. */
export function formQuestions({ questions }) {
  if (!questions?.length) return null;
  const items = questions.map(({ prompt }) => make("li", { class: "plain" }, prompt));
  return make("ol", { class: "tree-list form-questions", "aria-label": t("form.questions") }, ...items);
}

/** Each question with its answer; null for a question that is no form, or without an answer. */
export function formAnswers(asked, response) {
  const questions = fieldsOf(asked, response);
  if (questions === null) return null;
  const rows = questions.map((field) => {
    const said = make("dd", {}, answerOf(field, response));
    return make("div", { class: "tree-row tree-deep" }, make("dt", { class: "plain" }, field.prompt), said);
  });
  return make("dl", { class: "tree form-answers" }, ...rows);
}

/** An answer as text that its author can copy; null if there is nothing to show, or if it is secret. */
export function answerAsText(asked, response) {
  const { secret_fields: secrets } = asked;
  if (!secrets) return null;
  const questions = fieldsOf(asked, response);
  if (questions === null) return secrets.length > 0 ? null : inWords(response, asked) || null;
  const given = questions.filter(({ id }) => Object.hasOwn(response, id) && !secrets.includes(id));
  return given.map((field) => `${introduced(field.prompt)} ${answerOf(field, response).textContent}`).join("\n") || null;
}

/** The questions of a form, or the fields of a schema that has all parts of the answer; null for everything else. */
function fieldsOf({ questions, response_schema: schema }, response) {
  if (typeof response !== "object" || response === null || Array.isArray(response)) return null;
  if (questions?.length) return questions;
  const properties = schema?.properties ?? {};
  if (!Object.keys(response).every((name) => Object.hasOwn(properties, name))) return null;
  return Object.entries(properties).map(([id, each]) => ({ id, prompt: each.title ?? titleOf(id), response_schema: each }));
}

/** `Days:`, but `How many days?` */
function introduced(title) {
  return /[?!.:…？！。：]$/.test(title) ? title : `${title}:`;
}

/** The server sends null for a secret; what is missing was left out. */
function answerOf({ id, response_schema: schema }, response) {
  if (!Object.hasOwn(response, id)) return make("em", { class: "muted" }, t("form.no_answer"));
  const value = response[id];
  if (value === null) return make("em", {}, t("form.not_shown"));
  const labels = [value].flat().map((each) => labelOf(Array.isArray(value) ? schema?.items : schema, each));
  if (labels.length > 0 && !labels.includes(undefined)) return make("span", {}, labels.join(", "));
  return typeof value === "boolean" ? make("span", {}, t(value ? "form.yes" : "form.no")) : tree(value);
}

function labelOf(schema, value) {
  return choicesOf(schema ?? {})?.find((choice) => same(choice.value, value))?.label;
}
